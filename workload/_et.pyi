"""Types of the native decoder (workload/native/bind.cpp)."""

from collections.abc import Callable
from enum import Enum

import numpy as np
from numpy.typing import NDArray

class EtFaultKind(Enum):
    EMPTY = 0
    TRUNCATED = 1
    DAMAGED = 2
    OLD_GENERATION = 3
    BAD_VALUE = 4
    LIMIT = 5

class EtFault:
    @property
    def kind(self) -> EtFaultKind: ...
    @property
    def what(self) -> str:
        """The fault, without place or remedy; for OLD_GENERATION the generation's name."""
    @property
    def byte_offset(self) -> int:
        """Where, in the decompressed stream."""
    @property
    def node_index(self) -> int | None:
        """None: in the first message, before any node."""
    @property
    def node_id(self) -> int | None: ...

class EtColumns:
    """Columns of `workload.trace.RankTrace`, read-only, valid for as long as an array of them is held."""

    @property
    def node_id(self) -> NDArray[np.uint64]: ...
    @property
    def kind(self) -> NDArray[np.uint8]: ...
    @property
    def byte_offset(self) -> NDArray[np.uint64]: ...
    @property
    def name_offsets(self) -> NDArray[np.uint64]: ...
    @property
    def name_bytes(self) -> bytes: ...
    @property
    def data_dep_offsets(self) -> NDArray[np.int64]: ...
    @property
    def data_deps(self) -> NDArray[np.uint64]: ...
    @property
    def ctrl_dep_offsets(self) -> NDArray[np.int64]: ...
    @property
    def ctrl_deps(self) -> NDArray[np.uint64]: ...
    @property
    def start_us(self) -> NDArray[np.uint64]: ...
    @property
    def duration_us(self) -> NDArray[np.uint64]: ...
    @property
    def comm_type(self) -> NDArray[np.int64]: ...
    @property
    def comm_size(self) -> NDArray[np.int64]: ...
    @property
    def comm_src(self) -> NDArray[np.int64]: ...
    @property
    def comm_dst(self) -> NDArray[np.int64]: ...
    @property
    def comm_tag(self) -> NDArray[np.int64]: ...
    @property
    def is_cpu_op(self) -> NDArray[np.int64]: ...
    @property
    def num_ops(self) -> NDArray[np.int64]: ...
    @property
    def tensor_size(self) -> NDArray[np.int64]: ...
    @property
    def stream(self) -> NDArray[np.int64]: ...
    @property
    def start_nanos(self) -> NDArray[np.int64]:
        """Empty where no node has one, as the next three."""
    @property
    def duration_nanos(self) -> NDArray[np.int64]: ...
    @property
    def involved_dims(self) -> NDArray[np.int64]: ...
    @property
    def moved_bytes(self) -> NDArray[np.int64]: ...
    @property
    def pg_name(self) -> NDArray[np.int32]: ...
    @property
    def pg_names(self) -> list[str]: ...
    @property
    def split_offsets(self) -> NDArray[np.int64]: ...
    @property
    def send_split_bytes(self) -> NDArray[np.int64]: ...
    @property
    def version(self) -> str: ...
    @property
    def schema(self) -> str: ...

class EtDecoder:
    """Takes the bytes of one file in any chunking; the first fault stops it."""

    def __init__(self, max_nodes: int = ...) -> None: ...
    def feed(self, chunk: bytes) -> bool:
        """False once there is a fault or the file has ended; changes nothing then."""
    def finish(self) -> bool:
        """Tells that the file ended; whether it is whole."""
    @property
    def fault(self) -> EtFault | None: ...
    @property
    def columns(self) -> EtColumns:
        """Raises ValueError until `finish` has returned True."""

# workload/native/bind.cpp

EVENT_DEVICE: int
EVENT_CALL: int
EVENT_RAW: int

class KinetoScanner:
    """Reads profiler events without making values of those that are not needed."""

    def __init__(self, classify: Callable[[str], bool]) -> None:
        """`classify` returns for each name, once, whether calls of that name are to be read whole."""

    def scan(self, text: str, at: int, index: int) -> tuple[int, int, bool]:
        """Take whole, plain elements of a JSON array; return where, at which one, and whether the array ended."""

    def take(
        self,
    ) -> tuple[list[tuple[int, int, int, int, str, int, int, int, int, int, int]], bytes, dict[str, int]]:
        """Return what was found since the last call: events, correlations of launches, events by category.

        An event is (kind, index, begin, end, name, start_ns, duration_ns, stream, external, correlation, record); -1 is
        an absent id, 0 an absent record.
        """

"""Recognises communication outside NCCL by the names of kernels and of the calls that launch them: by the shipped table
(kernels.yaml in this folder), and by a user's file that takes precedence.

Decides the format of such a file, and which entry matches a name. Leaves the content of an operation to
device_comms.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_parsers import integer, one_of, words
from etloop.contract.base.yaml_reader import LARGEST_FILE_BYTES, ConfigFile, Section, read_document
from etloop.workload.readers.json_stream import INT64_MAX
from etloop.workload.trace.trace import CollectiveKind
from etloop.workload.trace.trace_names import printable_name

MOST_ENTRIES: Final = 1000
"""Limit of entries in one file, for kernels and operations each."""

_SHIPPED: Final = Path(__file__).with_name("kernels.yaml")
_COLLECTIVES: Final[dict[str, CollectiveKind | None]] = {
    **{
        kind.name.lower(): kind
        for kind in CollectiveKind
        if kind not in (CollectiveKind.REDUCE_SCATTER_BLOCK, CollectiveKind.BARRIER)
    },
    "none": None,
}
STATE_THEM: Final = "state them in a file of kernels (--kernels, in a scenario workload.kernels)"

_LIBRARIES: Final = (
    r"[nrohxesutvp]ccl(?!u)|mccl|bkcl|cncl|hcom_|nvshmem|rocshmem|ishmem|deep_?ep|pplx|mori::|nixl|gloo::|ibgda|gpunetio"
    r"|torchcomms|user_?buffers"
)
_OPERATIONS: Final = (
    r"all_?reduce|all_?gather|reduce_?scatter|all_?(to|2)_?all|send_?recv|cross_?device|multimem|symm_?mem"
)
_FORKS: Final = (
    r"(?<![a-z])ep::|inter_?node|intra_?node|a2a|moe_?comm"
    r"|(low_?latency|distribute|elastic|(?<![a-z])ep)_?(dispatch|combine)"
)
"""Words of DeepEP, which its forks keep, and of other expert exchanges."""
_WORDS: Final = re.compile(f"{_LIBRARIES}|{_OPERATIONS}|{_FORKS}")
"""Matches names in lower case: a quarter of the time of re.IGNORECASE, which cannot look for a first letter."""
_UNNAMED: Final = "(anonymous namespace)::"
_END_OF_NAME: Final = re.compile(r"[<(]")


@dataclass(frozen=True, slots=True)
class TableEntry:
    """Meaning of a kernel's or operation's name."""

    name: str
    collective: CollectiveKind | None
    """None: it does not communicate, or is part of an operation that another kernel represents."""
    size_bytes: int | None = None
    """Bytes that a rank puts in; None: taken from the launching call."""
    argument: int | None = None
    """For an operation: index of the input argument; None: the first tensor."""
    group: str | None = None
    """Key of its process group; None: the only group of several ranks."""


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Entries in order of precedence."""

    kernels: tuple[TableEntry, ...] = ()
    operations: tuple[TableEntry, ...] = ()
    _known: dict[str, TableEntry | None] = field(default_factory=dict, compare=False, repr=False)

    def kernel(self, name: str) -> TableEntry | None:
        """Return the first entry whose name is part of the kernel name; None if there is none."""
        if name not in self._known:
            if len(self._known) > 1 << 16:
                self._known.clear()
            self._known[name] = next((entry for entry in self.kernels if entry.name in name), None)
        return self._known[name]

    def operation(self, name: str) -> TableEntry | None:
        """Return the first entry with exactly this name; None if there is none."""
        return next((entry for entry in self.operations if entry.name == name), None)


def function_name(kernel: str) -> str:
    """Return a kernel's name without return type, template arguments and parameters."""
    unqualified = kernel.removeprefix("void ").replace(_UNNAMED, "")
    return _END_OF_NAME.split(unqualified, maxsplit=1)[0].strip()


def looks_communicating(kernel: str) -> bool:
    """Decide whether a name contains a word of communication. Names `triton_*` are excluded: compilers derive them from
    surrounding operations."""
    name = function_name(kernel).lower()
    return not name.startswith("triton_") and _WORDS.search(name) is not None


@lru_cache(maxsize=1)
def shipped_table() -> KernelTable:
    """Return the table shipped with the project."""
    return parse_table(_SHIPPED.read_bytes(), _SHIPPED.name)


def table_with(path: Path | None) -> KernelTable:
    """Return the shipped table with the entries of a file in front. Raises `ConfigError`."""
    shipped = shipped_table()
    if path is None:
        return shipped
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigError(
            Problem(printable_name(str(path)), problem, "give a kernel table as in docs/traces.md")
        ) from None
    user_table = parse_table(text, printable_name(str(path)))
    return KernelTable(user_table.kernels + shipped.kernels, user_table.operations + shipped.operations)


def parse_table(text: bytes, name: str) -> KernelTable:
    """Parse a table from YAML text. Raises `ConfigError` with all its mistakes."""
    file = ConfigFile(name)
    document = read_document(text, file)
    kernels = tuple(_kernel(entry) for entry in _entries(document, "kernels"))
    operations = tuple(_operation(entry) for entry in _entries(document, "operations"))
    if not kernels and not operations and not file.problems:
        file.mistake(None, "", "the file has no entries", "write kernels or operations")
    document.close()
    file.refuse_mistakes()
    return KernelTable(kernels, operations)


def _entries(document: Section, key: str) -> tuple[Section, ...]:
    return document.up_to(
        MOST_ENTRIES, key, key, "write items such as - {name: my_kernel, collective: all_reduce}"
    )


def _kernel(entry: Section) -> TableEntry:
    name, collective, group = _read_name(entry)
    size_bytes = entry.optional("bytes", integer(0, INT64_MAX), None)
    entry.close()
    return TableEntry(name, collective, size_bytes, None, group)


def _operation(entry: Section) -> TableEntry:
    name, collective, group = _read_name(entry)
    argument = entry.optional("input", integer(0, 255), None)
    entry.close()
    return TableEntry(name, collective, None, argument, group)


def _read_name(entry: Section) -> tuple[str, CollectiveKind | None, str | None]:
    name = entry.require("name", _name, "?", "write the kernel's or the operation's name")
    known_names = ", ".join(_COLLECTIVES)
    collective = entry.require("collective", one_of(_COLLECTIVES), None, f"write one of {known_names}")
    return name, collective, entry.optional("group", words, None)


def _name(text: str) -> str:
    if len(text.strip()) < 4:
        raise QuantityError(f'"{text}" matches too many kernel names', "write 4 characters or more")
    return text.strip()

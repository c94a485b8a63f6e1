"""The dispatch mode that sees every operator of the script, and the record that it keeps.

Returns `NotImplemented` for classes of tensors that make other operators of one (DTensor, AsyncCollectiveTensor),
so that their collectives and local operators are dispatched with the mode on; handled here they would be lost without an error.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch._C._distributed_c10d import FakeWork
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

from . import costs, higher_order
from .answers import Answers, note_finite
from .collectives import WAIT, Call, call_of, is_communication
from .events import EventFile, Refusal, ScriptPlaces
from .module_names import ModuleNames
from .seeds import note_seed
from .storages import StorageNumbers, accesses, moves_nothing, tensors_in
from .streams import HOST, Streams
from .tokens import TokenCounts

_WITHOUT_ANSWER = frozenset(
    f"c10d::{name}_coalesced_"
    for name in ("allreduce", "allgather_into_tensor", "reduce_scatter_tensor", "allgather")
)
_FIRST_SIDE_STREAM = 1 << 20
_SIDE_STREAMS = 16
_LATEST = 256
_READS_ON_HOST = ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero")
_SHAPED_BY_DATA = (
    "aten::nonzero aten::masked_select aten::unique_dim aten::_unique2 aten::unique_consecutive"
    " aten::repeat_interleave aten::bincount"
).split()


class Record:
    """Operations, groups and answers of one rank so far, and the file of its events."""

    def __init__(
        self, events: EventFile, places: ScriptPlaces, rank: int, tokens: TokenCounts, items: dict[str, float]
    ) -> None:
        self.events, self.places, self.rank, self.tokens = events, places, rank, tokens
        self.answers = Answers(places, items)
        self.storages = StorageNumbers()
        self.modules = ModuleNames()
        self.streams: Streams | None = None
        """The streams of the device; None: the script runs on the CPU, which has one."""
        self._operation_count = 0
        self._by_storage: dict[int, int] = {}
        self._by_work: weakref.WeakKeyDictionary[Any, tuple[list[int], tuple[torch.Tensor, ...]]] = (
            weakref.WeakKeyDictionary()
        )
        self._latest_outputs: deque[tuple[int, tuple[torch.Tensor, ...]]] = deque(maxlen=_LATEST)
        self._suspended = 0
        self._group_calls = 0
        self._side_stream: int | None = None
        self._side_streams = 0
        self._blocking: dict[int, int] = {}
        """Operations whose wait blocks the host, and the streams that wait."""
        self._groups: list[tuple[str, str, tuple[int, ...]]] = []
        self._operators: Counter[bool] = Counter()
        """Number of operators on the host and on the device."""
        self._missing: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()

    @property
    def operation_count(self) -> int:
        """Return the number of communication operations so far."""
        return self._operation_count

    @property
    def is_suspended(self) -> bool:
        """Return whether operators are executed without being recorded."""
        return self._suspended > 0

    @contextlib.contextmanager
    def suspend(self) -> Iterator[None]:
        """Execute operators without recording them."""
        self._suspended += 1
        try:
            yield
        finally:
            self._suspended -= 1
            if self.streams is not None and not self._suspended:
                self.streams.skip_log()

    @contextlib.contextmanager
    def group_call(self) -> Iterator[None]:
        """Mark a call of a process group, whose `Work` is bound to its operations."""
        self._group_calls += 1
        try:
            yield
        finally:
            self._group_calls -= 1

    def note(self, text: str) -> None:
        """Keep a remark for the report and the trace; equal ones are counted."""
        self._notes[text] += 1

    def group(self, key: str, ranks: list[int], description: str, place: str) -> None:
        """Record that the script made a process group."""
        self._groups.append((description, place, tuple(ranks)))
        self.events.write(kind="group", key=key, ranks=ranks, description=description, place=place)

    def siblings(self, ranks: list[int]) -> list[tuple[int, ...]]:
        """Return the other groups that the script made where it made the latest group of these ranks."""
        made = [
            (description, place) for description, place, members in self._groups if members == tuple(ranks)
        ]
        return [
            members
            for description, place, members in self._groups
            if made and (description, place) == made[-1] and not set(members) & set(ranks)
        ]

    def stream(self) -> int:
        """Return the number of the stream on which work is issued."""
        if self._side_stream is not None:
            return self._side_stream
        return 0 if self.streams is None else self.streams.current()

    @contextlib.contextmanager
    def side_stream(self, number: int | None = None) -> Iterator[int]:
        """Issue work on a side stream, a new one unless its number is given, as the callback of a future does."""
        outer = self._side_stream
        if number is None:
            self._side_streams += 1
            number = _FIRST_SIDE_STREAM + self._side_streams % _SIDE_STREAMS
        self._side_stream = number
        try:
            yield number
        finally:
            self._side_stream = outer

    def wait_stream(self, other: int) -> None:
        """Record that the current stream waits for another."""
        if not self.is_suspended:
            self.events.write(kind="stream-wait", stream=self.stream(), other=other)

    def _stream_of(self, tensors: list[torch.Tensor]) -> int:
        """Return the stream of work on tensors: the host's for those that are not on the device."""
        stream = self.stream()
        is_on_host = tensors and all(tensor.device.type == "cpu" for tensor in tensors)
        return HOST if self.streams is not None and is_on_host else stream

    def communication(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: object) -> None:
        """Record a communication operator, or a wait for one."""
        if func._schema.name == WAIT:
            storage = self.storages.number(args[0])
            if storage in self._by_storage:
                self.wait([self._by_storage[storage]])
            return
        call = call_of(func, args, kwargs, out)
        if call is None:
            return
        if func.namespace == "c10d" and not self._group_calls:
            raise Refusal(
                f"{func} is called in a way that hides its wait", "call it by a function of torch.distributed"
            )
        self.call(call, str(func))

    def call(self, call: Call, operator: str) -> None:
        """Record one communication operation."""
        number = self._operation_count
        self._operation_count += 1
        writes = self.storages.numbers(call.outputs)
        for storage in writes:
            self._by_storage[storage] = number
        self._latest_outputs.append((number, tuple(call.outputs)))
        stream = self._stream_of([*call.inputs, *call.outputs])
        if self.streams is not None and (stream == HOST or call.kind == "barrier"):
            self._blocking[number] = stream
        text = self.events.text_number
        self.events.write(
            kind="comm",
            number=number,
            type=call.kind,
            group=call.group.group_name,
            bytes=call.input_bytes,
            elements=call.elements,
            dtype=call.data_type,
            splits=call.send_splits,
            root=call.root,
            peer=call.peer,
            tag=call.tag,
            reads=self.storages.numbers(call.inputs),
            writes=writes,
            stream=stream,
            module=text(self.module()),
            place=text(self.places.current()),
            operator=text(operator),
        )
        if call.is_uneven:
            self.note("all-gathers or reduce-scatters of unequal parts are recorded as all-to-alls")

    def wait(self, operations: list[int]) -> None:
        """Record that the current stream waits for communication operations."""
        if not operations or self.is_suspended:
            return
        current = self.stream()
        stream = self._blocking.get(operations[0], current)
        module = self.events.text_number(self.module())
        self.events.write(kind="wait", operations=operations, stream=stream, module=module)
        if operations[0] in self._blocking:
            self.host_waits(stream)

    def host_waits(self, stream: int) -> None:
        """Record that the host waits for everything issued to a stream."""
        self.events.write(kind="host", reads=[], stream=stream)

    def bind_work(self, work: Any, first_operation: int) -> None:
        """Remember which operations a `Work` represents: those from `first_operation` until now."""
        if work is not None:
            outputs = [tensors for number, tensors in self._latest_outputs if number >= first_operation]
            operations = list(range(first_operation, self._operation_count))
            self._by_work[work] = operations, tuple(tensor for tensors in outputs for tensor in tensors)

    def wait_work(self, work: Any) -> None:
        """Record the wait for a `Work`."""
        self.wait(self.work_of(work)[0])

    def work_of(self, work: Any) -> tuple[list[int], tuple[torch.Tensor, ...]]:
        """Return the operations that a `Work` represents, and their results."""
        return self._by_work.get(work, ([], ()))

    def compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: object) -> None:
        """Record an operator of the device with its FLOPs, bytes and storages."""
        tensors = tensors_in((args, kwargs, out))
        on_device = self._on_device(tensors)
        if moves_nothing(func):
            return
        self._operators[bool(on_device)] += 1
        reads, written = accesses(func, args, kwargs, out)
        flops = costs.flops_of(func, args, kwargs, out)
        if flops is None:
            self._missing[str(func)] += 1
        self._write_compute(
            costs.signature(func, args, kwargs),
            flops or 0,
            costs.bytes_of(func, reads, written),
            costs.type_of((args, kwargs)),
            tensors,
            (reads, written),
        )
        if len(on_device) < len(tensors) and _copies_to_host(func, args, kwargs, out):
            self.events.write(kind="host", reads=self.storages.numbers(written), stream=self.stream())

    def attention(
        self, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any], out: object
    ) -> None:
        """Record attention with a score function of the script: one kernel that reads its inputs once."""
        self.note("flex_attention takes the FLOPs of all scores: which blocks its mask leaves out is data")
        tensors = tensors_in((args, kwargs, out))
        self._operators[bool(self._on_device(tensors))] += 1
        self._write_compute(
            costs.signature(func, args, kwargs),
            higher_order.attention_flops(func, args),
            costs.bytes_in((args, kwargs, out)),
            costs.type_of((args, kwargs)),
            tensors,
            ((args, kwargs), out),
        )

    def _on_device(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        on_device = [tensor for tensor in tensors if tensor.device.type not in ("cpu", "meta")]
        if self.streams is None and on_device:
            raise Refusal(
                f"the script puts tensors on a GPU, and torch {torch.__version__} is recorded on the CPU",
                "record it with a CUDA build of PyTorch (pip install torch, --python), or take the device from "
                "torch.cuda.is_available()",
            )
        return on_device

    def _write_compute(
        self,
        signature: str,
        flops: int,
        moved_bytes: int,
        dtype: str,
        tensors: list[torch.Tensor],
        accessed: tuple[object, object],
    ) -> None:
        """Write a kernel; `accessed` are the values that it reads and writes."""
        text = self.events.text_number
        self.events.write(
            kind="compute",
            operator=text(signature),
            flops=flops,
            bytes=moved_bytes,
            dtype=dtype,
            reads=self.storages.numbers(accessed[0]),
            writes=self.storages.numbers(accessed[1]),
            stream=self._stream_of(tensors),
            module=text(self.module()),
        )

    def storage_bytes(self, value_bytes: int, name: str) -> None:
        """Record that the rank writes or reads a file."""
        self.events.write(kind="storage", bytes=value_bytes, name=name, stream=self.stream())

    def module(self) -> str:
        """Return the name of the innermost module that runs, "" outside the model."""
        return self.modules.current()

    def host_read(self, tensor: torch.Tensor) -> Any:
        """Record that the host waits for a value, and return the value that the script gets."""
        if not self.is_suspended:
            self.events.write(kind="host", reads=[self.storages.number(tensor)], stream=self.stream())
        return self.answers.value_of(tensor)

    def finish(self) -> None:
        """Write what the report lists: answered values, operators without a formula, remarks."""
        if self.streams is not None:
            self.streams.finish()
            if self._operators[True] and self._operators[False]:
                self.note("operators on tensors of the host take no time")
            elif self._operators[False]:
                self.note("no operator ran on a GPU: those of the host are taken for the device's")
        for place, value, count in self.answers:
            self.events.write(kind="answer", place=place, value=value, count=count)
        for name, count in self._missing.items():
            self.events.write(kind="missing", operator=name, count=count)
        for text, count in self._notes.items():
            self.events.write(kind="note", text=text, count=count)
        self.events.write(kind="end")
        self.events.flush()


class RecordingMode(TorchDispatchMode):
    """Sees every operator below autograd, executes it, and records it."""

    supports_higher_order_operators = True

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Execute one operator and record it."""
        if any(_dispatches_itself(kind) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self._run_inner(func, args, kwargs)
        record = self.record
        name = func._schema.name
        tensors = tensors_in((args, kwargs))
        if tensors and not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            if name == "aten::_local_scalar_dense":
                with unset_fake_temporarily():
                    return func(*args, **kwargs)
            out = func(*args, **kwargs)
            note_seed(func, args, out)
            return out
        if name == "aten::_local_scalar_dense":
            return record.host_read(args[0])
        if record.answers.hooks is not None and hasattr(record.answers.hooks, "operation"):
            out = record.answers.hooks.operation(func, args, kwargs)
            if out is not NotImplemented:
                record.note(f"{func} is answered by the hook")
                return out
        out = record.tokens.answer(func, args, kwargs)
        if out is NotImplemented:
            if name in _SHAPED_BY_DATA or (name == "aten::index" and _has_mask(args)):
                self._refuse_shape(func)
            if name == "aten::_pin_memory":
                return args[0]
            out = _execute(func, args, kwargs)
            record.tokens.propagate(func, args, out)
            note_finite(func, args, out)
            note_seed(func, args, out)
        if record.is_suspended or not (
            tensors or any(isinstance(tensor, FakeTensor) for tensor in tensors_in(out))
        ):
            return out
        if is_communication(func):
            record.communication(func, args, kwargs, out)
        else:
            record.compute(func, args, kwargs, out)
        return out

    def _run_inner(self, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = higher_order.run(self, func, args, kwargs)
        if func in higher_order.ATTENTION and not self.record.is_suspended:
            self.record.attention(func, args, kwargs, out)
        return out

    @staticmethod
    def _refuse_shape(func: Any) -> None:
        raise Refusal(
            f"the shape of the result of {func} depends on data",
            "declare expert counts with --tokens (torch.histc, torch.bincount with minlength), use an operator with a fixed "
            "shape (torch.where, topk), or answer it in --hook FILE",
        )


def _execute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Execute an operator; coalesced operations of c10d, which fake tensors cannot execute, return a `Work`."""
    if func._schema.name in _WITHOUT_ANSWER:
        return FakeWork().boxed()
    return func(*args, **kwargs)


def _dispatches_itself(kind: type) -> bool:
    """Decide whether a class of tensors makes other operators of an operator, such as DTensor does."""
    own = getattr(kind, "__torch_dispatch__", None)
    return not issubclass(kind, FakeTensor) and own is not torch._C._disabled_torch_dispatch_impl


def _copies_to_host(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: object) -> bool:
    """Decide whether the host waits for a copy from the device."""
    if func._schema.name not in ("aten::_to_copy", "aten::copy_"):
        return False
    is_async = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
    return not is_async and all(tensor.device.type == "cpu" for tensor in tensors_in(out))


def _has_mask(args: tuple[Any, ...]) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])

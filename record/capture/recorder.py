"""The dispatch mode that sees every operator of the script, and the record that it keeps.

Returns `NotImplemented` for wrapper subclasses (DTensor, AsyncCollectiveTensor), so that their own collectives and local
operators are dispatched with the mode on; handled here they would be lost without an error.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

from . import costs
from .collectives import WAIT, Call, call_of, is_communication
from .events import EventFile, Refusal, ScriptPlaces
from .module_names import ModuleNames
from .storages import StorageNumbers, accesses, moves_nothing, tensors_in
from .tokens import TokenCounts

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
        self.events, self.places, self.rank, self.tokens, self._items = events, places, rank, tokens, items
        self.storages = StorageNumbers()
        self.modules = ModuleNames()
        self.hooks: Any = None
        self._operation_count = 0
        self._by_storage: dict[int, int] = {}
        self._by_work: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        self._suspended = 0
        self._group_calls = 0
        self._answers: Counter[tuple[str, str]] = Counter()
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
        self.events.write(kind="group", key=key, ranks=ranks, description=description, place=place)

    def stream(self) -> int:
        """Return the number of the stream on which work is issued."""
        return 0

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
            stream=self.stream(),
            module=text(self.module()),
            place=text(self.places.current()),
            operator=text(operator),
        )
        if call.is_uneven:
            self.note("all-gathers or reduce-scatters of unequal parts are recorded as all-to-alls")

    def wait(self, operations: list[int]) -> None:
        """Record that the current stream waits for communication operations."""
        if operations and not self.is_suspended:
            self.events.write(
                kind="wait",
                operations=operations,
                stream=self.stream(),
                module=self.events.text_number(self.module()),
            )

    def bind_work(self, work: Any, first_operation: int) -> None:
        """Remember which operations a `Work` represents: those from `first_operation` until now."""
        if work is not None:
            self._by_work[work] = list(range(first_operation, self._operation_count))

    def wait_work(self, work: Any) -> None:
        """Record the wait for a `Work`."""
        self.wait(self._by_work.get(work, []))

    def compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: object) -> None:
        """Record an operator of the device with its FLOPs, bytes and storages."""
        if any(tensor.device.type not in ("cpu", "meta") for tensor in tensors_in(out)):
            raise Refusal(
                "the script puts tensors on a GPU, and is recorded on the CPU",
                "take the device from torch.cuda.is_available() or an argument; then record it with the CPU as device",
            )
        if moves_nothing(func):
            return
        reads, written = accesses(func, args, kwargs, out)
        flops = costs.flops_of(func, args, kwargs, out)
        if flops is None:
            self._missing[str(func)] += 1
        text = self.events.text_number
        self.events.write(
            kind="compute",
            operator=text(costs.signature(func, args, kwargs)),
            flops=flops or 0,
            bytes=costs.bytes_of(func, reads, written),
            dtype=costs.type_of((args, kwargs)),
            reads=self.storages.numbers(reads),
            writes=self.storages.numbers(written),
            stream=self.stream(),
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
        return self._answer(tensor)

    def _answer(self, tensor: torch.Tensor) -> Any:
        place = self.places.current()
        constant = getattr(tensor, "constant", None)
        if constant is not None:
            with unset_fake_temporarily():
                return constant.item()
        if place in self._items:
            value = self._items[place]
            self._answers[place, f"{value:g}, declared with --item"] += 1
            return int(value) if not tensor.dtype.is_floating_point else value
        if self.hooks is not None and hasattr(self.hooks, "item"):
            value = self.hooks.item(place, tensor)
            if value is not None:
                self._answers[place, f"{value}, from the hook"] += 1
                return value
        if tensor.dtype.is_floating_point:
            self._answers[place, "1.0"] += 1
            return 1.0
        if tensor.dtype == torch.bool:
            self._answers[place, "True"] += 1
            return True
        raise Refusal(
            "the script reads an integer of a tensor on the host, and its value is not declared",
            f"declare the expert counts with --tokens, the value with --item {place}=VALUE, or answer it in --hook FILE",
        )

    def finish(self) -> None:
        """Write what the report lists: answered values, operators without a formula, remarks."""
        for (place, value), count in self._answers.items():
            self.events.write(kind="answer", place=place, value=value, count=count)
        for name, count in self._missing.items():
            self.events.write(kind="missing", operator=name, count=count)
        for text, count in self._notes.items():
            self.events.write(kind="note", text=text, count=count)
        self.events.write(kind="end")
        self.events.flush()


class RecordingMode(TorchDispatchMode):
    """Sees every operator below autograd, executes it, and records it."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Execute one operator and record it."""
        if any(
            is_traceable_wrapper_subclass_type(kind) for kind in types if not issubclass(kind, FakeTensor)
        ):
            return NotImplemented
        kwargs = kwargs or {}
        record = self.record
        name = func._schema.name
        tensors = tensors_in((args, kwargs))
        if tensors and not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            if name == "aten::_local_scalar_dense":
                with unset_fake_temporarily():
                    return func(*args, **kwargs)
            return func(*args, **kwargs)
        if name == "aten::_local_scalar_dense":
            return record.host_read(args[0])
        if record.hooks is not None and hasattr(record.hooks, "operation"):
            out = record.hooks.operation(func, args, kwargs)
            if out is not NotImplemented:
                record.note(f"{func} is answered by the hook")
                return out
        out = record.tokens.answer(func, args, kwargs)
        if out is NotImplemented:
            if name in _SHAPED_BY_DATA or (name == "aten::index" and _has_mask(args)):
                self._refuse_shape(func)
            if name == "aten::_pin_memory":
                return args[0]
            out = func(*args, **kwargs)
            record.tokens.propagate(func, args, out)
        if record.is_suspended or not (
            tensors or any(isinstance(tensor, FakeTensor) for tensor in tensors_in(out))
        ):
            return out
        if is_communication(func):
            record.communication(func, args, kwargs, out)
        else:
            record.compute(func, args, kwargs, out)
        return out

    @staticmethod
    def _refuse_shape(func: Any) -> None:
        raise Refusal(
            f"the shape of the result of {func} depends on data",
            "declare expert counts with --tokens (torch.histc, torch.bincount with minlength), use an operator with a fixed "
            "shape (torch.where, topk), or answer it in --hook FILE",
        )


def _has_mask(args: tuple[Any, ...]) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])

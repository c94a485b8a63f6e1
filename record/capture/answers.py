"""Values that a script reads on the host although no data was computed: what is known, what was declared, what is assumed.

Known are results of other ranks' declared counts, and that numbers are finite: a script asks whether a loss is NaN.
Floats and integers are assumed to be 1. Neither may become a shape: an assumed float must not become an integer, and an assumed
integer may only become a float, text or a tensor.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from .events import Refusal, ScriptPlaces
from .seeds import LEAST_RANGE, seed_of
from .storages import tensors_in

_FINITE = "_etloop_truth"
_MOST_TRUE_READS = 10_000
_PASSED_ON = frozenset(
    "any all max min amax amin view reshape _unsafe_view flatten squeeze unsqueeze expand detach clone _to_copy copy_ alias slice"
    " select cat stack bitwise_or logical_or bitwise_and logical_and mul add sum".split()
)
"""Operators whose result is true if all their inputs are, and false if all their inputs are."""
_NEGATED = frozenset(("logical_not", "bitwise_not"))


class AssumedFloat(float):
    """A float that represents data: what is computed from it does, too, and none of it may become an integer."""

    place: str

    def __new__(cls, value: float, place: str) -> Self:
        """`place` is the script line that read the value."""
        made = super().__new__(cls, value)
        made.place = place
        return made

    def _keep(self, value: Any) -> Any:
        return AssumedFloat(value, self.place) if isinstance(value, float) else value

    def _refuse(self, *_: object) -> Any:
        raise Refusal(
            f"an integer is made of the value that {self.place} reads on the host, which has no data",
            f"declare the value: --item {self.place}=VALUE, or answer it in --hook FILE",
        )

    def __round__(self, digits: Any = None) -> Any:
        """Round to digits; to an integer only with a declared value."""
        return self._refuse() if digits is None else self._keep(float.__round__(self, digits))

    __int__ = __trunc__ = __floor__ = __ceil__ = _refuse

    def __reduce__(self) -> Any:
        """Pickle as a float."""
        return float, (float.__add__(self, 0.0),)


class AssumedInteger:
    """An integer that represents data: it may become a float, text or a tensor, such as a share of right predictions."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __float__(self) -> float:
        """Return it as an assumed float."""
        return AssumedFloat(1.0, self.place)

    def __truediv__(self, other: Any) -> Any:
        """Divide it, which gives an assumed float."""
        return self.__float__() / float(other)

    def __format__(self, form: str) -> str:
        """Return the text of the integer 1."""
        return format(1, form)

    def __repr__(self) -> str:
        return "1"

    def __reduce__(self) -> Any:
        """Pickle as the integer 1."""
        return int, (1,)

    def _sum(self, other: Any) -> Any:
        if isinstance(other, float):
            return self.__float__() + other
        return self if isinstance(other, (int, AssumedInteger)) else NotImplemented

    def _product(self, other: Any) -> Any:
        if isinstance(other, float):
            return self.__float__() * other
        return self if isinstance(other, (int, AssumedInteger)) else NotImplemented

    def _refuse(self, *_: object) -> Any:
        raise Refusal(
            f"the script uses the integer of a tensor that {self.place} reads on the host, and its value is not declared",
            f"declare the expert counts with --tokens, the value with --item {self.place}=VALUE, or answer it in --hook FILE",
        )

    __add__ = __radd__ = _sum
    __mul__ = __rmul__ = _product
    __int__ = __index__ = __bool__ = __hash__ = __trunc__ = __floor__ = __ceil__ = __round__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __sub__ = __rsub__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __rtruediv__ = __pow__ = (
        __neg__
    ) = _refuse


def _without_assumed(data: Any) -> tuple[Any, bool]:
    """Return the numbers for a tensor, with 1 for each assumed integer, and whether any number was assumed."""
    if isinstance(data, AssumedInteger):
        return 1, True
    if isinstance(data, (list, tuple)):
        parts = [_without_assumed(part) for part in data]
        return [part for part, _ in parts], any(assumed for _, assumed in parts)
    return data, isinstance(data, (AssumedFloat, AssumedSeed))


def _forget_assumed(make: Any) -> Any:
    """Wrap a function that makes tensors from Python numbers, so that a tensor of assumed numbers has no known value."""

    @functools.wraps(make)
    def make_tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
        numbers, assumed = _without_assumed(data)
        if not assumed:
            return make(data, *args, **kwargs)
        made = make(numbers, *args, **kwargs)
        made.constant = None
        return made

    return make_tensor


def _carry(number: type, name: str) -> Any:
    original = getattr(number, name)

    def compute(self: Any, *operands: Any) -> Any:
        value = original(self, *operands)
        return value if value is NotImplemented else self._keep(value)

    return compute


for _name in (
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__"
    " __pow__ __rpow__ __neg__ __pos__ __abs__"
).split():
    setattr(AssumedFloat, _name, _carry(float, _name))


class AssumedSeed(int):
    """A random seed: what is computed from it is one too, and none may become small enough for a shape."""

    place: str

    def __new__(cls, value: int, place: str) -> Self:
        """`place` is the script line that read the value."""
        made = super().__new__(cls, value)
        made.place = place
        return made

    def _keep(self, value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        if abs(value) < LEAST_RANGE:
            raise Refusal(
                f"a small integer is made of the random seed that {self.place} reads on the host, and could become a shape",
                f"declare the value: --item {self.place}=VALUE, or answer it in --hook FILE",
            )
        return AssumedSeed(value, self.place)

    def __mod__(self, divisor: Any) -> Any:
        """Return the largest remainder: what a script computes from a seed is as large as the range that it may lie in."""
        if not isinstance(divisor, int) or divisor < 1:
            return int.__mod__(self, divisor)
        return self._keep(min(int.__index__(self), divisor - 1))

    def __and__(self, mask: Any) -> Any:
        """Return the largest number of the bits."""
        if not isinstance(mask, int) or mask < 0:
            return int.__and__(self, mask)
        return self._keep(min(int.__index__(self), mask))

    __rand__ = __and__

    def __reduce__(self) -> Any:
        """Pickle as an integer."""
        return int, (int.__index__(self),)


for _name in (
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __floordiv__ __rfloordiv__ __rmod__"
    " __or__ __ror__ __xor__ __rxor__ __lshift__ __rshift__ __neg__ __pos__ __abs__ __invert__"
).split():
    setattr(AssumedSeed, _name, _carry(int, _name))


class Answers:
    """The values that one rank's script read."""

    def __init__(self, places: ScriptPlaces, items: dict[str, float]) -> None:
        """`items` are declared values by the script line that reads them."""
        self.hooks: Any = None
        self._places, self._items = places, items
        self._counts: Counter[tuple[str, str]] = Counter()
        self._assumed: AssumedInteger | AssumedFloat | AssumedSeed | None = None
        """The latest value, if it is assumed or a random seed."""
        self._is_item = False
        """Whether `Tensor.item` runs, whose result remembers that it is assumed."""
        self._true_reads = ("", 0)
        """Script line of the latest truth value that was assumed, and how often in a row."""

    def install(self) -> None:
        """Replace how tensors become Python numbers, and are made of them: an assumed number stays known as one."""
        original = torch.Tensor.item

        def item(tensor: torch.Tensor) -> Any:
            self._assumed, self._is_item = None, True
            try:
                value = original(tensor)
            finally:
                self._is_item = False
            return value if self._assumed is None else self._assumed

        torch.Tensor.item = item
        torch.tensor, torch.as_tensor = _forget_assumed(torch.tensor), _forget_assumed(torch.as_tensor)
        torch.Tensor.__int__ = lambda tensor: int(tensor.item())

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        """Yield script line, value and number of reads of all values without data."""
        for (place, value), count in self._counts.items():
            yield place, value, count

    def value_of(self, tensor: torch.Tensor) -> Any:
        """Return what a read of one element gets."""
        place = self._places.current()
        self._assumed = None
        constant = getattr(tensor, "constant", None)
        if constant is not None:
            with unset_fake_temporarily():
                return constant.item()
        if place in self._items:
            value: Any = self._items[place]
            self._counts[place, f"{value:g}, declared with --item"] += 1
            return value if tensor.dtype.is_floating_point else int(value)
        if self.hooks is not None and hasattr(self.hooks, "item"):
            value = self.hooks.item(place, tensor)
            if value is not None:
                self._counts[place, f"{value}, from the hook"] += 1
                return value
        truth = getattr(tensor, _FINITE, None)
        if truth is not None and tensor.dtype == torch.bool:
            self._counts[place, f"{truth}: numbers are finite"] += 1
            return truth
        if tensor.dtype.is_floating_point:
            self._counts[place, "1.0"] += 1
            self._assumed = AssumedFloat(1.0, place)
            return 1.0
        if tensor.dtype == torch.bool:
            self._counts[place, "True"] += 1
            self._refuse_endless_loop(place)
            return True
        seed = seed_of(tensor)
        if seed is not None:
            self._counts[place, f"{seed}, a random seed"] += 1
            self._assumed = AssumedSeed(seed, place)
            return seed
        if self._is_item:
            self._counts[place, "1, from which only floats, text and tensors are made"] += 1
            self._assumed = AssumedInteger(place)
            return 1
        raise Refusal(
            "the script reads an integer of a tensor on the host, and its value is not declared",
            f"declare the expert counts with --tokens, the value with --item {place}=VALUE, or answer it in --hook FILE",
        )

    def _refuse_endless_loop(self, place: str) -> None:
        """Refuse a script that reads truth values at one line again and again: it waits for False."""
        previous, count = self._true_reads
        self._true_reads = place, count + 1 if place == previous else 1
        if self._true_reads[1] > _MOST_TRUE_READS:
            raise Refusal(
                f"the script reads a truth value that is data {_MOST_TRUE_READS} times in a row, and each is assumed True",
                f"declare the value with --item {place}=0 if it ends a loop, or answer it in --hook FILE",
            )


def note_finite(func: Any, args: tuple[Any, ...], out: Any) -> None:
    """Note on the result of a comparison whether it is true for finite numbers, and pass the note on."""
    if not isinstance(out, FakeTensor) or out.dtype != torch.bool:
        return
    name = func._schema.name.removeprefix("aten::")
    truth: bool | None = None
    if name in ("isnan", "isinf", "isposinf", "isneginf"):
        truth = False
    elif name == "isfinite":
        truth = True
    elif name in ("eq", "ne") and _asks_whether_finite(args):
        truth = (name == "ne") == _is_infinite(args[1])
    elif name in _PASSED_ON or name in _NEGATED:
        truths = {getattr(tensor, _FINITE, None) for tensor in tensors_in(args)}
        only = truths.pop() if len(truths) == 1 else None
        truth = None if only is None else only ^ (name in _NEGATED)
    if truth is not None:
        setattr(out, _FINITE, truth)


def _asks_whether_finite(args: tuple[Any, ...]) -> bool:
    return len(args) > 1 and (args[0] is args[1] or _is_infinite(args[1]))


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)

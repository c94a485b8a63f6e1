"""Give the counts of tokens per expert the values that the user declared.

Counts are data, so a recording without data cannot know them. A histogram (torch.histc, torch.bincount with minlength) gets
the declared distribution as its constant value; fake tensors propagate it, and the all-to-all of the counts exchanges it: all
ranks draw from one seed, so that sends match receives.
"""

from __future__ import annotations

import random
from typing import Any, Final

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed import ProcessGroup, get_process_group_ranks

from .events import Refusal

_CONSTANT_ELEMENTS: Final = 1 << 16
_MOST_DRAWS_KEPT: Final = 64


class TokenCounts:
    """The declared distribution: none, balanced, or drawn with a skew from a seed."""

    def __init__(self, rank: int, skew: float | None, seed: int) -> None:
        """Skew None declares nothing; 0 is balanced; above 0 expert popularity falls as (place + 1) ** -skew."""
        self._rank, self._skew, self._seed = rank, skew, seed
        self._draw_count = 0
        self._draws: list[tuple[int, int, int, tuple[int, ...]]] = []
        if skew is not None:
            fake_tensor.CONSTANT_NUMEL_LIMIT = _CONSTANT_ELEMENTS

    @property
    def used_count(self) -> int:
        """Return the number of histograms that got declared values."""
        return self._draw_count

    def answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a histogram that PyTorch computes from data; else `NotImplemented`."""
        if (
            self._skew is None
            or func is not torch.ops.aten.bincount.default
            or not isinstance(args[0], FakeTensor)
        ):
            return NotImplemented
        bins = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
        if not bins:
            raise Refusal(
                "torch.bincount without minlength has no fixed shape", "state minlength=NUMBER_OF_EXPERTS"
            )
        out = torch.ops.aten.new_empty.default(args[0], (bins,), dtype=torch.int64)
        self._declare(out, args[0].numel())
        return out

    def propagate(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        """Set the constant of a histogram, and of the result of an all-to-all of counts."""
        if self._skew is None:
            return
        if func is torch.ops.aten.histc.default and isinstance(out, FakeTensor):
            self._declare(out, args[0].numel())
        elif func._schema.name == "c10d::alltoall_base_":
            self._exchange(args[1], args[0], get_process_group_ranks(ProcessGroup.unbox(args[2])))
        elif func._schema.name == "_c10d_functional::all_to_all_single" and isinstance(out, FakeTensor):
            group = torch.distributed.distributed_c10d._resolve_process_group(args[3])
            self._exchange(args[0], out, get_process_group_ranks(group))
        elif (
            func._schema.name == "_c10d_functional::wait_tensor"
            and getattr(args[0], "constant", None) is not None
        ):
            out.constant = args[0].constant
        self._keep_device(func, args, out)

    def _declare(self, out: FakeTensor, tokens: int) -> None:
        counts = self.counts(self._draw_count, self._rank, tokens, out.numel())
        self._draws.append((self._draw_count, tokens, out.numel(), counts))
        del self._draws[:-_MOST_DRAWS_KEPT]
        self._draw_count += 1
        with unset_fake_temporarily():
            out.constant = torch.tensor(counts, dtype=out.dtype).reshape(out.shape)

    def counts(self, draw: int, rank: int, tokens: int, experts: int) -> tuple[int, ...]:
        """Return the tokens that a rank routes to each expert in its `draw`-th histogram; they add up to `tokens`."""
        assert self._skew is not None
        shared = random.Random(f"{self._seed}/{draw}")  # noqa: S311 - the same on every rank
        places = list(range(experts))
        shared.shuffle(places)
        own = random.Random(f"{self._seed}/{draw}/{rank}")  # noqa: S311
        weights = [
            (place + 1) ** -self._skew * (own.uniform(0.5, 1.5) if self._skew else 1.0) for place in places
        ]
        exact = [tokens * weight / sum(weights) for weight in weights]
        shares = [int(share) for share in exact]
        by_fraction = sorted(range(experts), key=lambda index: (shares[index] - exact[index], index))
        for index in by_fraction[: tokens - sum(shares)]:
            shares[index] += 1
        return tuple(shares)

    def _exchange(self, source: Any, output: Any, members: list[int]) -> None:
        """Give the output of an all-to-all of counts what the other members send."""
        constant = getattr(source, "constant", None)
        if constant is None:
            return
        with unset_fake_temporarily():
            own = tuple(int(value) for value in constant.flatten().tolist())
        draw = next((draw for draw in reversed(self._draws) if draw[3] == own), None)
        if draw is None or len(own) % len(members):
            raise Refusal(
                "an all-to-all exchanges counts that are not a declared histogram",
                "exchange the histogram itself, or answer the operation in --hook FILE",
            )
        index, tokens, experts, _ = draw
        part = experts // len(members)
        first = members.index(self._rank) * part
        received = [
            count
            for member in members
            for count in self.counts(index, member, tokens, experts)[first : first + part]
        ]
        with unset_fake_temporarily():
            output.constant = torch.tensor(received, dtype=output.dtype).reshape(output.shape)

    @staticmethod
    def _keep_device(func: Any, args: tuple[Any, ...], out: Any) -> None:
        """Keep a propagated constant on the device of its source: PyTorch returns it on the CPU."""
        if func._schema.name in ("aten::_to_copy", "aten::copy_") or not isinstance(out, FakeTensor):
            return
        if out.constant is not None and out.fake_device.type == "cpu":
            for value in args:
                if isinstance(value, FakeTensor) and value.fake_device.type != "cpu":
                    out.fake_device = value.fake_device
                    return

"""How long an instance computes: a roofline over FLOPs and bytes, or the user's table. Pure; no GPU is asked.

Prefill of n tokens after c cached ones: 2 * P_active * n + 4 * L * A * (n * c + n^2 / 2) FLOPs, with A = hidden size.
A decode step: the longer of reading weights and KV cache, and computing 2 * P_active FLOPs for each token.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import list_setting, setting
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_flops,
    parse_rate_bps,
    parse_share_per_million,
)
from etloop.contract.base.value_form import RATE, FormedParser, pattern_form, with_form, with_limits
from etloop.contract.base.value_parsers import with_bounds
from etloop.workload.serving.model_file import Model

_LONGEST_NS: Final = 3600 * NS_PER_S


@with_form(with_limits(RATE, "8bps to 1000000Tbps"))
def _bytes_per_second(text: str) -> int:
    return with_bounds(parse_rate_bps, 8, 10**18, format_rate)(text) // 8


def _point(text: str) -> tuple[int, int]:
    """Parse a count and a time, such as "512 42ms"."""
    count, _, duration = text.strip().partition(" ")
    if not (count.isascii() and count.isdigit()) or len(count) > 9 or not duration.strip():
        raise QuantityError(f'"{text[:64]}" is not a count and a time', 'write both, such as "512 42ms"')
    return int(count), with_bounds(parse_duration_ns, 0, _LONGEST_NS, format_duration)(duration.strip())


_point_of_table: Final = FormedParser(_point, pattern_form("COUNT TIME", r"[0-9]{1,9} .+"))


@dataclass(frozen=True, slots=True)
class ComputeModel:
    """`compute:` of a serving workload: the modelled times of one GPU, or tables of whole instances."""

    flops: int = setting(
        "flops", with_bounds(parse_flops, 1, 10**18, lambda flops: f"{flops}FLOPS"), 989 * 10**12
    )
    """Peak rate of a GPU; the default is an H100's with BF16, dense."""
    memory_bytes_per_s: int = setting("memory_bandwidth", _bytes_per_second, 3_350 * 10**9)
    """Memory bandwidth of a GPU; the default is an H100's."""
    flops_use_per_million: int = setting("flops_use", parse_share_per_million, 500_000)
    """Share of the peak rate that a prefill reaches."""
    bandwidth_use_per_million: int = setting("bandwidth_use", parse_share_per_million, 600_000)
    """Share of the memory bandwidth that a decode step reaches."""
    overhead_ns: int = setting("overhead", with_bounds(parse_duration_ns, 0, NS_PER_S, format_duration), 0)
    """Time that each prefill and each decode step takes in addition."""
    prefill_table: tuple[tuple[int, int], ...] = list_setting("prefill", _point_of_table)
    """In place of the roofline: computed tokens of a prompt and its time, by rising tokens; times between are on a line."""
    decode_table: tuple[tuple[int, int], ...] = list_setting("decode", _point_of_table)
    """In place of the roofline: sequences of a step and its time, by rising number."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield a problem for each rule between keys that is broken."""
        for key, table in (("prefill", self.prefill_table), ("decode", self.decode_table)):
            counts = [count for count, _ in table]
            if counts != sorted(set(counts)):
                yield Problem(key, "the counts do not rise", "sort the list, each count once")
        for key, use in (
            ("flops_use", self.flops_use_per_million),
            ("bandwidth_use", self.bandwidth_use_per_million),
        ):
            if not use:
                yield Problem(key, "is 0", "write a share above 0%")

    @property
    def has_tables(self) -> bool:
        """Return whether both times come from tables, so that the model needs no number of weights."""
        return bool(self.prefill_table and self.decode_table)

    def prefill_ns(self, model: Model, gpus: int, new_tokens: int, cached_tokens: int) -> int:
        """Return the time of the prefill of `new_tokens` after `cached_tokens` on so many GPUs."""
        if self.prefill_table:
            return interpolate(self.prefill_table, new_tokens)
        attention = 2 * model.layers * model.hidden * new_tokens * (2 * cached_tokens + new_tokens)
        flops = 2 * model.used_parameters * new_tokens + attention
        rate = gpus * self.flops * self.flops_use_per_million
        return flops * 10**6 * NS_PER_S // rate + self.overhead_ns

    def decode_ns(self, model: Model, gpus: int, sequences: int, context_tokens: int) -> int:
        """Return the time of a step of `sequences` with `context_tokens` in all on so many GPUs."""
        if self.decode_table:
            return interpolate(self.decode_table, sequences)
        read_bytes = _touched_weights(model, sequences) + context_tokens * model.kv_bytes_per_token
        bandwidth = gpus * self.memory_bytes_per_s * self.bandwidth_use_per_million
        rate = gpus * self.flops * self.flops_use_per_million
        flops = 2 * model.used_parameters * sequences
        longest = max(read_bytes * 10**6 * NS_PER_S // bandwidth, flops * 10**6 * NS_PER_S // rate)
        return longest + self.overhead_ns


def interpolate(table: tuple[tuple[int, int], ...], count: int) -> int:
    """Return the time of a count on the line through its neighbours; the first and last time hold outside the table."""
    place = bisect_left(table, (count, 0))
    if place == 0:
        return table[0][1]
    if place == len(table):
        return table[-1][1]
    (low, low_ns), (high, high_ns) = table[place - 1], table[place]
    return low_ns + (high_ns - low_ns) * (count - low) // (high - low)


def _touched_weights(model: Model, sequences: int) -> int:
    """Return the bytes of the weights that a step reads: with experts, more of them the more tokens there are."""
    active, experts = model.used_parameters, model.experts
    if experts is None or sequences <= 1:
        return active * model.weight_element_bytes
    missed = (1 - experts.chosen / experts.count) ** (sequences - 1)
    touched = active + (model.parameters - active) * (1 - missed)
    return int(touched) * model.weight_element_bytes

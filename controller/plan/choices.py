"""What a plan shows of its choices: ranges of byte counts that are carried out alike, with the reason and the numbers.

Decides which ops share a row and which notes name what was left out. What is chosen is decided by
`traffic.collectives.choice`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from etloop.contract.base.units import approximate_bytes, approximate_duration
from etloop.contract.model.run import PlannedChoice
from etloop.controller.plan.demand import Demand
from etloop.controller.plan.schedule_set import ChosenOp
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.choice import Settings, Shaping
from etloop.traffic.collectives.nccl.constants import NCCL_VERSION
from etloop.traffic.collectives.nccl.excluded import NVLS_TREE

_NAMES: Final = {"point-to-point": "send_recv", "uneven all-to-all": "all_to_all, uneven"}
"""Where the scenario's name is not that of the schedule with other dashes."""


def shaping_words(settings: Settings) -> str:
    """Whose traffic it is, with the modelled version of NCCL: its buffers and defaults change between versions."""
    return f"nccl {NCCL_VERSION}" if settings.shaping is Shaping.NCCL else settings.shaping.value


def planned_choices(demand: Demand) -> tuple[PlannedChoice, ...]:
    """Choices by collective, group and bytes; neighbouring byte counts with one choice are one row."""
    steps = StepTables(demand.tables)
    # Sizes that scaling made equal may be carried out differently.
    ordered = sorted(
        demand.chosen,
        key=lambda op: (op.collective, op.ranks, op.ranks_per_host, op.op_bytes, op.trace_bytes),
    )
    return tuple(
        _planned_choice(list(ops), steps)
        for _, ops in groupby(
            ordered,
            key=lambda op: (
                op.collective,
                op.ranks,
                op.ranks_per_host,
                op.choice.algorithm,
                op.choice.protocol,
                op.choice.channels,
                op.choice.reason,
            ),
        )
    )


def _planned_choice(ops: list[ChosenOp], steps: StepTables) -> PlannedChoice:
    first, last = ops[0], ops[-1]
    choice = last.choice
    _, _, _, messages, _, _ = steps.schedule_sends(last.schedule, last.op_bytes)
    return PlannedChoice(
        collective=_NAMES.get(last.collective, last.collective.replace("-", "_")),
        ranks=last.ranks,
        ranks_per_host=last.ranks_per_host,
        least_bytes=first.op_bytes,
        most_bytes=last.op_bytes,
        algorithm=choice.algorithm,
        protocol=choice.protocol.name.lower(),
        channels=choice.channels,
        messages=int(messages.sum()),
        reason=choice.reason,
        alternatives={
            f"{one.algorithm} {one.protocol.name.lower()}": one.time_ns for one in choice.alternatives
        },
    )


def excluded_notes(chosen: Iterable[ChosenOp]) -> tuple[str, ...]:
    """Return the notes on what NCCL could choose for the ops between hosts and has no schedule here."""
    between = [op for op in chosen if op.choice.excluded and op.ranks > op.ranks_per_host]
    if not between:
        return ()
    served: dict[tuple[str, str], list[str]] = {}
    for op in between:
        for each in op.choice.excluded:
            if each.name != NVLS_TREE:
                served.setdefault((each.name, each.needs), []).append(op.collective.replace("-", "_"))
    by_needs: dict[str, list[str]] = {}
    for (name, needs), collectives in served.items():
        by_needs.setdefault(needs, []).append(f"{name} ({', '.join(dict.fromkeys(collectives))})")
    others = "; ".join(f"{', '.join(names)} with {needs}" for needs, names in by_needs.items())
    later = "NCCL 2.31 and later choose otherwise for some sizes"
    rest = f"nccl {NCCL_VERSION}: not compared, without a schedule here: {others}; {later}"
    return *_tree_notes(between), *((rest,) if others else ())


def _tree_notes(between: list[ChosenOp]) -> Iterable[str]:
    groups: dict[tuple[str, int, int], list[tuple[ChosenOp, int]]] = {}
    for op in between:
        for each in op.choice.excluded:
            if each.name == NVLS_TREE:
                key = (op.collective.replace("-", "_"), op.ranks, op.ranks_per_host)
                groups.setdefault(key, []).append((op, each.time_ns))
    for (collective, ranks, per_host), ops in groups.items():
        less = [(op, time_ns) for op, time_ns in ops if time_ns < _own_ns(op)]
        words = "by NCCL's formula for none of the sizes here"
        if less:
            (least, _), (most, time_ns) = (
                pick(less, key=lambda pair: pair[0].trace_bytes) for pick in (min, max)
            )
            sizes = " to ".join(dict.fromkeys(approximate_bytes(op.trace_bytes) for op in (least, most)))
            times = f"{approximate_duration(time_ns)} where {most.choice.algorithm} takes {approximate_duration(_own_ns(most))}"
            words = f"by NCCL's formula for {len(less)} of {len(ops)} sizes, {sizes}: {times}"
        yield (
            f"nccl {NCCL_VERSION}: {collective} of {ranks} ranks, {per_host} a host: NCCL may take NVLSTree on hosts with "
            f"NVSwitch, {words}; it has no schedule here, and algorithm: tree is nearest to its traffic between hosts"
        )


def _own_ns(op: ChosenOp) -> int:
    return min(
        (
            each.time_ns
            for each in op.choice.alternatives
            if each.protocol is op.choice.protocol and str(each.algorithm) == op.choice.algorithm
        ),
        default=0,
    )

"""The choices of algorithm that a plan shows: ranges of op sizes with the same choice, with its reason and message count.

Decides which ops share a row, and writes the notes on algorithms that were left out. The choices themselves are made by
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
from etloop.traffic.collectives.nccl.excluded import NVLS_TREE

_NAMES: Final = {"point-to-point": "send_recv", "uneven all-to-all": "all_to_all, uneven"}
"""Names in scenarios of the schedules for which replacing "-" by "_" does not give it."""


def shaping_words(settings: Settings) -> str:
    """Return the library whose traffic is modelled; for NCCL with its version, as buffers and defaults differ between
    versions."""
    return f"nccl {settings.nccl.release}" if settings.shaping is Shaping.NCCL else settings.shaping.value


def planned_choices(demand: Demand) -> tuple[PlannedChoice, ...]:
    """Return the choices by collective, group and size; consecutive sizes with the same choice are one row."""
    steps = StepTables(demand.tables)
    # Ops that have the same size only after scaling may have different choices: sort by trace bytes, too.
    sorted_ops = sorted(
        demand.chosen,
        key=lambda op: (op.collective, op.ranks, op.ranks_per_host, op.op_bytes, op.trace_bytes),
    )
    return tuple(
        _planned_choice(list(ops), steps)
        for _, ops in groupby(
            sorted_ops,
            key=lambda op: (
                op.collective,
                op.ranks,
                op.ranks_per_host,
                op.choice.algorithm,
                op.choice.protocol,
                op.choice.completion,
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
        completion=choice.completion,
        channels=choice.channels,
        messages=int(messages.sum()),
        reason=choice.reason,
        alternatives={
            f"{alternative.algorithm} {alternative.protocol.name.lower()}": alternative.time_ns
            for alternative in choice.alternatives
        },
    )


def excluded_notes(chosen: Iterable[ChosenOp]) -> tuple[str, ...]:
    """Return notes on the algorithms that NCCL could choose for ops between hosts and that were not compared."""
    inter_host_ops = [op for op in chosen if op.choice.excluded and op.ranks > op.ranks_per_host]
    if not inter_host_ops:
        return ()
    collectives_by_algorithm: dict[tuple[str, str], list[str]] = {}
    for op in inter_host_ops:
        for excluded in op.choice.excluded:
            if excluded.name != NVLS_TREE:
                collectives_by_algorithm.setdefault((excluded.name, excluded.needs), []).append(
                    op.collective.replace("-", "_")
                )
    algorithms_by_needs: dict[str, list[str]] = {}
    for (name, needs), collectives in collectives_by_algorithm.items():
        algorithms_by_needs.setdefault(needs, []).append(f"{name} ({', '.join(dict.fromkeys(collectives))})")
    unavailable_algorithms = "; ".join(
        f"{', '.join(names)} with {needs}" for needs, names in algorithms_by_needs.items()
    )
    note = f"nccl: not compared: {unavailable_algorithms}"
    return *_tree_notes(inter_host_ops), *((note,) if unavailable_algorithms else ())


def _tree_notes(between: list[ChosenOp]) -> Iterable[str]:
    groups: dict[tuple[str, int, int], list[tuple[ChosenOp, int]]] = {}
    for op in between:
        for excluded in op.choice.excluded:
            if excluded.name == NVLS_TREE:
                key = (op.collective.replace("-", "_"), op.ranks, op.ranks_per_host)
                groups.setdefault(key, []).append((op, excluded.time_ns))
    for (collective, ranks, per_host), timed_ops in groups.items():
        faster_ops = [(op, time_ns) for op, time_ns in timed_ops if time_ns < _used_ns(op)]
        comparison = "faster by NCCL's formula for none of these sizes"
        if faster_ops:
            (least, _), (most, time_ns) = (
                pick(faster_ops, key=lambda pair: pair[0].trace_bytes) for pick in (min, max)
            )
            sizes = " to ".join(dict.fromkeys(approximate_bytes(op.trace_bytes) for op in (least, most)))
            times = f"{approximate_duration(time_ns)} where {most.choice.algorithm} takes {approximate_duration(_used_ns(most))}"
            comparison = (
                f"by NCCL's formula for {len(faster_ops)} of {len(timed_ops)} sizes, {sizes}: {times}"
            )
        yield (
            f"nccl: {collective} of {ranks} ranks, {per_host} a host: NCCL may take NVLSTree on hosts with "
            f"NVSwitch, {comparison}; ETLoop has no schedule for it; algorithm: tree has the most similar traffic between hosts"
        )


def _used_ns(op: ChosenOp) -> int:
    """Return the estimated time of the chosen algorithm and protocol; 0 if there is no estimate."""
    return min(
        (
            alternative.time_ns
            for alternative in op.choice.alternatives
            if alternative.protocol is op.choice.protocol
            and str(alternative.algorithm) == op.choice.algorithm
        ),
        default=0,
    )

"""What a plan tells of its choices: ranges of byte counts that are carried out alike, with the reason and the numbers.

Decides which ops are told together. What is chosen is decided by `traffic.collectives.choice`.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from etloop.contract.model.run import PlannedChoice
from etloop.controller.plan.demand import Demand
from etloop.controller.plan.schedule_set import ChosenOp
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.choice import Settings, Shaping
from etloop.traffic.collectives.nccl.constants import NCCL_VERSION

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

"""Real trace sets in small: the shape and the proportions of the whole, and no note where rounding is no matter."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from etloop.controller.plan.plan import Plan, make_plan
from etloop.controller.plan.report import report_plan
from etloop.workload.job import build_job
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, job_of, rig_of, scenario_of
from tests.support.traces.shared_traces import known_set

if TYPE_CHECKING:
    from etloop.workload.trace.program import Job

SCALES = ("1/16", "1/64", "1/256", "1/1024")
SMALL = ("gpt_8", "llama_fsdp_8", "moe_small_8", "reduce_scatter_8", "all_gather_16")
WORLD = (0, 1, 2, 3)


def planned(job: Job, scale: str, *, scenario: str = "collectives: {shaping: nccl}\n") -> Plan:
    text = f"{scenario}scale: {{bytes: {scale}}}\n"
    return make_plan(scenario_of(text), rig_of(dict.fromkeys("abcd", 1)), job)


def shape_of(plan: Plan) -> set[tuple[str, int, str, str, int]]:
    return {
        (one.collective, one.ranks, one.algorithm, one.protocol, one.channels) for one in plan.tables.choices
    }


@pytest.mark.parametrize("name", SMALL)
def test_a_scaled_job_has_the_shape_and_the_proportions_of_the_whole_one(name: str) -> None:
    trace = known_set(name).read()
    whole = planned(build_job(trace, WorkloadSettings()), "1")
    figures = report_plan(whole)
    share = figures.fabric_bytes / figures.payload_bytes
    for scale in SCALES:
        plan = planned(build_job(trace, WorkloadSettings(bytes_scale=Fraction(scale))), scale)
        small = report_plan(plan)
        assert shape_of(plan) == shape_of(whole), scale
        assert small.payload_bytes / (figures.payload_bytes * Fraction(scale)) == pytest.approx(1, rel=2e-3)
        assert small.fabric_bytes / small.payload_bytes == pytest.approx(share, rel=2e-3), scale


def scaled(job: Job, factor: int) -> Job:
    """The job with every size divided, as a scaled trace makes it."""
    programs = tuple(replace(one, message_bytes=one.message_bytes // factor) for one in job.programs)
    ranks = tuple(replace(rank, trace_bytes=job.programs[rank.program].message_bytes) for rank in job.ranks)
    return replace(job, programs=programs, ranks=ranks)


def test_ops_that_scaling_made_equal_are_chosen_for_by_what_they_were() -> None:
    """64 MiB and 4 KiB both become words, and yet the one stays wide and the other narrow."""
    big, little = (
        Coll(CollectiveKind.ALL_REDUCE, WORLD, 64 << 20),
        Coll(CollectiveKind.ALL_REDUCE, WORLD, 4096),
    )
    whole = planned(job_of(4, big, little), "1")
    small = planned(scaled(job_of(4, big, little), 1024), "1/1024")
    assert len({(one.protocol, one.channels) for one in whole.tables.choices}) == 2
    assert shape_of(small) == shape_of(whole)


@pytest.mark.parametrize("written", ["1/1024", "5%", "0.001", "1e-3"])
def test_a_scale_may_be_written_in_every_way_that_a_factor_may(written: str) -> None:
    plan = planned(job_of(4, Coll(CollectiveKind.ALL_REDUCE, WORLD, 1 << 20)), written)
    assert not [note for note in plan.tables.notes if "whole words" in note]


def test_loads_are_not_scaled_and_are_no_matter_of_rounding() -> None:
    """A load's bytes are what the scenario says; beside them only what was scaled is compared with the scale."""
    trace, load = (Coll(CollectiveKind.ALL_REDUCE, WORLD, size) for size in (1 << 20, 8 << 20))
    plan = planned(only_first_scaled(job_of(4, trace, load), 1024), "1/1024")
    assert not [note for note in plan.tables.notes if "whole words" in note]


def only_first_scaled(job: Job, factor: int) -> Job:
    """The job with its first operation divided: the others are as a load's, of one size before and after."""
    small = scaled(job, factor)
    programs = []
    for whole, part in zip(job.programs, small.programs, strict=True):
        size_bytes = whole.message_bytes.copy()
        size_bytes[1] = part.message_bytes[1]
        programs.append(replace(part, message_bytes=size_bytes))
    return replace(small, programs=tuple(programs))

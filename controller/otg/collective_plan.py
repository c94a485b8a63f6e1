"""A step of collectives on a rig -> the plan of one run: a rank for each member of each operation, on its port. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.model.transport import ECN_BITS
from etloop.controller.inputs.collective_spec import amount_of
from etloop.controller.inputs.rig import Rig
from etloop.controller.inputs.scenario.mapping import Mapping as RankMapping
from etloop.controller.inputs.scenario.mapping import PlacementRule
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.otg.collective_model import CollectiveJob, Operation, Step
from etloop.controller.otg.model import OtgTest
from etloop.controller.otg.plan import RunPlan, transport_of_port, with_addresses, with_transports
from etloop.controller.plan.job_set import only
from etloop.controller.plan.plan import plan_jobs
from etloop.controller.plan.storage_programs import job_of_programs, rank_program
from etloop.controller.plan.timeouts import patient
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram

_KEYS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather")
"""Keys of `collectives` in a scenario, which are the names of kinds."""


def plan_step(test: OtgTest, job: CollectiveJob, step: Step, rig: Rig, run_id: str, *, nonce: int) -> RunPlan:
    """Return the plan of a step. `nonce` is a random number of this run.

    Raise `ConfigError` if an operation has nothing to send, `PlanError` if the step does not fit on the rig.
    """
    address_of_label = {test.ports[port]: job.addresses[port] for port in _ports_of(step.operations)}
    narrow_rig = with_addresses(rig, address_of_label)
    slowest_bps = min(port.link_bps for port in narrow_rig.ports.values())
    scenario = patient(_scenario_of(step), slowest_bps, None)
    places = [test.ports[port] for operation in step.operations for port in operation.ports]
    mapping = RankMapping(rule=PlacementRule.EXPLICIT, explicit=tuple(enumerate(places)))
    jobs = only(_job_of(step), mapping, scenario.collectives.settings)
    plan = plan_jobs(scenario, narrow_rig, jobs, run_id, drawn_nonce=nonce)
    transports = {
        label: transport_of_port(scenario.transport.settings(), test.options.get(port), 0)
        for port, label in test.ports.items()
    }
    assignments = {
        name: with_transports(assignment, transports) for name, assignment in plan.assignments.items()
    }
    stall_ns = max(
        [scenario.limits.stall_timeout_ns]
        + [transport.timeout_ns * (transport.retry_limit + 1) for transport in transports.values()]
    )
    stall_ns += max(operation.gap_ns for operation in step.operations)
    plan = replace(plan, assignments=assignments)
    return RunPlan((), plan, 0, step.transport.path_mtu_bytes, stall_ns)


def _ports_of(operations: Iterable[Operation]) -> dict[str, None]:
    """Return the OTG ports of operations, each once."""
    return {port: None for operation in operations for port in operation.ports}


def _scenario_of(step: Step) -> Scenario:
    """Return a scenario with the transport and algorithms of a step; its workload is replaced by the operations."""
    transport = step.transport
    ecn = next(name for name, bits in ECN_BITS.items() if bits == transport.ecn)
    last_port = transport.source_port + transport.queue_pairs - 1
    pins = {operation.kind.name.lower(): operation.algorithm for operation in step.operations}
    assert set(pins) <= set(_KEYS), "the kinds that the readers know"
    text = f"iterations: {step.iterations}\nworkload: {{incast: {{senders: 1, size: 1KiB}}}}\n"
    text += f"transport: {{path_mtu: {transport.path_mtu_bytes}, dscp: {transport.dscp}, ecn: {ecn}"
    text += (
        f", qps_per_connection: {transport.queue_pairs}, source_port: {transport.source_port}-{last_port}}}\n"
    )
    text += "collectives: {shaping: plain"
    text += "".join(f", {kind}: {{algorithm: {algorithm}}}" for kind, algorithm in pins.items()) + "}\n"
    return parse_scenario(text.encode(), "OTG configuration", Path())


def _job_of(step: Step) -> Job:
    """Return the job of one iteration: each operation among its ranks, after its gap."""
    groups: list[Communicator] = []
    programs: list[Program] = []
    ranks: list[RankProgram] = []
    for index, operation in enumerate(step.operations):
        members = tuple(range(len(ranks), len(ranks) + len(operation.ports)))
        amount = amount_of(operation.kind, operation.size_bytes, len(members), element_bytes=1)
        if not amount.count:
            problem = (
                f"{operation.name}: {operation.size_bytes} bytes are too few for {len(members)} ranks to send"
            )
            raise ConfigError(Problem("data size", problem, f"write at least {16 * len(members)} bytes"))
        writer = ProgramWriter()
        before = (writer.delay(operation.gap_ns),) if operation.gap_ns else ()
        writer.add(OpKind.COLLECTIVE, operation.kind, 0, amount.message_bytes, before)
        programs.append(writer.program())
        groups.append(Communicator(index, operation.name, members))
        ranks += [rank_program(rank, index, programs[index], (index,), ()) for rank in members]
    return job_of_programs("OTG collectives", tuple(groups), programs, ranks)

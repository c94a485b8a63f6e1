"""An OTG test on a rig -> the plan of one run: two ranks for each flow, on the ports of its queue pair. Pure.

Flow f is sent by rank 2f and received by rank 2f + 1. Raw flows are streams of frames next to them; a port that has only such
streams gets a rank without messages. Ports get the transports that OTG's options ask for. Refuses what the
engine cannot carry out: verbs that it does not have, several rates or addresses on one port, and stated queue pair numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Final

import numpy as np

from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, PortBackend
from etloop.contract.model.congestion import CongestionParameter, CongestionSettings
from etloop.contract.model.frame_streams import FrameStream, FrameWork
from etloop.contract.model.transport import MarkSettings, TransportSettings, traffic_class
from etloop.controller.inputs.rig import Rig
from etloop.controller.inputs.scenario.mapping import Mapping as RankMapping
from etloop.controller.inputs.scenario.mapping import PlacementRule
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.otg.model import (
    Dcqcn,
    EndlessFlow,
    Marks,
    OtgTest,
    PortOptions,
    QueuePair,
    RawFlow,
    Verb,
)
from etloop.controller.otg.options import slow_down
from etloop.controller.plan.job_set import only
from etloop.controller.plan.plan import Plan, plan_jobs
from etloop.controller.plan.timeouts import patient
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Job, OpKind, Program, RankProgram

MOST_FLOWS: Final = 256
MOST_MESSAGES: Final = 1 << 21
"""Messages of all flows in a run, whose records the server keeps in memory: 370 MB at most."""
MOST_PASS_MESSAGES: Final = 4096
"""Messages of a flow in one iteration of the plan; longer flows repeat it."""
_MOST_PASS_OPS: Final = 1 << 18
"""Ops of all flows in one iteration."""
_IDLE_NS: Final = 1000
_LEAST_PATH_MTU_BYTES: Final = 1024
_LEAST_AHEAD: Final = 8
_MOST_AHEAD: Final = 256
_AHEAD_BYTES: Final = 512 << 10
"""Receives of a flow that are granted at a time, ahead of their sends: so many bytes, but at least 8 and at most 256 messages.
Grants take a round trip of software, which must not limit the rate of short messages."""
_CATCH_UP_NS: Final = 100 * NS_PER_MS
"""Longest host delay that a flow makes up for, as raw flows do: its mean rate is the rate that the client set."""
_LEAST_RATE_BPS: Final = 1_000_000
_BYTE_RESET_UNIT_BYTES: Final = 64
"""Unit of OTG's rate_increment_byte_counter, as ConnectX's RPG_BYTE_RESET counts."""
_PATIENCE_NS: Final = 200 * NS_PER_MS
_SOFTWARE_TIMEOUT_NS: Final = 20 * NS_PER_MS
_SOFTWARE_RETRIES: Final = 10
_SENDS: Final = (Verb.SEND, Verb.SEND_WITH_IMMEDIATE)


@dataclass(frozen=True, slots=True)
class Carriage:
    """How flows are carried, as the operator of a server sets it."""

    sends_as_writes: bool = False
    """Carry flows of SEND as WRITE with immediate."""
    own_dscp: int | None = None
    """DSCP of grants, their ACKs and probes on ports with options; None: that of CNPs."""
    dcqcn_slowdown: int = 1
    """Factor of CNP intervals and DCQCN's periods, for links so many times slower than those that a script is for."""


AS_CONFIGURED: Final = Carriage()


@dataclass(frozen=True, slots=True)
class FlowRun:
    """A flow as a run carries it."""

    flow: EndlessFlow
    queue_pair: QueuePair
    receiver: QueuePair | None
    """Queue pair of the receiving device whose peer is the sender; None if the configuration has none."""
    rx_port: str
    """Name of the OTG port that receives."""


@dataclass(frozen=True, slots=True, eq=False)
class RunPlan:
    """The plan of one run, and the flows of its ranks."""

    flows: tuple[FlowRun, ...]
    """Flow f has ranks 2f and 2f + 1."""
    plan: Plan
    messages: int
    """Messages of each flow."""
    path_mtu_bytes: int
    stall_timeout_ns: int
    raw_flows: tuple[RawFlow, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """Label of the rig's port by name of the OTG port."""


def flow_runs(test: OtgTest) -> tuple[FlowRun, ...]:
    """Return the flows of a test with both ends."""
    queue_pair_of_ends = {
        (queue_pair.source, queue_pair.destination): queue_pair
        for queue_pair in reversed(test.queue_pairs.values())
    }
    port_of_address = {address: port for port, addresses in test.addresses.items() for address in addresses}
    runs = []
    for flow in test.flows:
        queue_pair = test.queue_pairs[flow.queue_pair]
        receiver = queue_pair_of_ends.get((queue_pair.destination, queue_pair.source))
        runs.append(FlowRun(flow, queue_pair, receiver, port_of_address[queue_pair.destination]))
    return tuple(runs)


def check_runnable(test: OtgTest, rig: Rig, carriage: Carriage = AS_CONFIGURED) -> tuple[str, ...]:
    """Return the warnings about what a run replaces. Raise `ConfigError` with everything that no run can carry out."""
    problems: list[Problem] = []
    warnings: list[str] = []
    if len(test.flows) > MOST_FLOWS:
        problem = f"{len(test.flows)} flows are more than {MOST_FLOWS}"
        problems.append(Problem("$.stateful_flows", problem, "remove some"))
    for flow in test.flows:
        where = f"{flow.path}.rocev2_verb"
        if flow.verb is Verb.READ:
            problems.append(Problem(where, "flows of READ are not offered", "write choice: write"))
        elif flow.verb in _SENDS and carriage.sends_as_writes:
            warnings.append(f"{where}: {flow.verb} is carried as WRITE with immediate")
        elif flow.verb in (Verb.WRITE, Verb.SEND):
            warnings.append(f"{where}: {flow.verb} is carried with an immediate")
        if flow.verb in _SENDS and not carriage.sends_as_writes:
            port = test.queue_pairs[flow.queue_pair].port
            if rig.ports[test.ports[port]].queues > 1:
                remedy = "start etloop otg serve with --send-as-write"
                problems.append(Problem(where, f"port {port} has several queues, which do not SEND", remedy))
    problems += _port_problems(test, rig)
    if carriage.dcqcn_slowdown > 1 and test.options:
        factor = carriage.dcqcn_slowdown
        warnings.append(
            f"$.options: CNP intervals and periods of DCQCN are {factor} times as long, at most 1 s"
        )
    if problems:
        raise ConfigError(*problems)
    return tuple(warnings)


def _port_problems(test: OtgTest, rig: Rig) -> Iterator[Problem]:
    """Yield flows with several rates or addresses on one port, and rates that it cannot pace."""
    rates: dict[str, set[int]] = {}
    addresses: dict[str, set[str]] = {}
    for run in flow_runs(test):
        rates.setdefault(run.queue_pair.port, set()).add(run.flow.rate_bps)
        addresses.setdefault(run.queue_pair.port, set()).add(run.queue_pair.source)
        addresses.setdefault(run.rx_port, set()).add(run.queue_pair.destination)
        if run.queue_pair.port == run.rx_port:
            remedy = "send to a device on another port"
            yield Problem(f"{run.flow.path}.tx_endpoint", f"{run.rx_port} sends to itself", remedy)
        if ":" in run.queue_pair.source and ":" not in run.queue_pair.destination:
            yield Problem(f"{run.flow.path}.tx_endpoint", "IPv6 sends to IPv4", "use one family")
    where = "$.stateful_flows"
    for port, port_rates in rates.items():
        if len(port_rates) > 1:
            remedy = "list all flows of a port under one target_line_rate"
            yield Problem(where, f"flows of port {port} have {len(port_rates)} rates", remedy)
        if min(port_rates) < _LEAST_RATE_BPS:
            yield Problem(where, f"flows of port {port} get less than 1 Mb/s each", "raise target_line_rate")
        if rig.ports[test.ports[port]].backend is PortBackend.VERBS:
            yield Problem(where, f"port {port} is a network card, which ETLoop does not pace", "use another")
    for port, port_addresses in addresses.items():
        if len(port_addresses) > 1:
            problem = f"flows use {len(port_addresses)} addresses of port {port}"
            yield Problem(where, problem, "use one address of a port")


def plan_run(
    test: OtgTest,
    rig: Rig,
    names: Sequence[str],
    messages: int,
    run_id: str,
    *,
    nonce: int,
    carriage: Carriage = AS_CONFIGURED,
) -> RunPlan:
    """Return the plan in which the named flows send `messages` each; above `MOST_PASS_MESSAGES`, at least so many.

    The ports of `test.captures` are captured. `nonce` is a random number of this run. Ports with options give
    probes and all packets of grants `carriage.own_dscp`, else that of CNPs, so that a switch's other queues count
    what OTG counts. Raise `PlanError` if the flows do not fit on the rig.
    """
    runs = tuple(run for run in flow_runs(test) if run.flow.name in names)
    raw_flows = tuple(flow for flow in test.raw_flows if flow.name in names)
    assert runs or raw_flows, "the caller names flows of the test"
    pass_limit = min(MOST_PASS_MESSAGES, _MOST_PASS_OPS // (2 * max(len(runs), 1)))
    passes = -(-messages // pass_limit) if runs else 1
    pass_messages = -(-messages // passes)
    path_mtu_bytes = min((run.queue_pair.path_mtu_bytes for run in runs), default=_LEAST_PATH_MTU_BYTES)
    slowest_bps = min(port.link_bps for port in rig.ports.values())
    scenario = patient(_scenario_of(passes, path_mtu_bytes), slowest_bps, None)
    idle_ports = _idle_ports(runs, raw_flows, test.captures)
    mapping = RankMapping(rule=PlacementRule.EXPLICIT, explicit=_places(test, runs, idle_ports))
    job = _job_of(runs, pass_messages, len(idle_ports))
    narrow_rig = _narrow(rig, test, runs, idle_ports)
    jobs = only(job, mapping, scenario.collectives.settings)
    plan = plan_jobs(scenario, narrow_rig, jobs, run_id, drawn_nonce=nonce)
    transports = {
        label: transport_of_port(
            scenario.transport.settings(own_packets_apart=True),
            test.options.get(port),
            _limit_bps(runs, port, rig, label),
            carriage,
        )
        for port, label in test.ports.items()
    }
    assignments = {
        name: replace(
            _with_options(assignment, transports, runs, sends_as_writes=carriage.sends_as_writes),
            frames=_frame_work(assignment, test, raw_flows),
        )
        for name, assignment in plan.assignments.items()
    }
    stall_ns = max(
        [scenario.limits.stall_timeout_ns]
        + [transport.timeout_ns * (transport.retry_limit + 1) for transport in transports.values()]
    )
    return RunPlan(
        runs,
        replace(plan, assignments=assignments),
        passes * pass_messages,
        path_mtu_bytes,
        stall_ns,
        raw_flows,
        test.ports,
    )


def connecting(run_plan: RunPlan) -> RunPlan:
    """Return the plan with probes that have the marks of data, which shows whether packets with these marks arrive."""

    def as_data(transport: TransportSettings) -> TransportSettings:
        return replace(transport, own_packets_apart=False)

    assignments = {
        name: replace(
            assignment,
            transport=as_data(assignment.transport),
            other_transports=tuple(as_data(transport) for transport in assignment.other_transports),
        )
        for name, assignment in run_plan.plan.assignments.items()
    }
    return replace(run_plan, plan=replace(run_plan.plan, assignments=assignments))


def _idle_ports(
    runs: Sequence[FlowRun], raw_flows: Sequence[RawFlow], captured_ports: Collection[str]
) -> tuple[str, ...]:
    """Return the ports of raw flows and captures that no queue pair uses."""
    used = {port for run in runs for port in (run.queue_pair.port, run.rx_port)}
    wanted = [port for flow in raw_flows for port in (flow.tx_port, *flow.rx_ports)]
    return tuple(dict.fromkeys(port for port in (*wanted, *captured_ports) if port not in used))


def _frame_work(assignment: Assignment, test: OtgTest, raw_flows: Sequence[RawFlow]) -> FrameWork:
    """Return the streams of raw flows that begin or end at an agent, and its ports to capture."""
    indices = {f"{assignment.agent}/{port.name}": index for index, port in enumerate(assignment.ports)}
    streams: list[FrameStream] = []
    for flow in raw_flows:
        for port, sends in ((flow.tx_port, True), *((port, False) for port in flow.rx_ports)):
            index = indices.get(test.ports[port])
            if index is None:
                continue
            end = FrameStream(flow.name, flow.number, index, sends, flow.signature_at)
            if sends:
                end = replace(
                    end,
                    frames=flow.frames,
                    cycle_ns=flow.cycle_ns,
                    count=flow.count,
                    delay_ns=flow.delay_ns,
                )
            streams.append(end)
    captures = [indices.get(test.ports[port]) for port in test.captures]
    return FrameWork(tuple(streams), tuple(index for index in captures if index is not None))


def _scenario_of(passes: int, path_mtu_bytes: int) -> Scenario:
    """Return a scenario with the defaults of `etloop run`; its workload is replaced by the flows."""
    text = f"iterations: {passes}\nworkload: {{incast: {{senders: 1, size: 1KiB}}}}\n"
    text += f"transport: {{path_mtu: {path_mtu_bytes}}}\ncollectives: {{shaping: plain, send_recv: {{channels: 1}}}}\n"
    return parse_scenario(text.encode(), "OTG configuration", Path())


def _places(test: OtgTest, runs: Sequence[FlowRun], idle_ports: Sequence[str]) -> tuple[tuple[int, str], ...]:
    ports = [port for run in runs for port in (run.queue_pair.port, run.rx_port)]
    ports += idle_ports
    return tuple((rank, test.ports[port]) for rank, port in enumerate(ports))


def _narrow(rig: Rig, test: OtgTest, runs: Sequence[FlowRun], idle_ports: Sequence[str]) -> Rig:
    """Return the ports of the rig that the flows use, each with the one address that they use."""
    labels = [test.ports[port] for port in idle_ports]
    address_of_label = {label: rig.ports[label].addresses[0] for label in labels}
    address_of_label |= {test.ports[run.queue_pair.port]: run.queue_pair.source for run in runs}
    address_of_label |= {test.ports[run.rx_port]: run.queue_pair.destination for run in runs}
    return with_addresses(rig, address_of_label)


def with_addresses(rig: Rig, address_of_label: Mapping[str, str]) -> Rig:
    """Return the named ports of a rig, each with one address alone, and no device under test."""
    narrow_rig = rig.only(address_of_label)
    agents = tuple(
        replace(
            agent,
            ports=tuple(
                replace(port, addresses=(address_of_label[f"{agent.name}/{port.name}"],))
                for port in agent.ports
            ),
        )
        for agent in narrow_rig.agents
    )
    return replace(narrow_rig, agents=agents, dut=None)


def _job_of(runs: Sequence[FlowRun], pass_messages: int, idle_ranks: int) -> Job:
    """Return the job of one iteration: each sender's messages, one after the other on its queue pair, then ranks without any."""
    programs: list[Program] = []
    ranks: list[RankProgram] = []
    for number, run in enumerate(runs):
        sender, receiver = ProgramWriter(), ProgramWriter()
        receives: list[int] = []
        ahead = min(max(_AHEAD_BYTES // run.flow.message_bytes, _LEAST_AHEAD), _MOST_AHEAD)
        for _ in range(pass_messages):
            sender.add(OpKind.SEND, -1, 0, run.flow.message_bytes)
            oldest = (receives[-ahead],) if len(receives) >= ahead else ()
            receives.append(receiver.add(OpKind.RECV, -1, 0, run.flow.message_bytes, oldest))
        for rank, peer, writer in (
            (2 * number, 2 * number + 1, sender),
            (2 * number + 1, 2 * number, receiver),
        ):
            program = writer.program()
            node_ids = np.arange(len(program), dtype=np.uint64)
            ranks.append(RankProgram(rank, len(programs), (), (peer,), node_ids))
            programs.append(program)
    for rank in range(2 * len(runs), 2 * len(runs) + idle_ranks):
        idle = ProgramWriter()
        idle.delay(_IDLE_NS)
        ranks.append(RankProgram(rank, len(programs), (), (), np.zeros(1, np.uint64)))
        programs.append(idle.program())
    edges = sum(len(program.deps) for program in programs)
    return Job("OTG flows", (), tuple(programs), tuple(ranks), "data", {"data": edges}, ())


def _limit_bps(runs: Sequence[FlowRun], port: str, rig: Rig, label: str) -> int:
    """Return the limit of each queue pair that sends from a port; 0 if one may use the whole link."""
    rates = [run.flow.rate_bps for run in runs if run.queue_pair.port == port]
    return 0 if not rates or rates[0] >= rig.ports[label].link_bps else rates[0]


def transport_of_port(
    base: TransportSettings,
    options: PortOptions | None,
    limit_bps: int,
    carriage: Carriage = AS_CONFIGURED,
) -> TransportSettings:
    """Return the transport of a port with its options; without options it keeps ETLoop's defaults."""
    pacing = replace(base.congestion.pacing, limit_bps=limit_bps, catch_up_ns=_CATCH_UP_NS)
    if options is None:
        return replace(base, congestion=replace(base.congestion, pacing=pacing))
    options = slow_down(options, carriage.dcqcn_slowdown)
    timeout_ns, retry_limit = patient_timeout(options)
    own_dscp = options.cnp.dscp if carriage.own_dscp is None else carriage.own_dscp
    return replace(
        base,
        timeout_ns=timeout_ns,
        retry_limit=retry_limit,
        recovery=replace(base.recovery, adaptive_timeout=False),
        cnp=replace(
            base.cnp, dscp=options.cnp.dscp, ecn=options.cnp.ecn, interval_ns=options.cnp_interval_ns
        ),
        ack=_marks(options.ack),
        # Not ECN-capable: a grant that is marked CE would be answered by a CNP.
        clear_to_send=MarkSettings(dscp=own_dscp, ecn=0),
        congestion=replace(_congestion(options.dcqcn), pacing=pacing),
    )


def patient_timeout(options: PortOptions) -> tuple[int, int]:
    """Return timeout and retries that a software endpoint survives on a shared CPU: 20 ms and 10 for shorter ones."""
    if options.timeout_ns * options.retry_limit >= _PATIENCE_NS:
        return options.timeout_ns, options.retry_limit
    return max(options.timeout_ns, _SOFTWARE_TIMEOUT_NS), max(options.retry_limit, _SOFTWARE_RETRIES)


def _marks(marks: Marks) -> MarkSettings:
    return MarkSettings(dscp=marks.dscp, ecn=marks.ecn)


def _congestion(dcqcn: Dcqcn | None) -> CongestionSettings:
    """Return DCQCN in the engine's parameters (docs/congestion_control.md), within their bounds."""
    if dcqcn is None:
        return CongestionSettings()
    values: Mapping[str, float] = {
        "alpha_g": dcqcn.g,
        "initial_alpha": dcqcn.initial_alpha,
        "alpha_period": max(dcqcn.alpha_period_ns, 100),
        "rate_reduce_monitor_period": dcqcn.reduce_period_ns,
        "min_dec_fac": max(1 - dcqcn.most_decrement, 0.01),
        "time_reset": max(dcqcn.increase_period_ns, 1000),
        "byte_reset": dcqcn.increase_bytes * _BYTE_RESET_UNIT_BYTES,
        "threshold": dcqcn.increase_threshold,
        "ai_rate": dcqcn.additive_bps,
        "hai_rate": dcqcn.hyper_bps,
        "min_rate": max(dcqcn.least_rate_bps, 1000),
        "rate_on_first_cnp": dcqcn.first_rate_bps,
        "clamp_tgt_rate": int(dcqcn.clamps_target_rate),
    }
    parameters = tuple(CongestionParameter(name, float(value)) for name, value in values.items())
    return CongestionSettings("dcqcn", "connectx", parameters)


def _with_options(
    assignment: Assignment,
    transports: Mapping[str, TransportSettings],
    runs: Sequence[FlowRun],
    *,
    sends_as_writes: bool,
) -> Assignment:
    """Return an assignment in which each port has its own transport, and each flow its class and UDP source ports."""
    assignment = with_transports(assignment, transports)
    ranks = tuple(
        replace(
            rank,
            traffic_class=traffic_class(
                runs[rank.rank // 2].queue_pair.dscp, runs[rank.rank // 2].queue_pair.ecn
            ),
            sends=not sends_as_writes and runs[rank.rank // 2].flow.verb in _SENDS,
        )
        if rank.rank < 2 * len(runs)
        else rank
        for rank in assignment.ranks
    )
    columns = assignment.connections
    senders = [runs[rank // 2] for rank in columns.src_rank.tolist()]
    sender_ports = np.array([run.queue_pair.udp_source_port for run in senders], np.uint16)
    receiver_ports = np.array(
        [(run.receiver or run.queue_pair).udp_source_port for run in senders], np.uint16
    )
    connections = replace(columns, src_udp_port=sender_ports, dst_udp_port=receiver_ports)
    return replace(assignment, ranks=ranks, connections=connections)


def with_transports(assignment: Assignment, transports: Mapping[str, TransportSettings]) -> Assignment:
    """Return an assignment in which each port has its own transport, by "agent/port"."""
    first, *others = (transports[f"{assignment.agent}/{port.name}"] for port in assignment.ports)
    ports = tuple(replace(port, transport=number) for number, port in enumerate(assignment.ports))
    return replace(assignment, transport=first, other_transports=tuple(others), ports=ports)

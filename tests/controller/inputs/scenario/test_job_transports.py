"""`transport:` of a job: which keys it may have, what of the file's transport holds for it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.fault_rules import FaultAction
from etloop.contract.model.transport_kinds import TransportKind
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.inputs.scenario.transport import Transport

WORK = "workload: {incast: {senders: 1, size: 1MiB}}"


def scenario(top: str, *jobs: str, more: str = "") -> Scenario:
    """A file with a transport, and a job for each of `jobs`, which is what its entry says of its own."""
    entries = "\n".join(f"- {{name: j{n}, {WORK}{', ' if job else ''}{job}}}" for n, job in enumerate(jobs))
    text = f"transport: {{{top}}}\njobs:\n{entries}\n{more}"
    return parse_scenario(text.encode(), "s.yaml", Path())


def mistakes(top: str, *jobs: str, more: str = "") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        scenario(top, *jobs, more=more)
    return str(caught.value).splitlines()


def second(top: str, own: str) -> Transport:
    """What the second of two jobs goes by, of which the first says nothing."""
    read = scenario(top, "", f"transport: {{{own}}}")
    assert read.jobs[0].transport == 0
    return read.transports[read.jobs[1].transport]


def test_a_job_of_another_kind_has_its_defaults_and_what_is_of_all() -> None:
    own = second(
        "path_mtu: 1024, dscp: 30, timeout: 1s, cc: {algorithm: dctcp}, cnp: {dscp: 40}", "kind: mrc"
    )
    assert own.kind is TransportKind.MRC
    assert (own.path_mtu_bytes, own.traffic_class >> 2, own.timeout_ns) == (1024, 30, 1_000_000_000)
    assert (own.congestion.algorithm, own.congestion.profile) == ("nscc", "untrimmed"), (
        "dctcp is of the other kind"
    )
    assert not own.cnp.send
    assert not own.lossless
    back = second(
        "kind: mrc, window_packets: 512, tail_probe: 30us, mrc: {entropy_values: 64}", "kind: rocev2"
    )
    assert (back.kind, back.window_packets, back.recovery.tail_probe_ns) == (
        TransportKind.ROCE,
        0,
        -1,
    )
    assert (back.congestion.algorithm, back.lossless) == ("dcqcn", True)


def test_a_job_of_the_same_kind_changes_what_it_states_alone() -> None:
    own = second(
        "kind: mrc, window_packets: 512, mrc: {entropy_values: 64}, cc: {algorithm: swift}",
        "window_packets: 128",
    )
    assert (own.window_packets, own.multipath.entropy_values) == (128, 64)
    assert own.congestion.algorithm == "swift"
    other = second("cc: {algorithm: dctcp}, retransmission: selective_repeat", "cc: {algorithm: swift}")
    assert (other.congestion.algorithm, other.recovery.selective_repeat) == ("swift", True)


def test_jobs_with_the_same_transport_share_it_however_it_is_written() -> None:
    read = scenario(
        "dscp: 26",
        "transport: {kind: mrc}",
        "transport: {kind: rocev2}",
        "transport: {kind: mrc, mrc: {entropy_values: 128}}",
        "transport: {kind: mrc, mrc: {entropy_values: 64}}",
        "",
    )
    assert [job.transport for job in read.jobs] == [1, 0, 1, 2, 0]
    assert [each.kind_name for each in read.used_transports] == ["rocev2", "mrc", "mrc"]
    assert not scenario("dscp: 26", "", "").other_transports


def test_the_transport_at_the_top_may_be_nobody_s() -> None:
    read = scenario("dscp: 26", "transport: {kind: uet}")
    assert [each.kind_name for each in read.used_transports] == ["uet"]


def test_background_that_queue_pairs_carry_may_have_one_too() -> None:
    more = "background: [{name: b, incast: {senders: 1, size: 1KiB, period: 1ms}, transport: {kind: uet}}]"
    read = scenario("dscp: 26", "", "transport: {kind: uet}", more=more)
    assert (read.jobs[1].transport, read.background[0].transport) == (1, 1)


def test_rules_of_faults_are_carried_out_by_the_kinds_that_have_them() -> None:
    rules = (
        "faults: [{do: drop, which: 1}, {do: trim, which: 2}, {do: corrupt_icrc, which: 3}, "
        "{do: drop, entropy_value: 9, which: all}]"
    )
    kept = [rule.action for rule in second(f"kind: mrc, {rules}", "kind: rocev2").faults]
    assert kept == [FaultAction.DROP, FaultAction.CORRUPT_ICRC]
    kept = [rule.action for rule in second(f"kind: mrc, {rules}", "kind: uet").faults]
    assert kept == [FaultAction.DROP, FaultAction.TRIM, FaultAction.DROP], "UET has no ICRC"
    answers = "faults: [{do: send_nak, which: 1}, {do: drop, packets: cnp, which: all}, {do: delay, delay: 1us, which: all}]"
    assert [rule.action for rule in second(answers, "kind: uet").faults] == [FaultAction.DELAY]


@pytest.mark.parametrize(
    ("top", "own", "message"),
    [
        ("dscp: 26", "kind: tcp", ('s.yaml:4: jobs[1].transport.kind: "tcp" is not one of the choices; '
            "write rocev2 or mrc or uet")),
        ("dscp: 26", "mrc: {}", "s.yaml:4: jobs[1].transport.mrc: the transport is rocev2; write kind: mrc, or leave it out"),
        ("dscp: 26", "kind: mrc, cnp: {}", ("s.yaml:4: jobs[1].transport.cnp: MRC does not have this setting: its ACKs report "
            "marks; leave it out, or write kind: rocev2")),
        ("dscp: 26", "kind: mrc, cc: {algorithm: rccc}", ("s.yaml:4: jobs[1].transport.cc.algorithm: rccc needs credits, which "
            "only UET receivers grant; write kind: uet, or choose another")),
        ("dscp: 26", "timeout: 1s", ("s.yaml:4: jobs[1].transport.timeout: it is not one of ack_every, arbitration, "
            "cc, cnp, kind, lossless, "
            "min_rnr_timer, mrc, out_of_order, outstanding_reads, reorder_packets, retransmission, rnr_retry, tail_probe, uet, "
            "window_packets; write it under transport, where it applies to all")),
        ("kind: mrc, path_mtu: 1024", "retransmission: selective_repeat", ("s.yaml:4: jobs[1].transport.retransmission: MRC does "
            "not have this setting: it always retransmits only missing packets; leave it out, or write kind: rocev2")),
        ("window_packets: 500", "retransmission: selective_repeat", ("s.yaml:1: transport.window_packets: selective repeat "
            "has a window of at most 256 packets; write at most 256, or retransmission: go_back_n")),
    ],
)  # fmt: skip
def test_a_mistake_is_placed_where_it_stands(top: str, own: str, message: str) -> None:
    assert mistakes(top, "", f"transport: {{{own}}}") == [message]


def test_what_a_job_takes_over_is_said_once_if_it_is_wrong() -> None:
    (said,) = mistakes("path_mtu: 1000", "transport: {kind: mrc}", "transport: {kind: uet}")
    assert said.startswith('s.yaml:1: transport.path_mtu: "1000" is not a path MTU')


def test_rounds_join_all_ranks_and_so_need_one_transport() -> None:
    (said,) = mistakes("dscp: 26", "", "transport: {kind: mrc}", more="rounds: 2")
    assert said == (
        "s.yaml:5: rounds: phases end with a barrier of all ranks, which needs one transport for all jobs; "
        "leave it out, and run each job alone from its own scenario"
    )
    assert scenario("dscp: 26", "", "transport: {kind: rocev2}", more="rounds: 2").rounds == 2


def test_plain_datagrams_have_no_transport() -> None:
    more = "background: [{name: b, udp: {from: a/p0, to: b/p0, rate: 1Mbps}, transport: {kind: uet}}]"
    (said,) = mistakes("dscp: 26", "", "", more=more)
    assert "background[0].transport: cannot be combined with udp" in said

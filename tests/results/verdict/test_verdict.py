"""Conditions: what they mean, what is refused and how it is told, and what a run comes to by them."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_letters
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given as with_given
from hypothesis import strategies as st

from etloop.contract.base.errors import ExitCode
from etloop.results.measure.summary import measure
from etloop.results.schema.summary import Summary
from etloop.results.schema.verdict import RequestedCondition, Result
from etloop.results.tables.frames import frame_by_hand
from etloop.results.text.verdict import verdict_lines
from etloop.results.verdict.evaluation import Results, evaluate
from etloop.results.verdict.junit import junit_xml
from etloop.results.verdict.parser import Vocabulary, parse
from etloop.results.verdict.terms import ExpressionError
from etloop.results.verdict.verdict import Conditions, decide_verdict
from tests.support.runs.records_by_hand import (
    aborted_by_hand,
    connection_rows_by_hand,
    outcome_by_hand,
    tables_by_hand,
)

if TYPE_CHECKING:
    from etloop.results.schema.verdict import ConditionOutcome, Verdict

PORTS: Final = {"port": "name", "rx_bytes": "bytes", "paused_ns": "ns", "up": "flag", "lost": "packets"}
WORDS: Final = Vocabulary(
    {"jct_avg_ns": "ns", "goodput_bps": "bit/s", "lost_share": "ratio", "rtt_p50_ns": "ns"},
    {
        "ports": PORTS,
        "switches": {"port": "name", "cos": "id", "dropped": "packets"},
        "queues": {"depth": "bytes"},
        "flows": {"retransmitted_packets": "packets"},
    },
    {"ports.port": ("p0", "p1", "p2", "a")},
)


def results_by_hand(**figures: float | None) -> Results:
    ports = frame_by_hand(
        "ports",
        {
            "port": np.array(["p0", "p1", "p2"], object),
            "rx_bytes": np.array([100.0, 300.0, np.nan]),
            "paused_ns": np.array([0.0, 5000.0, 9000.0]),
            "up": np.array([1, 1, 0], np.int8),
            "lost": np.array([0.0, 2.0, 0.0]),
        },
        PORTS,
    )
    switches = frame_by_hand(
        "switches",
        {
            "port": np.array(["e1", "e1"], object),
            "cos": np.array([0.0, 3.0]),
            "dropped": np.array([7.0, 0.0]),
        },
        WORDS.tables["switches"],
    )
    flows = frame_by_hand("flows", {"retransmitted_packets": np.array([1.0])}, WORDS.tables["flows"])
    known = {"jct_avg_ns": 2e6, "goodput_bps": 5e9, "lost_share": 0.0, "rtt_p50_ns": None} | figures
    return Results(known, WORDS.figures, {"ports": ports, "switches": switches, "flows": flows})


def truth(text: str) -> list[int]:
    """1 true, 0 false, -1 unknown; of a column one a row."""
    return [
        int(value) for value in np.atleast_1d(evaluate(parse(text, WORDS).tree, results_by_hand()).values)
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("jct_avg_ns <= 2ms", [1]),
        ("jct_avg_ns < 2000us", [0]),
        ("goodput_bps >= 0.625GB/s and goodput_bps <= 5Gbps", [1]),
        ("lost_share == 0", [1]),
        ("lost_share <= 10ppm", [1]),
        ("rtt_p50_ns < 1s", [-1]),
        ("rtt_p50_ns < 1s and lost_share > 0", [0]),
        ("rtt_p50_ns < 1s or lost_share == 0", [1]),
        ("not rtt_p50_ns < 1s", [-1]),
        ("ports.paused_ns <= 6us", [1, 1, 0]),
        ("ports.rx_bytes > 0", [1, 1, -1]),
        ('ports[port == "p1"].lost == 2', [1]),
        ("ports[up].lost == 0", [1, 0]),
        ("ports[not up and paused_ns > 1us].port == 'p2'", [1]),
        ("ports[lost > 5].paused_ns == 0", []),
        ("ports.paused_ns / 2 <= ports.paused_ns", [1, 1, 1]),
        ("count(ports[lost > 0]) == 1", [1]),
        ("count(ports[lost > 5]) == 0", [1]),
        ("count(ports) == 3", [1]),
        ("count(queues) == 0", [-1]),
        ("max(ports.paused_ns) == 9us", [1]),
        ("sum(ports.lost) / count(ports.lost) < 1", [1]),
        ("max(ports.rx_bytes) >= 1kB", [-1]),
        ("any(ports.lost > 0)", [1]),
        ("all(ports.lost == 0)", [0]),
        ("count(ports.lost > 0) == 1", [1]),
        ("mean(ports[up].rx_bytes) == 200B", [1]),
        ("max_to_mean(ports[up].rx_bytes) == 1.5", [1]),
        ("jct_avg_ns / (jct_avg_ns - jct_avg_ns) > 1", [-1]),
        ("2 + 3 * 4 == 14", [1]),
        ("-1 < 1", [1]),
        ("queues.depth == 0", []),
        ("1e3 == 1000", [1]),
    ],
)
def test_what_a_condition_comes_to(text: str, values: list[int]) -> None:
    assert truth(text) == values


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("jct_avg <= 3us", "no figure is called jct_avg; did you mean jct_avg_ns"),
        ("port.lost == 0", "no table is called port; did you mean ports"),
        ("ports.lose == 0", "ports has no column lose; did you mean lost"),
        ("ports[pot == 'a'].lost == 0", "no column of ports or figure is called pot"),
        ("ports == 0", "ports is a table; write ports.COLUMN"),
        ("all(ports[up])", "ports without a column; write count(ports[...])"),
        ("count(jct_avg_ns) == 0", "no table is called jct_avg_ns"),
        ("count(ports[port == 'p9']) == 0", 'ports.port is never "p9"; did you mean p2 or p1 or p0?'),
        ("'x9' != ports.port", 'ports.port is never "x9"; write one of a, p0, p1, p2'),
        ("ports[up] == 0", "ports without a column; write count(ports[...]) or ports[...].COLUMN"),
        (
            "jct_avg_ns <= 3",
            "a time on the left of <=, a plain number on its right; write both alike, such as 20us",
        ),
        ("jct_avg_ns <= 3GB", "a time on the left of <=, bytes on its right"),
        ("jct_avg_ns", "this is a time and no condition; compare it, as in <= 20us"),
        ("jct_avg_ns <= 3 parsecs", "'parsecs' is too much"),
        ("jct_avg_ns <= 3parsecs", "'parsecs' is not a unit"),
        ("1 < 2 < 3", "comparisons cannot be chained"),
        ("ports.lost == ports[up].lost", "columns of different rows"),
        ("median(ports.lost) == 0", "no function is called median"),
        ("max(jct_avg_ns) == 0", "max is of a column, and this is one value"),
        ("all(ports.lost)", "all of a plain number"),
        ("ports.port < 'a'", "text has no order"),
        ("jct_avg_ns * jct_avg_ns == 0", "has no unit here"),
        ("lost_share ==", "found the end"),
        ("(lost_share == 0", "expected ')', found the end"),
        ("lost_share = 0", "'=' means nothing here"),
        ("__import__('os') == 1", "no function is called __import__"),
        ("(" * 40 + "1", "nested more than 32 deep"),
        ("not " * 40 + "true", "too many nots"),
        ("true and " * 200 + "true", "at most 1000 are read"),
        ("1e31 > 0", "out of all proportion"),
        ("not 5 == 5 and 3", "expected true or false, found a plain number"),
        ("", "found the end"),
    ],
)
def test_what_is_refused_is_told(text: str, reported: str) -> None:
    with pytest.raises(ExpressionError) as refusal:
        parse(text, WORDS)
    assert reported in str(refusal.value)


@with_given(st.text(alphabet="ports.lost[]()<>=!'\"0 19ns%andortjc_-+*/", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        condition = parse(text, WORDS)
    except ExpressionError:
        return
    with np.errstate(all="ignore"):
        values = evaluate(condition.tree, results_by_hand()).values
    assert set(np.atleast_1d(values).tolist()) <= {-1, 0, 1}


def summary(aborted: bool = False) -> Summary:
    return measure(
        aborted_by_hand() if aborted else outcome_by_hand(), tables_by_hand(), connection_rows_by_hand()
    ).summary


CHECKED: Final = Vocabulary({"jct_avg_ns": "ns", "lost_share": "ratio", "rtt_p50_ns": "ns"}, WORDS.tables)


def verdict_of(*texts: str, aborted: bool = False, **figures: float | None) -> Verdict:
    checks = tuple(RequestedCondition(text, "it matters", "scenario.yaml:7") for text in texts)
    asked = Conditions(checks, device="dut-1")
    return decide_verdict(asked, results_by_hand(**figures), CHECKED, summary(aborted))


def only(verdict: Verdict) -> ConditionOutcome:
    (found,) = verdict.checks
    return found


@pytest.mark.parametrize(
    ("table", "place", "whole"),
    [
        ("switches", "port", "; 7 in all 3 rows"),
        # The third row is the second a moment later.
        ("queues", "port", ""),
        ("dut", "counter", ""),
        ("cc", "agent", ""),
    ],
)
def test_counts_are_added_up_over_things_and_not_over_time(table: str, place: str, whole: str) -> None:
    units = {"counted": "packets", place: "name"}
    columns = {"counted": np.array([0.0, 2.0, 5.0]), place: np.array(["x", "x", "x"], object)}
    frame = frame_by_hand(table, columns, units)
    words = Vocabulary({}, {table: units})
    asked = Conditions((RequestedCondition(f"{table}.counted == 0", "", "scenario.yaml:7"),))
    found = only(decide_verdict(asked, Results({}, {}, {table: frame}), words, summary()))
    assert found.value == f"{table}.counted = 5 in the worst of 3 rows, {place} x{whole}"


def test_names_that_could_have_been_meant_are_said_to_be_some_of_many() -> None:
    words = Vocabulary({f"{letter}{letter}": "ns" for letter in ascii_letters[:45]}, {})
    with pytest.raises(ExpressionError) as refused:
        parse("zzzz9999 <= 3us", words)
    assert refused.value.remedy.endswith("uu and 5 more (docs/metrics.md)"), refused.value.remedy


def test_a_failed_condition_names_value_limit_and_the_worst_rows_first() -> None:
    verdict = verdict_of("ports.paused_ns <= 4us")
    one = only(verdict)
    assert (verdict.result, one.result, one.value, one.limit) == (
        *(Result.FAIL, Result.FAIL),
        *("ports.paused_ns = 9 us in the worst of 3 rows, port p2", "<= 4 us"),
    )
    assert (one.checked, one.broken) == (3, 2)
    assert one.rows == ("ports: port p2 (= 9 us)", "ports: port p1 (= 5 us)")


def test_a_lossless_queue_that_drops_is_named() -> None:
    one = only(verdict_of("switches.dropped == 0"))
    assert one.rows == ("switches: port e1, cos 0 (= 7)",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rtt_p50_ns < 1ms", "the run has no rtt_p50_ns"),
        ("queues.depth < 1MB", "the run has no queues"),
        ("ports[lost > 5].paused_ns == 0", "the table has no such row"),
        ("ports.rx_bytes >= 0", "a value is missing in 1 of 3 rows"),
        ("jct_avg < 1ms", "cannot be read: column 1: no figure is called jct_avg"),
    ],
)
def test_what_cannot_be_known_is_inconclusive_with_its_reason(text: str, reason: str) -> None:
    verdict = verdict_of("lost_share == 0", text)
    assert verdict.result is Result.INCONCLUSIVE
    assert verdict.checks[0].result is Result.PASS
    assert reason in verdict.checks[1].reason
    assert any(reason in reported for reported in verdict.reasons)


@pytest.mark.parametrize(
    ("sentence", "counts", "result"),
    [
        ("a timer of ours ran out", {"local_ack_timeout_err": 2, "naks_rx": 0}, Result.INCONCLUSIVE),
        ("also where NAKs came as well", {"local_ack_timeout_err": 2, "naks_rx": 7}, Result.INCONCLUSIVE),
        ("NAKs alone asked for all of it: not us", {"local_ack_timeout_err": 0, "naks_rx": 7}, Result.FAIL),
    ],
)
def test_who_asked_for_what_was_sent_again_without_need(
    sentence: str, counts: dict[str, int], result: Result
) -> None:
    asked = Conditions((RequestedCondition("jct_avg_ns < 1ms", "it matters", "scenario.yaml:7"),))
    run = summary()
    run = replace(run, transport={**run.transport, **counts})
    verdict = decide_verdict(asked, results_by_hand(**NEEDLESS), CHECKED, run)
    assert verdict.result is result, sentence


def test_one_failure_outweighs_what_is_not_known() -> None:
    assert verdict_of("jct_avg < 1ms", "jct_avg_ns < 1ms").result is Result.FAIL


LATE: Final = {"slip_share": 0.2}
LOSSY: Final = {"own_lost_packets": 3.0}
NEEDLESS: Final = {"needless_share": 0.02, "lost_packets": 0.0, "dut_dropped_packets": 0.0}


@pytest.mark.parametrize(
    ("sentence", "own", "text", "result"),
    [
        ("our lateness may be why a job is slow", LATE, "jct_avg_ns < 1ms", Result.INCONCLUSIVE),
        ("a job that is fast in spite of it is fast", LATE, "jct_avg_ns < 1s", Result.PASS),
        ("but sends again what was never lost", LATE, "flows.retransmitted_packets < 1", Result.INCONCLUSIVE),
        ("lateness loses no packets", LATE, "ports.lost == 0", Result.FAIL),
        ("our own losses may be why packets are missing", LOSSY, "ports.lost == 0", Result.INCONCLUSIVE),
        ("and why a job is slow", LOSSY, "jct_avg_ns < 1ms", Result.INCONCLUSIVE),
        ("what the device itself counted stands", LATE | LOSSY, "switches.dropped == 0", Result.FAIL),
        (
            "an engine that never rests is late too",
            {"busy_share": 0.999},
            "jct_avg_ns < 1ms",
            Result.INCONCLUSIVE,
        ),
        ("our timer may be why a job is slow", NEEDLESS, "jct_avg_ns < 1ms", Result.INCONCLUSIVE),
        (
            "but not where packets were lost",
            NEEDLESS | {"lost_packets": 4.0},
            "jct_avg_ns < 1ms",
            Result.FAIL,
        ),
        (
            "or the device dropped some",
            NEEDLESS | {"lost_packets": 0.0, "dut_dropped_packets": 4.0},
            "jct_avg_ns < 1ms",
            Result.FAIL,
        ),
        ("one that rests is not", {"busy_share": 0.5, "slip_share": 0.01}, "jct_avg_ns < 1ms", Result.FAIL),
    ],
)
def test_the_device_is_not_blamed_for_us(
    sentence: str, own: dict[str, float], text: str, result: Result
) -> None:
    asked = Conditions((RequestedCondition(text, "it matters", "scenario.yaml:7"),))
    run = summary()
    run = replace(run, transport=run.transport | {"local_ack_timeout_err": 1})
    verdict = decide_verdict(asked, results_by_hand(**own), CHECKED, run)
    assert verdict.result is result, sentence
    if result is Result.INCONCLUSIVE:
        assert "the emulator itself was the limit" in only(verdict).reason
        assert verdict.emulator


def test_of_a_run_that_broke_off_nothing_passes_and_failures_stay() -> None:
    verdict = verdict_of("lost_share == 0", aborted=True)
    assert (verdict.result, only(verdict).reason) == (
        Result.INCONCLUSIVE,
        "holds up to the time at which the run ended early",
    )
    assert verdict_of("ports.lost == 0", aborted=True).result is Result.FAIL


def test_a_profile_that_cannot_be_read_leaves_the_verdict_open() -> None:
    asked = Conditions(device="x", unreadable="the profile x cannot be read")
    verdict = decide_verdict(asked, results_by_hand(), CHECKED, summary())
    assert (verdict.result, verdict.reasons) == (Result.INCONCLUSIVE, ("the profile x cannot be read",))


@pytest.mark.parametrize(
    ("texts", "aborted", "code"),
    [
        ((), False, ExitCode.PASS),
        (("lost_share == 0",), False, ExitCode.PASS),
        (("jct_avg < 1s",), False, ExitCode.INCONCLUSIVE),
        (("jct_avg_ns < 1us",), False, ExitCode.VERDICT_FAILED),
        (("jct_avg_ns < 1us",), True, ExitCode.RUN_ERROR),
    ],
)
def test_exit_codes(texts: tuple[str, ...], aborted: bool, code: ExitCode) -> None:
    verdict = verdict_of(*texts, aborted=aborted) if texts else None
    assert replace(summary(aborted), verdict=verdict).result.exit_code is code


def test_junit_has_a_case_for_the_run_and_one_for_every_condition() -> None:
    verdict = verdict_of("lost_share == 0", "ports.paused_ns <= 4us", "rtt_p50_ns < 1ms")
    (suite,) = ET.fromstring(junit_xml(summary(), verdict, "job.0"))
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "0", "1"]
    run, passed, failed, skipped = suite.findall("testcase")
    assert (run.get("name"), len(run), len(passed)) == ("run", 0, 0)
    assert failed[0].get("message") == "ports.paused_ns = 9 us in the worst of 3 rows, port p2, limit <= 4 us"
    assert "ports: port p2" in (failed[0].text or "")
    assert (skipped[0].tag, skipped[0].get("message")) == ("skipped", "the run has no rtt_p50_ns")


def test_junit_of_a_run_that_broke_off_is_an_error_and_survives_any_text() -> None:
    broken = replace(summary(aborted=True), reason="agent b: \x00]]> <&\ud800")
    (suite,) = ET.fromstring(junit_xml(broken, None, "job.0"))
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("message") == "agent b: ?]]> <&?"


def test_the_table_tells_the_verdict() -> None:
    lines = "\n".join(verdict_lines(verdict_of("lost_share == 0", "ports.paused_ns <= 4us", slip_share=0.01)))
    assert "verdict         FAIL of dut-1: 1 pass, 1 fail" in lines
    assert "2 of 3 rows break it" in lines
    assert "why: it matters" in lines

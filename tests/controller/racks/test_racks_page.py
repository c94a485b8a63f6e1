"""The page of several racks: what it shows of whom, that nothing in it acts, and that it is served over real brokers."""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import ControllerStatus, JobStatus, RackStatus
from etloop.controller.racks.page import PageQuery, parse_query, racks_page
from etloop.controller.racks.racks_file import RackPlace
from etloop.controller.racks.survey import RackAnswer, RackView
from tests.controller.racks.test_bulk_orders import queue
from tests.controller.racks.test_choice import changed, job, rack
from tests.support.first_light.commands import free_place, running
from tests.support.ports import free_port
from tests.support.rack.two_racks import two_racks

HOSTILE = '<script>alert(1)</script>"\x1b[31m'


def ended(number: int, exit_code: int, **fields: str) -> JobStatus:
    found = replace(job(JobState.FINISHED, number, took_s=5), exit_code=exit_code, run_directory="kept")
    return replace(found, log_url="http://x/log", **fields)  # type: ignore[arg-type]


def page(answers: list[RackAnswer[RackView]], **query: str) -> str:
    return racks_page(answers, parse_query({key: [value] for key, value in query.items()}), "now")


def with_url(answer: RackAnswer[RackView], url: str) -> RackAnswer[RackView]:
    return changed(answer, controller=ControllerStatus(1, RackStatus.READY, "0", http_url=url))


def ids(text: str) -> list[str]:
    return re.findall(r'data-head="job">(?:<a [^>]*>)?(\w+)', text)


@pytest.mark.parametrize(
    ("sentence", "query", "shown"),
    [
        ("all, without a question", {}, ["j1", "j2", "j3"]),
        ("one rack", {"rack": "y"}, ["j3"]),
        ("a state", {"state": "queued"}, ["j3"]),
        ("a verdict", {"verdict": "fail"}, ["j2"]),
        ("a user", {"owner": "ann"}, ["j1"]),
        ("empty values ask nothing", {"rack": "", "owner": ""}, ["j1", "j2", "j3"]),
    ],
)
def test_a_query_string_chooses_jobs(sentence: str, query: dict[str, str], shown: list[str]) -> None:
    answers = [rack("x", ended(1, 0, owner="ann"), ended(2, 30)), rack("y", job(JobState.QUEUED, 3))]
    assert ids(page(answers, **query)) == shown, sentence


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ({"stat": ["queued"]}, 'query: unknown key "stat"; use rack, state, owner, label, verdict'),
        ({"state": ["lost"]}, 'query: unknown state "lost"; use queued, starting'),
        (
            {"verdict": ["good"]},
            'unknown verdict "good"; use pass, inconclusive, fail, broke, not-ready',
        ),
        ({"label": ["x"]}, 'query: label: "x" is not a label; write NAME=VALUE'),
        ({"rack": ["x"] * 33}, "query: rack is given 33 times; give at most 32"),
    ],
)
def test_a_query_that_is_not_understood_is_refused(query: dict[str, list[str]], complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_query(query)
    assert complaint in str(refused.value)


def test_results_are_linked_where_a_rack_says_its_address() -> None:
    text = page([with_url(rack("x", ended(1, 0)), "https://lab.example/etloop/")])
    assert '<a href="https://lab.example/etloop/runs/j1/">j1</a>' in text
    assert '<a class="dim" href="https://lab.example/etloop/runs/j1.log">log</a>' in text
    assert '<span class="badge pass">pass</span>' in text


def test_nothing_that_others_wrote_acts() -> None:
    nasty = replace(ended(1, 0), job_id=HOSTILE, reason=HOSTILE, owner=HOSTILE, labels={HOSTILE: HOSTILE})
    answers = [
        with_url(rack("x", nasty), "javascript:alert(1)"),
        with_url(rack("y", nasty), "https://y.example"),
        RackAnswer(RackPlace("z", "127.0.0.1", rack="z"), None, HOSTILE),
    ]
    text = racks_page(answers, PageQuery(), "now")
    assert "<script" not in text
    assert "javascript:" not in text
    assert "\x1b" not in text
    assert re.findall(r'href="([^"]*)"', text) == [
        "https://y.example/runs/",
        "https://y.example/runs/%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%1B%5B31m/",
        "https://y.example/runs/%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%1B%5B31m.log",
    ]


def test_a_page_has_an_end() -> None:
    text = page([rack("x", *(ended(number, 0, reason="r" * 1000) for number in range(2003)))])
    assert len(ids(text)) == 2000
    assert "and 3 older ones" in text
    assert "r" * 301 not in text


def get(url: str) -> tuple[int, str, str]:
    """Status, policy and text of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.headers["Content-Security-Policy"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Security-Policy"], error.read().decode()


async def test_one_page_shows_the_jobs_of_two_racks_and_a_third_that_is_away(tmp_path: Path) -> None:
    async with two_racks(tmp_path) as racks:
        north = queue(racks.north, "1", "ann", "nightly")
        south = queue(racks.south, "2", "ben", "weekly")
        file = racks.file("racks.yaml", f"  - {{name: west, broker: '127.0.0.1:{free_port()}'}}\n")
        (tmp_path / "page").mkdir()
        place, bind = free_place(tmp_path / "page"), f"127.0.0.1:{free_port()}"
        words = ("racks", "serve", "--racks", file, "--bind", bind)
        with running(place, "etloop.cli.main", *words) as live:
            await asyncio.to_thread(live.wait_for, f"serving 3 racks at http://{bind}/")
            status, policy, text = await asyncio.to_thread(get, f"http://{bind}/")
            assert (status, north in text, south in text) == (200, True, True)
            assert "no broker at 127.0.0.1:" in text
            assert policy.startswith("default-src 'none';")
            _, _, text = await asyncio.to_thread(get, f"http://{bind}/?label=suite%3Dweekly")
            assert (north in text, south in text) == (False, True)
            status, _, text = await asyncio.to_thread(get, f"http://{bind}/?colour=red")
            assert (status, text.startswith('query: unknown key "colour"')) == (400, True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("--bind", "0.0.0.0:1"),
            "--bind: 0.0.0.0 is reachable from other machines, and the page has no authentication",
        ),
        (("--bind", "127.0.0.1"), '--bind: "127.0.0.1" has no port; write HOST:PORT'),
        (("--json",), "--json: does not apply to serve; leave it out"),
        (("--state", "queued"), "leave them out, or use etloop racks jobs; the page takes them in its query"),
    ],
)
def test_a_page_that_cannot_be_served_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str
) -> None:
    path = tmp_path / "racks.yaml"
    path.write_text("racks: [{name: a, broker: 127.0.0.1}]\n")
    assert main(["racks", "serve", *words, "--racks", str(path)]) == 65
    assert complaint in capsys.readouterr().err + capsys.readouterr().out

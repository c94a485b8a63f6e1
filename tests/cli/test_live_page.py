"""The page of a run: a browser hears what changes, gets the report at the end, and can do nothing else."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etloop.cli import live_page
from etloop.cli.live_page import _PAGE, MOST_BROWSERS, MOST_SAMPLES, LivePage, policy_of
from etloop.cli.text.live import LivePort, LiveView
from etloop.contract.base.errors import ConfigError

VIEW = LiveView("running  5%", 0.05, 10.0, (LivePort("<a>/p0", 1e9, 2e9, 10**10),), 0, "late", "good")


@pytest.fixture
def page() -> Iterator[LivePage]:
    made = LivePage("127.0.0.1", 0)
    try:
        yield made
    finally:
        made.finish(None)


def asked(page: LivePage, path: str, host: str = "") -> http.client.HTTPResponse:
    place = page.url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(place, timeout=10)
    connection.request("GET", path, headers={"Host": host} if host else {})
    return connection.getresponse()


def event(stream: http.client.HTTPResponse, name: str) -> Any:
    """The next event of that name."""
    while line := stream.readline():
        if line == f"event: {name}\n".encode():
            return json.loads(stream.readline().removeprefix(b"data: "))
    raise AssertionError(f"the stream ended without {name}")


def test_page_stays_with_the_report_until_its_reader_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "RETURN_S", 0.1)
    page = LivePage("127.0.0.1", 0)
    assert b"EventSource" in asked(page, "/").read()
    stream = asked(page, "/events")
    page.show(VIEW)
    assert event(stream, "run")["ports"] == [
        {"name": "<a>/p0", "tx_bps": 1e9, "rx_bps": 2e9, "link_bps": 10**10}
    ]
    assert asked(page, "/report.html").status == 404
    report = tmp_path / "report.html"
    report.write_text("the report")
    ending = threading.Thread(target=page.finish, args=(report,))
    ending.start()
    assert event(stream, "over") == {"report": True}
    answer = asked(page, "/report.html")
    assert answer.read() == b"the report"
    assert "frame-ancestors 'self'" in str(answer.getheader("Content-Security-Policy"))
    assert event(stream, "beat") == {}
    assert ending.is_alive(), "its reader is still there"
    stream.close()
    ending.join(20)
    assert not ending.is_alive()
    with pytest.raises(OSError, match="refused"):
        asked(page, "/")


def test_first_reader_may_come_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "RETURN_S", 0.1)
    page = LivePage("127.0.0.1", 0)
    page.show(VIEW)
    page.show(replace(VIEW, time_ms=20.0, dropped=3, marked=7))
    report = tmp_path / "report.html"
    report.write_text("the report")
    ending = threading.Thread(target=page.finish, args=(report,))
    ending.start()
    stream = asked(page, "/events")
    assert event(stream, "history") == [
        {"time_ms": 10.0, "tx_bps": {"<a>/p0": 1e9}, "dropped": None, "marked": None},
        {"time_ms": 20.0, "tx_bps": {"<a>/p0": 1e9}, "dropped": 3, "marked": 7},
    ]
    assert event(stream, "over") == {"report": True}
    stream.close()
    ending.join(20)
    assert not ending.is_alive()


def test_without_a_reader_the_page_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "FIRST_READER_S", 0.0)
    report = tmp_path / "report.html"
    report.write_text("the report")
    LivePage("127.0.0.1", 0).finish(report)


def test_history_is_bounded_and_keeps_its_begin(page: LivePage) -> None:
    for number in range(3 * MOST_SAMPLES):
        page.show(replace(VIEW, time_ms=float(number)))
    samples = page.history()
    assert len(samples) <= MOST_SAMPLES
    assert (samples[0].time_ms, samples[-1].time_ms) == (0.0, 3 * MOST_SAMPLES - 1)


def test_a_run_without_a_report_says_so(page: LivePage) -> None:
    stream = asked(page, "/events")
    page.finish(None)
    assert event(stream, "over") == {"report": False}


def test_pages_of_other_sites_cannot_read_along(page: LivePage) -> None:
    assert asked(page, "/events", host="evil.example:80").status == 403
    assert asked(page, "/", host="localhost:80").status == 200


def test_there_is_nothing_else(page: LivePage) -> None:
    for path in ("/../etc/passwd", "/summary.json", "/report.html/"):
        assert asked(page, path).status == 404, path


def test_browsers_are_few(page: LivePage) -> None:
    streams = [asked(page, "/events") for _ in range(MOST_BROWSERS)]
    refused = asked(page, "/events")
    assert (refused.status, refused.reason) == (503, f"{MOST_BROWSERS} browsers are connected already")
    assert all(stream.status == 200 for stream in streams)


def test_a_port_in_use_is_refused_with_a_way_out(page: LivePage) -> None:
    port = int(page.url.rstrip("/").rpartition(":")[2])
    with pytest.raises(
        ConfigError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use.*--web 127.0.0.1:0"
    ):
        LivePage("127.0.0.1", port)


def test_only_the_pages_own_script_runs() -> None:
    page = b"<p onclick=x><script>run()</script>"
    policy = policy_of(page)
    digest = base64.b64encode(hashlib.sha256(b"run()").digest()).decode()
    assert policy.endswith(f"connect-src 'self'; frame-src 'self'; script-src 'sha256-{digest}'")
    assert "default-src 'none'" in policy
    assert b" onclick" not in _PAGE.read_bytes(), "an attribute would not run"

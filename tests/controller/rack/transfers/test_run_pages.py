"""What jobs left is fetched over HTTP by who has a token; others are refused and counted; retention and readers agree."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import shutil
from asyncio import to_thread
from functools import partial
from pathlib import Path

import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, ExitCode
from etloop.controller.rack.client.client import RackUnreachable
from etloop.controller.rack.client.web import RackWeb
from etloop.controller.rack.config import Retention
from etloop.controller.rack.job import JobEvent, JobRequest, PortDemand
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.store.job_logs import JobLogs
from etloop.controller.rack.store.retention import Retaining
from etloop.controller.rack.transfers.live_page import verdict_badge, verdict_of
from etloop.controller.rack.transfers.page_protection import is_own_host
from tests.support.first_light.commands import PATIENCE_S
from tests.support.rack.http_rack import READER, TOKENS, WRITER, serving


@pytest.mark.parametrize(
    ("headers", "status", "text", "why"),
    [
        ((), 401, "send a token of this rack: Authorization: Bearer TOKEN", "no token"),
        (("Authorization: Basic YTpi",), 401, "send a token", "no token"),
        (("Authorization: Bearer",), 401, "the token is not one of this rack's", "unknown token"),
        ((f"Authorization: Bearer {READER}x",), 401, "the token is not one of this rack's", "unknown token"),
        ((f"Authorization: Bearer {READER}",), 200, "", ""),
        ((f"Authorization: bearer  {WRITER}",), 200, "", ""),
    ],
)
async def test_what_jobs_left_is_for_who_has_a_token(
    tmp_path: Path, headers: tuple[str, ...], status: int, text: str, why: str
) -> None:
    async with serving(tmp_path, TOKENS) as served:
        served.ended("j1")
        for path in ("/runs/", "/runs/j1/", "/runs/j1/summary.json", "/runs/j1.tar", "/runs/j1.log"):
            answered, said = await served.asked("GET", path, *headers)
            assert (answered, text in said) == (status, True), path
        counted = {reason: count for reason, count in served.tallies.refused_requests.items() if count}
        assert counted == ({why: 5} if why else {})
        assert READER not in served.log.getvalue()
        for path in ("/healthz", "/metrics"):
            assert (await served.asked("GET", path))[0] == 200


async def test_the_list_of_jobs_has_verdicts_and_links_and_loads_again_by_itself(tmp_path: Path) -> None:
    async with serving(tmp_path, None) as served:
        assert "no job yet" in (await served.asked("GET", "/runs/"))[1]
        waits, _ = served.rack.store.submit(
            "j2", JobRequest("x", PortDemand(), scenario_name="<step>"), "test"
        )
        served.rack.store.advance(
            waits, JobEvent.CANCELLED, "test", exit_code=ExitCode.VERDICT_FAILED, reason="<slow>"
        )
        job = served.ended("j1")
        page = (await served.asked("GET", "/runs/"))[1]
    assert '<meta http-equiv="refresh" content="10">' in page
    assert f'<td data-head="state">{job.state}' in page
    assert verdict_badge(30) in page
    assert "&lt;slow&gt;" in page
    assert '<td data-head="scenario">&lt;step&gt;</td>' in page
    assert all(f'data-head="{head}"' in page for head in ("ports", "duration"))
    for link in ("j1/", "j1/report.html", "j1.log"):
        assert f'href="{link}"' in page


@pytest.mark.parametrize(
    ("code", "verdict"), [(None, ""), (0, "pass"), (20, "inconclusive"), (30, "fail"), (50, "broke"), (7, "")]
)
def test_the_verdict_of_a_job_is_a_word(code: int | None, verdict: str) -> None:
    assert verdict_of(code) == verdict
    assert (f">{verdict}<" in verdict_badge(code)) == bool(verdict)


async def test_refusals_are_logged_a_few_times_and_shown_as_figures(tmp_path: Path) -> None:
    async with serving(tmp_path, TOKENS) as served:
        for _ in range(20):
            await served.asked("GET", "/runs/")
        assert served.log.getvalue().count("http request refused") == 8
        figures = (await served.asked("GET", "/metrics"))[1]
        assert 'etloop_rack_http_requests_refused_total{reason="no token"} 20.0' in figures


async def test_without_tokens_reading_is_open_and_writing_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, None) as served:
        served.ended("j1")
        assert (await served.asked("GET", "/runs/j1.tar"))[0] == 200
        status, said = await served.asked("PUT", "/runs/j1.tar")
        assert (status, "http.tokens is not set" in said) == (403, True)


async def test_tokens_that_became_unusable_admit_nobody_and_say_why_in_the_log(tmp_path: Path) -> None:
    async with serving(tmp_path, TOKENS) as served:
        (tmp_path / "tokens").chmod(0o644)
        status, said = await served.asked("GET", "/runs/", f"Authorization: Bearer {READER}")
        assert (status, "see its log" in said) == (503, True)
        assert "chmod 600" in served.log.getvalue()


async def test_a_run_is_fetched_with_its_log(tmp_path: Path) -> None:
    async with serving(tmp_path, TOKENS) as served:
        job = served.ended("j1")
        JobLogs(tmp_path / "logs").append("j1", '{"event": "starting"}')
        web, links = RackWeb(served.token(READER)), served.rack.links
        fetched = await to_thread(web.fetch, "j1", links.results(job), links.log(job), tmp_path / "out")
        assert fetched.run_directory == tmp_path / "out" / "j1"
        files = sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*"))
        assert files == ["j1", "j1.log", "j1/captures", "j1/captures/p0.pcapng", "j1/summary.json"]
        assert (fetched.run_directory / "captures" / "p0.pcapng").read_bytes() == bytes(99_840)
        assert json.loads(fetched.log.read_text()) == {"event": "starting"}
        with pytest.raises(ConfigError, match="is already there; name another --out"):
            await to_thread(web.fetch, "j1", links.results(job), links.log(job), tmp_path / "out")


async def test_of_a_job_that_left_nothing_its_log_is_fetched(tmp_path: Path) -> None:
    async with serving(tmp_path, None) as served:
        job, links = served.ended("j1", keeps=False), served.rack.links
        assert links.results(job) == ""
        fetched = await to_thread(RackWeb().fetch, "j1", "", links.log(job), tmp_path / "out")
        assert (fetched.run_directory, fetched.log.read_text()) == (None, "")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/runs/none.tar", "no such job"),
        ("/runs/..%2f..%2fjobs.tar", "no such job"),
        ("/runs/none.log", "no such job"),
        ("/runs/queued.tar", "job queued is queued: it has no results yet"),
        ("/runs/bare.tar", "job bare has no results: none were stored, or retention removed them"),
        ("/runs/lost.tar", "the results of job lost are missing on the rack's disk"),
        ("/runs/linked.tar", "the results of job linked are missing on the rack's disk"),
    ],
)
async def test_what_is_not_there_is_refused_with_its_reason(tmp_path: Path, path: str, said: str) -> None:
    async with serving(tmp_path, None) as served:
        served.ended("bare", keeps=False)
        served.ended("lost")
        shutil.rmtree(tmp_path / "artifacts" / "lost")
        served.ended("linked")
        shutil.rmtree(tmp_path / "artifacts" / "linked")
        (tmp_path / "artifacts" / "linked").symlink_to("/etc")
        served.rack.store.submit("queued", JobRequest("x", PortDemand()), "test")
        assert await served.asked("GET", path) == (404, f"{said}\n")


async def test_what_is_being_read_is_not_removed_and_goes_at_the_next_pass(tmp_path: Path) -> None:
    async with serving(tmp_path, None) as served:
        served.ended("j1")
        retention = Retention(age_ns=NS_PER_S, size_bytes=10, ended_jobs=1, audit_lines=100)
        retaining = Retaining(
            served.rack, retention, tmp_path / "artifacts", RackLog(LogFormat.JSON, io.StringIO())
        )
        retaining.look(0)
        with served.rack.readings.reading("j1"):
            for number in range(60, 180):
                retaining.look(number * NS_PER_S)
                await asyncio.sleep(0)
        assert (tmp_path / "artifacts" / "j1").is_dir()
        async with asyncio.timeout(PATIENCE_S):
            number = 200
            while served.rack.store.artifact_bytes():
                number += 1
                retaining.look(number * NS_PER_S)
                await asyncio.sleep(0)
        await retaining.end()
        assert (await served.asked("GET", "/runs/j1.tar"))[0] == 404
        with served.rack.readings.removing("j2"):
            served.ended("j2")
            status, said = await served.asked("GET", "/runs/j2.tar")
            assert (status, said) == (410, "retention is removing the results of job j2\n")


async def test_who_reads_what_another_removes_halfway_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path, None) as served:
        job, links = served.ended("j1"), served.rack.links
        for name in ("a", "b"):
            with (tmp_path / "artifacts" / "j1" / name).open("wb") as file:
                file.truncate(1 << 28)
        web = RackWeb()
        fetching = asyncio.create_task(
            to_thread(web.fetch, "j1", links.results(job), links.log(job), tmp_path / "out")
        )
        async with asyncio.timeout(PATIENCE_S):
            while not list(tmp_path.glob("out/.j1-*/j1/a")):  # noqa: ASYNC110, ASYNC240 - a file tells nobody
                await asyncio.sleep(0)
        await to_thread(shutil.rmtree, tmp_path / "artifacts" / "j1")
        broken = r"broke off: .*the results of job j1 are missing on the rack's disk"
        with pytest.raises(RackUnreachable, match=broken):
            await fetching
        assert list((tmp_path / "out").iterdir()) == [], "nothing that is not whole has a name"
        assert "a download failed" in served.log.getvalue()


async def test_so_many_downloads_at_once_and_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path, None) as served:
        served.ended("j1")
        with (tmp_path / "artifacts" / "j1" / "large").open("wb") as file:
            file.truncate(1 << 30)
        host, port = served.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 10)
        writer.write(b"GET /runs/j1.tar HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readline()
        status, said = await served.asked("GET", "/runs/j1.tar")
        assert (status, "downloads and uploads at a time" in said) == (503, True)
        assert served.tallies.refused_requests["busy"] == 1
        writer.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            (tmp_path / "artifacts" / "j1" / "large").unlink()
            while (await served.asked("GET", "/runs/j1.tar"))[0] != 200:
                pass


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://rack.example:9420/runs/j1.tar", "the token would cross the network unencrypted"),
        ("ftp://rack.example/j1", "is not the address of a web server"),
        ("file:///etc/passwd", "is not the address of a web server"),
    ],
)
def test_a_token_goes_nowhere_in_clear(tmp_path: Path, url: str, said: str) -> None:
    token = tmp_path / "token"
    token.write_text(READER)
    token.chmod(0o600)
    fetch = partial(RackWeb(token).fetch, "j1", url, url, tmp_path / "out")
    with pytest.raises(ConfigError, match=said):
        fetch()


async def test_the_bare_address_leads_to_the_list_of_runs(tmp_path: Path) -> None:
    async with serving(tmp_path, TOKENS) as served:
        assert (await served.asked("GET", "/"))[0] == 401
        reader, writer = await asyncio.open_connection(*served.base.removeprefix("http://").split(":"))
        writer.write(f"GET / HTTP/1.0\r\nAuthorization: Bearer {READER}\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            answer = (await reader.read()).decode()
        writer.close()
        assert answer.split()[1] == "302"
        assert "Location: runs/" in answer


async def test_a_name_that_is_not_the_racks_reads_nothing(tmp_path: Path) -> None:
    """Scripts of a site whose DNS points here would read with the rights of the person viewing it."""
    async with serving(tmp_path, None) as served:
        served.ended("20260101-1")
        status, text = await served.asked("GET", "/runs/", name="evil.example:9420")
        assert (status, "set http.url" in text) == (421, True)
        assert served.tallies.refused_requests["wrong host"] == 1
        assert (await served.asked("GET", "/healthz", name="evil.example"))[0] in (200, 503)


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        *(("", True), ("rack.example:9420", True), ("RACK.example", True), ("localhost:1", True)),
        *(("10.0.0.1", True), ("10.0.0.1:9420", True), ("[fe80::1]:9420", True), ("[::1]", True)),
        *(
            ("evil.example", False),
            ("evil.example:9420", False),
            ("rack.example.evil:1", False),
            (":9420", False),
        ),
    ],
)
def test_hosts_are_recognised(host: str, is_own: bool) -> None:
    assert is_own_host(host, {"rack.example"}) is is_own


async def test_no_page_lets_scripts_run(tmp_path: Path) -> None:
    async with serving(tmp_path, None) as served:
        for path in ("/runs/", "/runs/none.tar", "/nowhere"):
            head = (await served.answer("GET", path)).partition("\r\n\r\n")[0]
            assert "Content-Security-Policy: default-src 'none'; style-src" in head, path
            assert "script-src" not in head


async def test_a_file_that_cannot_be_examined_is_not_called_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_lstat = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        if path.name == "summary.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real_lstat(path)

    async with serving(tmp_path, None) as served:
        served.ended("j1")
        monkeypatch.setattr(Path, "lstat", lstat)
        status, text = await served.asked("GET", "/runs/j1/summary.json")
    assert (status, text) == (500, "it cannot be read: Input/output error\n")

"""A rack's HTTP server by itself: its pages, tokens, logs and traces, without agents, broker or daemon."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.job import Job, JobEvent, JobRequest, PortDemand
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.store.job_logs import JobLogs
from etloop.controller.rack.store.job_store import JobStore
from etloop.controller.rack.submissions import RackLimits
from etloop.controller.rack.telemetry.condition_pages import ConditionPages
from etloop.controller.rack.telemetry.http import HttpGateway
from etloop.controller.rack.telemetry.metrics import RackCollector, Tallies
from etloop.controller.rack.transfers.admission import HttpAdmission
from etloop.controller.rack.transfers.links import Links
from etloop.controller.rack.transfers.run_pages import RunPages
from etloop.controller.rack.transfers.tokens import token_file
from etloop.controller.rack.transfers.trace_check import trace_problems
from etloop.controller.rack.transfers.trace_pages import TraceDirectory, TracePages
from etloop.controller.rack.transfers.trace_shelf import TraceShelf
from etloop.controller.rack.transfers.transfers import Transfers
from tests.support.first_light.commands import PATIENCE_S
from tests.support.ports import free_port

READER: Final = "r" * 32
WRITER: Final = "w" * 32
TOKENS: Final = f"ann read {READER}\nci write {WRITER}\n"
LARGEST_BYTES: Final = 200_000
"""Of one trace; all may have twice as much."""


@dataclass(frozen=True, slots=True)
class Served:
    """A rack's HTTP server, and its rack."""

    rack: Rack
    base: str
    directory: Path
    tallies: Tallies
    log: io.StringIO

    def ended(self, job_id: str, *, keeps: bool = True) -> Job:
        """A job that has ended, and left two files."""
        job, _ = self.rack.store.submit(job_id, JobRequest("x", PortDemand()), "test")
        if not keeps:
            return self.rack.store.advance(job, JobEvent.CANCELLED, "test")
        run = self.directory / "artifacts" / job_id
        (run / "captures").mkdir(parents=True)
        (run / "summary.json").write_text("{}\n")
        (run / "captures" / "p0.pcapng").write_bytes(bytes(99_840))
        return self.rack.store.advance(
            job, JobEvent.CANCELLED, "test", run_directory=job_id, artifact_bytes=99_843
        )

    def token(self, token: str) -> Path:
        """A file that holds it."""
        path = self.directory / f"{token[:4]}.token"
        path.write_text(token)
        path.chmod(0o600)
        return path

    async def asked(
        self, method: str, path: str, *headers: str, body: bytes = b"", name: str = "127.0.0.1"
    ) -> tuple[int, str]:
        """Status and text of an answer to a request by a name of the server."""
        answer = await self.answer(method, path, *headers, body=body, name=name)
        return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]

    async def answer(
        self, method: str, path: str, *headers: str, body: bytes = b"", name: str = "127.0.0.1"
    ) -> str:
        """A whole answer, with its headers."""
        host, port = self.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = (
            f"{method} {path} HTTP/1.1",
            f"Host: {name}",
            f"Content-Length: {len(body)}",
            *headers,
            "",
            "",
        )
        writer.write("\r\n".join(lines).encode() + body)
        async with asyncio.timeout(PATIENCE_S):
            answer = (await reader.read()).decode(errors="replace")
        writer.close()
        return answer


@contextlib.asynccontextmanager
async def serving(directory: Path, tokens: str | None) -> AsyncIterator[Served]:
    """A server with these tokens."""
    store = JobStore.open(directory / "jobs.sqlite")
    rack = Rack(store, (), RackLimits(9, 9, 1 << 20, 1), ScenarioRules(directory), lambda: "j")
    stream, tallies, bind = io.StringIO(), Tallies(), ("127.0.0.1", free_port())
    log = RackLog(LogFormat.JSON, stream)
    (directory / "logs").mkdir()
    (directory / "artifacts").mkdir()
    logs = JobLogs(directory / "logs")
    log.keep(logs)
    file = None
    if tokens is not None:
        (directory / "tokens").write_text(tokens)
        (directory / "tokens").chmod(0o600)
        file = token_file(directory / "tokens")
    rack.links = Links(f"http://{bind[0]}:{bind[1]}")
    admission = HttpAdmission(file, tallies.refused_requests, log)
    pages = RunPages(rack, directory / "artifacts", logs, admission, Transfers(most=1), log)
    rack.traces = TraceShelf(2 * LARGEST_BYTES)
    traces = TracePages(
        rack,
        TraceDirectory(directory / "traces", LARGEST_BYTES, 1),
        partial(trace_problems, memory_bytes=4 << 30),
        admission,
        Transfers(),
        log,
    )
    traces.open()
    collector = RackCollector(rack, lambda: (), tallies, lambda: 0, lambda: False)
    condition = ConditionPages(rack, collector, lambda: ())
    gateway = HttpGateway(bind, (*condition.routes(), *pages.routes(), *traces.routes()), admission, log)
    task = asyncio.create_task(gateway.serve())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while "http listens" not in stream.getvalue():  # noqa: ASYNC110 - a log tells nobody
                await asyncio.sleep(0)
        yield Served(rack, rack.links.base, directory, tallies, stream)
    finally:
        task.cancel()
        await asyncio.wait([task])
        store.close()

"""The rack over HTTP, for looking only: /metrics, /healthz, /runs/. A gateway to the rack; a shell around aiohttp.

Serves the files of run directories as they are, and nothing else of the disk. Nothing can be changed from here.
"""

from __future__ import annotations

import asyncio
import html
import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from etloop.controller.rack.events import RackState
from etloop.controller.rack.runs.confinement import within
from etloop.controller.rack.telemetry.connections import Connections
from etloop.controller.rack.telemetry.metrics import RackCollector, exposition

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack
    from etloop.controller.rack.log import RackLog

_LISTED: Final = 200
_BACKLOG: Final = 16
"""Connections that the kernel takes before the loop does, and that it takes at once: each costs a descriptor."""
_GRACE_S: Final = 2.0
_LONGEST_TROUBLE: Final = 500
_TYPES: Final = {
    ".json": "application/json",
    ".html": "text/html",
    ".xml": "application/xml",
    ".yaml": "text/plain",
    ".parquet": "application/vnd.apache.parquet",
    ".pcapng": "application/octet-stream",
}
_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ETLoop: {title}</title>
<style>body{{font:15px system-ui;margin:2rem;max-width:72rem}}td,th{{padding:.2rem .8rem .2rem 0;text-align:left}}</style>
<h1>{title}</h1>{body}</html>
"""


class HttpGateway:
    """Serves a rack over HTTP until it is cancelled."""

    def __init__(
        self,
        rack: Rack,
        collector: RackCollector,
        artifacts: Path,
        bind: tuple[str, int],
        log: RackLog,
        obstacles: Callable[[], tuple[str, ...]],
    ) -> None:
        self._rack = rack
        self._collector = collector
        self._artifacts = artifacts
        self._bind = bind
        self._log = log
        self._library_log = logging.Logger("http", logging.ERROR)  # noqa: LOG001 - of this gateway alone
        self._library_log.addFilter(self._hear_library)
        self._obstacles = obstacles
        self._connections = Connections()

    async def live(self) -> None:
        """See `Gateway`."""
        app = web.Application(client_max_size=0, middlewares=[self._connections.middleware])
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._health),
                web.get("/runs/", self._runs),
                web.get("/runs/{job}/", self._run),
                web.get("/runs/{job}/{file}", self._file),
            ]
        )
        runner = web.AppRunner(app, access_log=None, logger=self._library_log, shutdown_timeout=_GRACE_S)
        await runner.setup()
        assert runner.server is not None, "set up"
        host, port = self._bind
        protocols = self._connections.factory(runner.server)
        try:
            server = await asyncio.get_running_loop().create_server(protocols, host, port, backlog=_BACKLOG)
            try:
                self._log.rack("http listens", address=f"{host}:{port}")
                await asyncio.Event().wait()
            finally:
                server.close()
        finally:
            await runner.cleanup()

    async def farewell(self) -> None:
        """See `Gateway`; who reads learns it from /healthz while the rack drains."""

    def _hear_library(self, record: logging.LogRecord) -> bool:
        """What aiohttp has to say of itself becomes a line of the rack's log, but for requests that are none: those are answered
        (400) and not told, as a flood of them must not become one of the log."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            self._log.rack("http trouble", what=f"{record.getMessage()}: {error!r}"[:_LONGEST_TROUBLE])
        return False

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=exposition(self._collector), headers={"Content-Type": "text/plain; version=0.0.4"}
        )

    async def _health(self, _: web.Request) -> web.Response:
        reasons = list(self._obstacles())
        if self._rack.state is not RackState.READY:
            reasons.append(f"the controller is {self._rack.state}")
        body = {"live": True, "ready": not reasons, "reasons": reasons}
        return web.json_response(body, status=503 if reasons else 200)

    async def _runs(self, _: web.Request) -> web.Response:
        rows = []
        for job in self._rack.store.latest(_LISTED):
            link = (
                f'<a href="{html.escape(job.job_id)}/">{html.escape(job.job_id)}</a>'
                if job.run_directory
                else job.job_id
            )
            code = "" if job.exit_code is None else int(job.exit_code)
            reason = html.escape(job.reason.partition("\n")[0])
            rows.append(f"<tr><td>{link}<td>{job.state}<td>{code}<td>{job.submitted_at}<td>{reason}")
        head = "<tr><th>job<th>state<th>exit code<th>submitted<th>reason"
        return _page("runs", f"<table>{head}{''.join(rows)}</table>")

    async def _run(self, request: web.Request) -> web.Response:
        directory = self._directory(request.match_info["job"])
        files = sorted(path.name for path in directory.iterdir() if path.is_file() and not path.is_symlink())
        names = "".join(f'<li><a href="{html.escape(name)}">{html.escape(name)}</a>' for name in files)
        return _page(f"run {html.escape(directory.name)}", f"<ul>{names}</ul>")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        path = self._directory(request.match_info["job"]) / request.match_info["file"]
        if not _is_plain_file(path) or not within(path, self._artifacts):
            raise web.HTTPNotFound(text="there is no such file\n")
        kind = _TYPES.get(path.suffix, "application/octet-stream")
        # What a run stored is data, whatever its name says: nothing of it may act for who looks at it.
        headers = {
            "Content-Type": kind,
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'unsafe-inline'",
        }
        return web.FileResponse(path, headers=headers)

    def _directory(self, job_id: str) -> Path:
        job = self._rack.store.find(job_id)
        if job is None or not job.run_directory:
            raise web.HTTPNotFound(text="there is no such run\n")
        directory = self._artifacts / job.run_directory
        if not directory.is_dir() or not within(directory, self._artifacts):
            raise web.HTTPNotFound(text="what the run left is gone\n")
        return directory


def _is_plain_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):  # Names that no file can have are of none.
        return False


def _page(title: str, body: str) -> web.Response:
    return web.Response(text=_PAGE.format(title=title, body=body), content_type="text/html")

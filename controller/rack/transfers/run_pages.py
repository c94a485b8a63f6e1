"""Results of jobs over HTTP: a list, single files, a job's files as one archive, and its log. A shell around aiohttp.

Serves files of run directories and nothing else of the disk. A directory is not removed while it is read (`reading`),
and the daemon's loop never waits for the disk. `admission` decides who may ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import html
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

from etloop.contract.base.printable import printable
from etloop.controller.rack.job import ENDED
from etloop.controller.rack.job_words import duration_words, port_words
from etloop.controller.rack.runs.confinement import within
from etloop.controller.rack.transfers.admission import BUSY, HttpAdmission
from etloop.controller.rack.transfers.archive import NotArchivable, RunArchive
from etloop.controller.rack.transfers.live_page import live_page, table, verdict_badge
from etloop.controller.rack.transfers.reading import BeingRemoved
from etloop.controller.rack.transfers.transfers import MOST_TRANSFERS, TooMany, Transfers

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack
    from etloop.controller.rack.job import Job
    from etloop.controller.rack.log import RackLog
    from etloop.controller.rack.store.job_logs import JobLogs

_LISTED: Final = 200
_AGAIN_S: Final = "10"
"""Value of Retry-After for a busy answer."""
_TYPES: Final = {
    ".json": "application/json",
    ".html": "text/html",
    ".xml": "application/xml",
    ".yaml": "text/plain",
    ".parquet": "application/vnd.apache.parquet",
    ".pcapng": "application/octet-stream",
}
_NO_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ETLoop: {title}</title>
<style>body{{font:15px system-ui;margin:2rem;max-width:72rem}}td,th{{padding:.2rem .8rem .2rem 0;text-align:left}}</style>
<h1>{title}</h1>{body}</html>
"""


class RunPages:
    """The pages of one rack's jobs, to view and to download."""

    def __init__(
        self,
        rack: Rack,
        artifacts: Path,
        logs: JobLogs,
        admission: HttpAdmission,
        transfers: Transfers,
        log: RackLog,
    ) -> None:
        self._rack = rack
        self._artifacts = artifacts
        self._logs = logs
        self._admission = admission
        self._transfers = transfers
        self._log = log

    def routes(self) -> list[web.AbstractRouteDef]:
        """Return the routes and their handlers."""
        return [
            web.get("/", self._root),
            web.get("/runs/", self._runs),
            web.get(r"/runs/{job:[^/]+}.tar", self._archive),
            web.get(r"/runs/{job:[^/]+}.log", self._log_of),
            web.get("/runs/{job}/", self._run),
            web.get("/runs/{job}/{file}", self._file),
        ]

    async def _root(self, _: web.Request) -> web.Response:
        """Redirect the root to the list of runs."""
        raise web.HTTPFound("runs/")

    async def _runs(self, _: web.Request) -> web.Response:
        rows = []
        for job in self._rack.store.latest(_LISTED):
            name = html.escape(job.job_id)
            link = f'<a href="{name}/">{name}</a>' if job.run_directory else name
            if job.run_directory:
                link += f' <a class="dim" href="{name}/report.html">report</a>'
            link += f' <a class="dim" href="{name}.log">log</a>'
            words = job.request.scenario_name, port_words(job.leased)
            scenario, ports = (html.escape(printable(text)) for text in words)
            times = job.submitted_at, job.started_at, duration_words(job.started_at, job.ended_at)
            reason = html.escape(job.reason.partition("\n")[0])
            badge = verdict_badge(job.exit_code)
            rows.append((link, job.state.value, badge, scenario, ports, *times, reason))
        heads = ("job", "state", "verdict", "scenario", "ports", "submitted", "started", "duration", "reason")
        content = table(heads, rows) if rows else '<p class="dim">no job yet</p>'
        return web.Response(
            text=live_page("ETLoop: runs", f"<h1>runs</h1>{content}"), content_type="text/html"
        )

    async def _run(self, request: web.Request) -> web.Response:
        with self._run_of(request) as directory:
            files = await asyncio.to_thread(_files, directory)
        name = html.escape(directory.name)
        items = "".join(f'<li><a href="{html.escape(file)}">{html.escape(file)}</a>' for file in files)
        archive_link = (
            f'<p><a href="../{name}.tar">all of it as {name}.tar</a>, <a href="../{name}.log">log</a>'
        )
        return _page(f"run {name}", f"<ul>{items}</ul>{archive_link}")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        with self._run_of(request) as directory:
            path = directory / request.match_info["file"]
            try:
                may_be_sent = await asyncio.to_thread(_may_be_sent, path, self._artifacts)
            except OSError as error:
                raise web.HTTPInternalServerError(text=f"it cannot be read: {error.strerror}\n") from None
            if not may_be_sent:
                raise web.HTTPNotFound(text="no such file\n")
            kind = _TYPES.get(path.suffix, "application/octet-stream")
            response = web.FileResponse(path, headers={"Content-Type": kind})
            # Send it here, within the block, and not later by aiohttp: the directory is kept until all is sent.
            await response.prepare(request)
            return response

    async def _archive(self, request: web.Request) -> web.StreamResponse:
        with self._run_of(request) as directory:
            try:
                archive = await asyncio.to_thread(RunArchive.list_directory, directory, directory.name)
            except NotArchivable as error:
                raise web.HTTPForbidden(text=f"{error}; fetch its files one by one\n") from None
            except OSError as error:
                raise web.HTTPInternalServerError(text=f"it cannot be read: {error.strerror}\n") from None
            return await self._send(request, archive)

    async def _send(self, request: web.Request, archive: RunArchive) -> web.StreamResponse:
        name = archive.directory.name
        headers = {
            "Content-Type": "application/x-tar",
            "Content-Length": str(archive.size_bytes),
            "Content-Disposition": f'attachment; filename="{name}.tar"',
        }
        response = web.StreamResponse(headers=headers)
        if request.method == "HEAD":
            return response
        pieces = archive.pieces()
        try:
            with self._transfers.begin(pieces.close) as transfer:
                await response.prepare(request)
                try:
                    while (piece := await transfer.call(lambda: next(pieces, None))) is not None:
                        await response.write(piece)
                except (NotArchivable, OSError) as error:
                    if not isinstance(error, ConnectionError):
                        self._log.job(name, "a download failed", why=str(error))
                    # Missing bytes show the reader that it is incomplete; a repeated request is answered with the reason.
                    if request.transport is not None:
                        request.transport.abort()
        except TooMany:
            text = f"at most {MOST_TRANSFERS} downloads and uploads at a time; try again later\n"
            busy = web.HTTPServiceUnavailable(text=text, headers={"Retry-After": _AGAIN_S})
            raise self._admission.refuse(request, BUSY, busy) from None
        return response

    async def _log_of(self, request: web.Request) -> web.Response:
        job = self._job(request)
        try:
            lines = await asyncio.to_thread(self._logs.read, job.job_id)
        except OSError as error:
            raise web.HTTPInternalServerError(text=f"it cannot be read: {error.strerror}\n") from None
        return web.Response(body=lines, headers={"Content-Type": "application/x-ndjson"})

    @contextlib.contextmanager
    def _run_of(self, request: web.Request) -> Iterator[Path]:
        """Yield the run directory that a request names, which is kept for the block.

        Raises an HTTP error with the reason if there is none.
        """
        job = self._job(request)
        if job.state not in ENDED:
            raise web.HTTPNotFound(text=f"job {job.job_id} is {job.state}: it has no results yet\n")
        if not job.run_directory:
            text = f"job {job.job_id} has no results: none were stored, or retention removed them\n"
            raise web.HTTPNotFound(text=text)
        directory = self._artifacts / job.run_directory
        try:
            with self._rack.readings.reading(job.job_id):
                if not directory.is_dir() or not within(directory, self._artifacts):
                    raise web.HTTPNotFound(
                        text=f"the results of job {job.job_id} are missing on the rack's disk\n"
                    )
                yield directory
        except BeingRemoved:
            text = f"retention is removing the results of job {job.job_id}\n"
            raise web.HTTPGone(text=text) from None

    def _job(self, request: web.Request) -> Job:
        job = self._rack.store.find(request.match_info["job"])
        if job is None:
            raise web.HTTPNotFound(text="no such job\n")
        return job


def _files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_file() and not path.is_symlink())


def _may_be_sent(path: Path, artifacts: Path) -> bool:
    """Return whether a file exists and lies in the results. Raises `OSError` if that cannot be determined."""
    try:
        return stat.S_ISREG(path.lstat().st_mode) and within(path, artifacts)
    except ValueError:  # A name that no file can have.
        return False
    except OSError as error:
        if error.errno in _NO_FILE:
            return False
        raise


def _page(title: str, body: str) -> web.Response:
    return web.Response(text=_PAGE.format(title=title, body=body), content_type="text/html")

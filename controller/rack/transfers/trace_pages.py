"""Trace uploads over HTTP: put by the digest of the archive, checked, kept, listed. A shell around aiohttp.

An archive is written to a temporary file next to the kept ones, and renamed only after its digest was verified and it
was read as a trace (`trace_check`). It is never unpacked. `trace_shelf` decides which traces stay, `admission` who may
ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from aiohttp import web

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes
from etloop.controller.rack.job import ON_PORTS, JobState
from etloop.controller.rack.store.job_store import StoreFailed
from etloop.controller.rack.telemetry.connections import STALL_TIMEOUT_S
from etloop.controller.rack.transfers.admission import BUSY, HOLDER, HttpAdmission
from etloop.controller.rack.transfers.tokens import Right
from etloop.controller.rack.transfers.trace_names import digest_of_file, digests_in, file_name
from etloop.controller.rack.transfers.transfers import MOST_TRANSFERS, TooMany, Transfer, Transfers

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack
    from etloop.controller.rack.log import RackLog

_PIECE_BYTES: Final = 1 << 18
_COMING: Final = ".coming-"
_AGAIN_S: Final = "10"


@dataclass(frozen=True, slots=True)
class TraceDirectory:
    """Directory of uploaded traces, and its limits."""

    path: Path
    largest_bytes: int
    """Most bytes of one archive."""
    free_disk_bytes: int
    """Disk space that has to stay free."""


class TracePages:
    """The uploaded traces of one rack. `check` returns why an archive is not a usable trace."""

    def __init__(
        self,
        rack: Rack,
        directory: TraceDirectory,
        check: Callable[[Path], Awaitable[tuple[Problem, ...]]],
        admission: HttpAdmission,
        transfers: Transfers,
        log: RackLog,
    ) -> None:
        self._rack = rack
        self._directory = directory
        self._check = check
        self._admission = admission
        self._transfers = transfers
        self._log = log
        self._checking = asyncio.Lock()
        """Checks run one at a time; waiting ones count towards the time limit of their answers."""

    def open(self) -> None:
        """Register the kept traces, and remove incomplete uploads. Raises `OSError`."""
        self._directory.path.mkdir(exist_ok=True)
        kept_traces: list[tuple[int, str, int]] = []
        for path in self._directory.path.iterdir():
            if path.name.startswith(_COMING):
                path.unlink()
            elif digest := digest_of_file(path):
                status = path.lstat()
                kept_traces.append((status.st_mtime_ns, digest, status.st_size))
        for _, digest, size_bytes in sorted(kept_traces):
            self._rack.traces.keep(digest, size_bytes)

    def routes(self) -> list[web.AbstractRouteDef]:
        """Return the routes and their handlers."""
        put = web.put(r"/traces/{digest:[0-9a-f]{64}}", self._put, expect_handler=self._admission.expect)
        return [
            web.get("/traces/", self._list),
            web.get(r"/traces/{digest:[0-9a-f]{64}}", self._get),
            put,
        ]

    async def _list(self, request: web.Request) -> web.Response:
        shelf = self._rack.traces
        rows = [{"digest": digest, "bytes": size_bytes} for digest, size_bytes in shelf.kept.items()]
        answer = {
            "may_write": request[HOLDER].may(Right.WRITE) and self._admission.has_tokens,
            "largest_bytes": self._directory.largest_bytes,
            "most_bytes": shelf.most_bytes,
            "traces": rows,
        }
        return web.json_response(answer)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        digest = request.match_info["digest"]
        if self._rack.traces.missing({digest}):
            raise web.HTTPNotFound(text="this rack has no such trace\n")
        headers = {"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff"}
        # A reader keeps the open file, even if it is unlinked to make room meanwhile.
        return web.FileResponse(self._directory.path / file_name(digest), headers=headers)

    async def _put(self, request: web.Request) -> web.Response:
        digest, holder = request.match_info["digest"], request[HOLDER]
        if not self._rack.traces.missing({digest}):
            return web.json_response({"digest": digest, "known": True})
        size_bytes = self._stated_size(request)
        async with self._room(size_bytes):
            with self._coming(request) as (transfer, file):
                path = Path(file.name)
                await self._receive(request, transfer, file, size_bytes)
                async with self._checking:
                    problems = await self._check(path)
                if problems:
                    problem_lines = "\n".join(map(str, problems))
                    self._log.rack(
                        "a trace was refused", digest=digest, why=str(problems[0]), who=holder.name
                    )
                    raise web.HTTPUnprocessableEntity(
                        text=f"the trace cannot be used by a job:\n{problem_lines}\n"
                    )
                try:
                    self._rack.store.note(
                        f"http {holder.name}", "uploaded a trace", detail=f"sha256:{digest}"
                    )
                    await transfer.call(lambda: path.rename(self._directory.path / file_name(digest)))
                except (OSError, StoreFailed) as error:
                    raise web.HTTPInsufficientStorage(text=f"it cannot be kept: {error}\n") from None
                self._rack.traces.keep(digest, size_bytes)
        self._log.rack("a trace was uploaded", digest=digest, bytes=size_bytes, who=holder.name)
        return web.json_response({"digest": digest, "known": False}, status=201)

    def _stated_size(self, request: web.Request) -> int:
        size_bytes, largest_bytes = request.content_length, self._directory.largest_bytes
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise web.HTTPUnsupportedMediaType(text="send the archive without Content-Encoding\n")
        if size_bytes is None:
            raise web.HTTPLengthRequired(text="send the archive's length as Content-Length\n")
        if not 0 < size_bytes <= largest_bytes:
            text = f"archive of {size_bytes} bytes; expected 1 to {largest_bytes} (http.trace)\n"
            raise web.HTTPRequestEntityTooLarge(largest_bytes, size_bytes, text=text)
        return size_bytes

    @contextlib.asynccontextmanager
    async def _room(self, size_bytes: int) -> AsyncIterator[None]:
        """Reserve room for an upload during the block, for which older traces may be removed."""
        try:
            free_bytes = shutil.disk_usage(self._directory.path).free - self._directory.free_disk_bytes
        except OSError as error:
            raise web.HTTPInsufficientStorage(
                text=f"the rack's disk cannot be used: {error.strerror}\n"
            ) from None
        if size_bytes > free_bytes:
            text = f"the rack's disk has no room for {approximate_bytes(size_bytes)} more\n"
            raise web.HTTPInsufficientStorage(text=text)
        shelf = self._rack.traces
        try:
            unended = self._rack.store.in_states(JobState.QUEUED, *ON_PORTS)
        except StoreFailed as error:
            raise web.HTTPInsufficientStorage(text=f"{error}\n") from None
        named_digests = frozenset().union(*(digests_in(job.request.scenario_text) for job in unended))
        removed_digests = shelf.expect(size_bytes, named_digests)
        if removed_digests is None:
            text = (
                f"the rack keeps {approximate_bytes(shelf.most_bytes)} of traces (http.traces), "
                f"and those of jobs that have not ended leave no room for {approximate_bytes(size_bytes)}\n"
            )
            raise web.HTTPInsufficientStorage(text=text)
        try:
            # Drop all first: from now on no job may name one of them.
            for digest in removed_digests:
                shelf.drop(digest)
            for digest in removed_digests:
                await self._remove(digest)
            yield
        finally:
            shelf.release(size_bytes)

    async def _remove(self, digest: str) -> None:
        try:
            # In a thread: unlinking a large file takes a while.
            await asyncio.to_thread((self._directory.path / file_name(digest)).unlink, missing_ok=True)
        except OSError as error:
            text = f"cannot remove older traces: {error.strerror}\n"
            raise web.HTTPInsufficientStorage(text=text) from None
        self._log.rack("a trace was removed to make room", digest=digest)

    @contextlib.contextmanager
    def _coming(self, request: web.Request) -> Iterator[tuple[Transfer, IO[bytes]]]:
        """Yield a transfer and the temporary file that it fills, which is unlinked afterwards unless it was renamed."""
        try:
            file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - `end` closes it, in the transfer's thread
                dir=self._directory.path, prefix=_COMING, delete=False
            )
        except OSError as error:
            raise web.HTTPInsufficientStorage(text=f"it cannot be written: {error.strerror}\n") from None

        def end() -> None:
            file.close()
            Path(file.name).unlink(missing_ok=True)

        try:
            with self._transfers.begin(end) as transfer:
                yield transfer, file
        except TooMany:
            end()
            text = f"at most {MOST_TRANSFERS} downloads and uploads at a time; try again later\n"
            busy = web.HTTPServiceUnavailable(text=text, headers={"Retry-After": _AGAIN_S})
            raise self._admission.refuse(request, BUSY, busy) from None

    async def _next_piece(self, request: web.Request) -> bytes:
        """Return further bytes of the body, b"" after its end; refuse a client that sends none for a while."""
        try:
            async with asyncio.timeout(STALL_TIMEOUT_S):
                return await request.content.read(_PIECE_BYTES)
        except TimeoutError:
            text = f"no byte of the archive arrived for {STALL_TIMEOUT_S:g} s: send it again\n"
            raise web.HTTPRequestTimeout(text=text) from None

    async def _receive(
        self, request: web.Request, transfer: Transfer, file: IO[bytes], size_bytes: int
    ) -> None:
        """Write the body to the file, and refuse it if its length or digest is wrong."""
        digest = hashlib.sha256()

        def take(piece: bytes) -> None:
            digest.update(piece)
            file.write(piece)

        received_bytes = 0
        try:
            while piece := await self._next_piece(request):
                received_bytes += len(piece)
                await transfer.call(lambda piece=piece: take(piece))  # type: ignore[misc]
            await transfer.call(file.flush)
            await transfer.call(lambda: os.fsync(file.fileno()))
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise web.HTTPInsufficientStorage(text=f"it cannot be written: {error.strerror}\n") from None
        if received_bytes != size_bytes or digest.hexdigest() != request.match_info["digest"]:
            text = (
                f"received {received_bytes} bytes with SHA-256 {digest.hexdigest()}: send the archive again\n"
            )
            raise web.HTTPBadRequest(text=text)

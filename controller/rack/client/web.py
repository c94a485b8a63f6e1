"""Fetches jobs' results from a rack's HTTP server, and uploads traces to it. A shell: sockets and files; it blocks.

The token is sent only to the address that the rack named: no redirect is followed, no proxy used, and no network
crossed unencrypted. Answers are treated as hostile: an archive's members are regular files below one folder, bounded in
number, and nothing appears under its final name before it is complete.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final
from urllib.parse import urlsplit

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.contract.protocol.endpoint import is_loopback
from etloop.controller.rack.client.client import RackUnreachable
from etloop.runtime.secret_file import read_secret
from etloop.workload.readers.tar_members import MemberKind, TarFault, TarMember, members

_PIECE_BYTES: Final = 1 << 18
_SILENCE_S: Final = 30.0
"""Longest time without data from the server."""
_CHECK_S: Final = 600.0
"""Longest time for the server to check an uploaded trace before it answers."""
_MOST_STATE_BYTES: Final = 4 << 20
_MOST_FILES: Final = 10_000
_MOST_LOG_BYTES: Final = 16 << 20
_MOST_REASON_BYTES: Final = 4096
_REFUSED: Final = {
    401: "give --token-file FILE with a token of this rack",
    403: "ask the rack's owner for a token with that right",
    503: "try again in some seconds",
}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect like any other answer that is not a success."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Fetched:
    """Places of a job's fetched results."""

    log: Path
    run_directory: Path | None
    """None if only the log of the job was kept."""


class RackWeb:
    """A client of racks' HTTP servers. `token_file` has the token, `ca` a certificate authority to trust in addition.

    Calls raise `ConfigError` if a request is refused or an argument unusable, `RackUnreachable` if a connection fails.
    """

    def __init__(self, token_file: Path | None = None, ca: Path | None = None) -> None:
        self._token = read_secret(token_file) if token_file is not None else ""
        context = ssl.create_default_context()
        if ca is not None:
            try:
                context.load_verify_locations(ca)
            except (OSError, ssl.SSLError) as error:
                problem = f"cannot be used as certificate authority: {error}"
                raise ConfigError(Problem(str(ca), problem, "name a PEM file with its certificate")) from None
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirect()
        )

    def fetch(self, job_id: str, results_url: str, log_url: str, out: Path) -> Fetched:
        """Store a job's run directory as `out`/JOB_ID and its log as `out`/JOB_ID.log.

        `results_url` is "" if only the log was kept.
        """
        directory, log = out / job_id, out / f"{job_id}.log"
        for target in (directory, log):
            if target.exists() or target.is_symlink():
                remedy = "name another --out, or move it away"
                raise ConfigError(Problem(str(target), "is already there", remedy))
        try:
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{job_id}-", dir=out) as temporary_name:
                temporary = Path(temporary_name)
                if results_url:
                    with self._open(results_url) as answer:
                        _unpack(_Counted(answer, results_url), job_id, temporary)
                    (temporary / job_id).rename(directory)
                with self._open(log_url) as answer:
                    text = answer.read(_MOST_LOG_BYTES)
                log.write_bytes(text)
        except OSError as error:
            problem = f"cannot be written: {error.strerror or error}"
            raise ConfigError(Problem(str(error.filename or out), problem, "name another --out")) from None
        return Fetched(log, directory if results_url else None)

    def upload(self, base: str, archive: Path, digest: str) -> bool:
        """Upload an archive unless the rack has it already, and return whether it had. `base`: `ControllerStatus.http_url`."""
        size_bytes = archive.stat().st_size
        with self._open(f"{base}/traces/") as answer:
            state = _state_of(answer.read(_MOST_STATE_BYTES), base)
        if digest in state.digests:
            return True
        if not state.may_write:
            remedy = "give --token-file FILE with a token that may write (http.tokens of the rack)"
            raise ConfigError(Problem(f"{base}/traces/", "does not accept traces from this client", remedy))
        if size_bytes > state.largest_bytes:
            problem = f"has {size_bytes} bytes packed; the rack accepts at most {state.largest_bytes}"
            raise ConfigError(Problem("the trace", problem, "ask the rack's owner to raise http.trace"))
        with archive.open("rb") as body:
            request = self._request("PUT", f"{base}/traces/{digest}", body)
            request.add_header("Content-Length", str(size_bytes))
            request.add_header("Content-Type", "application/octet-stream")
            with self._open(request.full_url, request, _CHECK_S) as answer:
                answer.read(_MOST_REASON_BYTES)
        return False

    @contextlib.contextmanager
    def _open(
        self, url: str, request: urllib.request.Request | None = None, silence_s: float = _SILENCE_S
    ) -> Iterator[Any]:
        """Yield the answer to a request if it is a success. Raises `ConfigError` or `RackUnreachable` otherwise."""
        self._refuse_exposure(url)
        request = request or self._request("GET", url)
        try:
            with self._opener.open(request, timeout=silence_s) as answer:
                try:
                    yield answer
                except (_BrokenOff, TimeoutError, ConnectionError, http.client.HTTPException) as error:
                    raise RackUnreachable(
                        f"{url} broke off: {error or type(error).__name__}; {self._why(url)}"
                    ) from None
        except urllib.error.HTTPError as error:
            raise _refusal(url, error) from None
        except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            remedy = "check http.url of the rack, and that its server is reachable"
            raise RackUnreachable(f"{url} does not answer: {reason}; {remedy}") from None

    def _why(self, url: str) -> str:
        """Return the rack's explanation of an answer that broke off, by repeating the request."""
        try:
            with self._opener.open(self._request("GET", url), timeout=_SILENCE_S):
                return "fetch it again"
        except urllib.error.HTTPError as error:
            with error:
                return _text_of(error)
        except (OSError, http.client.HTTPException):
            return "the rack stopped answering"

    def _request(self, method: str, url: str, body: IO[bytes] | None = None) -> urllib.request.Request:
        request = urllib.request.Request(url, body, method=method)  # noqa: S310 - http or https, see `_refuse_exposure`
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return request

    def _refuse_exposure(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                Problem(
                    printable(url[:256]), "is not the address of a web server", "see http.url of the rack"
                )
            )
        if (
            self._token
            and parts.scheme == "http"
            and not is_loopback(f"tcp://{_in_brackets(parts.hostname)}:1")
        ):
            problem = "the token would cross the network unencrypted"
            remedy = "put a proxy with TLS before the rack, and its https:// address into http.url"
            raise ConfigError(Problem(url, problem, remedy))


@dataclass(frozen=True, slots=True)
class _State:
    """The traces that a rack has and accepts."""

    may_write: bool
    largest_bytes: int
    digests: frozenset[str]


def _state_of(text: bytes, base: str) -> _State:
    try:
        state = json.loads(text)
        digests = frozenset(str(trace["digest"]) for trace in state["traces"])
        return _State(bool(state["may_write"]), int(state["largest_bytes"]), digests)
    except (ValueError, TypeError, KeyError, RecursionError):
        problem = "cannot be decoded by this client"
        raise ConfigError(
            Problem(f"{base}/traces/", problem, "run the etloop of the rack's version")
        ) from None


class _BrokenOff(Exception):
    """The answer ended early."""


class _Counted:
    """The body of an answer, which must have the announced length."""

    def __init__(self, answer: Any, url: str) -> None:
        self._answer = answer
        self._url = url
        stated = answer.headers.get("Content-Length", "")
        self.stated_bytes = int(stated) if stated.isdigit() else -1

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole body in pieces. Raises `_BrokenOff` if it is shorter than announced."""
        received_bytes = 0
        while piece := self._answer.read(_PIECE_BYTES):
            received_bytes += len(piece)
            yield piece
        if received_bytes < self.stated_bytes:
            raise _BrokenOff(f"received {received_bytes} of {self.stated_bytes} bytes")


def _unpack(archive: _Counted, folder: str, place: Path) -> None:
    (place / folder).mkdir()
    pieces = archive.pieces()
    try:
        for number, member in enumerate(members(pieces), 1):
            name = _safe(member, folder)
            if number > _MOST_FILES:
                raise _foreign(f"more than {_MOST_FILES} files")
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for piece in member.content:
                    file.write(piece)
    except TarFault as error:
        raise _BrokenOff(f"the archive is damaged or cut off: {error}") from None
    for _ in pieces:
        pass  # Padding of the last block.


def _safe(member: TarMember, folder: str) -> PurePosixPath:
    """Return the path of a member if it is a regular file below `folder`. Raises `ConfigError` for any other member."""
    parts = member.name.split("/")
    is_plain = len(parts) > 1 and parts[0] == folder and not {"", ".", ".."} & set(parts)
    if member.kind is not MemberKind.FILE or not is_plain or "\0" in member.name:
        raise _foreign(f'"{printable(member.name[:256])}", which is not a file below {folder}')
    return PurePosixPath(member.name)


def _foreign(content: str) -> ConfigError:
    return ConfigError(
        Problem("the rack's archive", f"holds {content}", "ask the rack's owner what serves it")
    )


def _refusal(url: str, error: urllib.error.HTTPError) -> ConfigError:
    with error:
        problem = f"is refused with {error.code}: {_text_of(error)}"
        return ConfigError(Problem(url, problem, _REFUSED.get(error.code, "see etloop submit --list")))


def _text_of(error: urllib.error.HTTPError) -> str:
    with contextlib.suppress(OSError, http.client.HTTPException):
        body_text = error.read(_MOST_REASON_BYTES).decode(errors="replace").strip()
        return printable(" ".join(body_text.split())) or str(error.reason)
    return str(error.reason)


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host

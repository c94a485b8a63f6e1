"""Shows a run in progress as a page that a browser draws: the lines of `cli.text.live` as events, and below them the report.

A shell: one server thread with the sockets of a few browsers. Decides how many there may be, how often they get events, how much
of the past they get, and how long the page stays after the run. `LiveRun` makes the content; no request of a browser changes
anything.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
import time
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.base.errors import ConfigError, Problem

if TYPE_CHECKING:
    from etloop.cli.text.live import LiveView

MOST_BROWSERS: Final = 16
EVERY_S: Final = 0.5
MOST_SAMPLES: Final = 1200
"""Views that are kept for browsers that come later; every second one is dropped when they are more."""
FIRST_READER_S: Final = 30.0
"""How long the page stays after a run for a first reader."""
RETURN_S: Final = 5.0
"""How long it stays after its last reader has left, who may be loading it again."""
_PAGE: Final = Path(__file__).with_name("live_page.html")
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
)
_FRAMED_POLICY: Final = _POLICY.replace("frame-ancestors 'none'", "frame-ancestors 'self'")
"""Policy of the report, which the page shows in a frame."""
_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One view in a plot over time."""

    time_ms: float
    tx_bps: dict[str, float]
    """By port."""
    dropped: int | None
    marked: int | None

    @classmethod
    def of(cls, view: LiveView) -> Sample:
        """Return the plotted part of a view."""
        return cls(view.time_ms, {port.name: port.tx_bps for port in view.ports}, view.dropped, view.marked)


class LivePage:
    """The page of one run. It listens from its creation until `finish`."""

    def __init__(self, address: str, port: int) -> None:
        self._changed = threading.Condition()
        self._view: LiveView | None = None
        self._report: Path | None = None
        self._over = False
        self._watching = 0
        self._had_reader = False
        self._samples: list[Sample] = []
        try:
            self._server = _Server((address, port), self)
        except OSError as error:
            remedy = "name a free port, or 0 for any: --web 127.0.0.1:0"
            raise ConfigError(
                Problem("--web", f"cannot listen at {address}:{port}: {error.strerror}", remedy)
            ) from None
        self.url = f"http://{address}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="etloop-page", daemon=True)
        self._thread.start()

    def show(self, view: LiveView) -> None:
        """Have browsers draw this view."""
        with self._changed:
            self._view = view
            self._samples.append(Sample.of(view))
            if len(self._samples) > MOST_SAMPLES:
                del self._samples[1::2]
            self._changed.notify_all()

    def finish(self, report: Path | None) -> None:
        """Give browsers the report (None: there is none), stay until the last reader has left or Ctrl-C, and close.

        A reader has `RETURN_S` to come back, and a first one `FIRST_READER_S` to come. Without a report it closes at once.
        """
        with contextlib.suppress(KeyboardInterrupt), self._changed:
            self._report, self._over = report, True
            self._changed.notify_all()
            if report is not None:
                self._stay()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _stay(self) -> None:
        while self._changed.wait_for(
            lambda: self._watching > 0, RETURN_S if self._had_reader else FIRST_READER_S
        ):
            self._changed.wait_for(lambda: self._watching == 0)

    def history(self) -> list[Sample]:
        """Return what was shown so far, the oldest first."""
        with self._changed:
            return list(self._samples)

    def page(self) -> bytes:
        """Return the page that a browser loads first."""
        return _PAGE.read_bytes()

    def report(self) -> bytes | None:
        """Return the report, or None if the run is not over or has none."""
        with self._changed:
            return None if self._report is None else self._report.read_bytes()

    def enter(self) -> bool:
        """Count one more watching browser and return True; return False if there are MOST_BROWSERS already."""
        with self._changed:
            if self._watching >= MOST_BROWSERS:
                return False
            self._watching += 1
            self._had_reader = True
            self._changed.notify_all()
            return True

    def leave(self) -> None:
        """Count one watching browser less."""
        with self._changed:
            self._watching -= 1
            self._changed.notify_all()

    def next_event(self, last: LiveView | None) -> tuple[LiveView | None, bool]:
        """Wait up to EVERY_S for a view newer than `last`; return the current view, and whether the run is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._view is not last, EVERY_S)
            return self._view, self._over


def policy_of(page: bytes) -> str:
    """Return the Content-Security-Policy of a page: of all scripts, only its own one runs, and may read events from here."""
    digests = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _SCRIPT.findall(page)]
    sources = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"{_POLICY}; connect-src 'self'; frame-src 'self'; script-src {sources}"


class _Server(ThreadingHTTPServer):
    """The HTTP server of the page, which accepts only requests to this machine's own names."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: LivePage) -> None:
        self.page = page
        self.names = {address[0], "localhost"} if ip_address(address[0]).is_loopback else {address[0]}
        super().__init__(address, _Request)


class _Request(BaseHTTPRequestHandler):
    """One request of a browser."""

    timeout = 10
    server: _Server

    def do_GET(self) -> None:
        """Answer one of three paths, if the request's Host is an accepted name of this server."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        # DNS of another site may point here: its pages could then read this one.
        if host not in self.server.names:
            self.send_error(HTTPStatus.FORBIDDEN, f"expected Host {' or '.join(sorted(self.server.names))}")
            return
        match self.path.partition("?")[0]:
            case "/":
                page = self.server.page.page()
                self._send(page, "text/html; charset=utf-8", policy_of(page))
            case "/events":
                self._stream()
            case "/report.html":
                content = self.server.page.report()
                if content is None:
                    self.send_error(HTTPStatus.NOT_FOUND, "the run has not ended")
                    return
                self._send(content, "text/html; charset=utf-8", _FRAMED_POLICY)
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 - named by the base class
        """Log nothing: standard error belongs to the run."""

    def _send(self, content: bytes, kind: str, policy: str = _POLICY) -> None:
        self.send_response(HTTPStatus.OK)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": policy,
        }
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _stream(self) -> None:
        page = self.server.page
        if not page.enter():
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_BROWSERS} browsers are connected already")
            return
        try:
            self.send_response(HTTPStatus.OK)
            for name, value in {**_HEADERS, "Content-Type": "text/event-stream"}.items():
                self.send_header(name, value)
            self.end_headers()
            self._send_events(page)
        except OSError:
            pass  # the browser closed the connection
        finally:
            page.leave()

    def _send_events(self, page: LivePage) -> None:
        """Send the past, then changed views until the run is over, then signs of life while the browser shows the report.

        Return once the run is over without a report. Raise `OSError` when the browser has left.
        """
        last: LiveView | None = None
        is_over_sent = False
        self._event("history", json.dumps([asdict(sample) for sample in page.history()]))
        while True:
            view, over = page.next_event(last)
            if view is not None and view is not last:
                self._event("run", json.dumps(asdict(view)))
            last = view
            if over and not is_over_sent:
                has_report = page.report() is not None
                self._event("over", json.dumps({"report": has_report}))
                is_over_sent = True
                if not has_report:
                    return
            self._event("beat", "{}")
            if over:
                time.sleep(EVERY_S)  # `next_event` waits for nothing any more

    def _event(self, name: str, text: str) -> None:
        self.wfile.write(f"event: {name}\ndata: {text}\n\n".encode())
        self.wfile.flush()

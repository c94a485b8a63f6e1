"""Shows a run in progress as a page that a browser draws: the lines of `cli.text.live` as events, then the report.

A shell: one server thread with the sockets of a few browsers. Decides how many there may be, how often they get events, and how
long the page waits for them at the end. `LiveRun` makes the content; no request of a browser changes anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from dataclasses import asdict
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
LAST_WAIT_S: Final = 5.0
"""For browsers that have not fetched the report when the run is over."""
_PAGE: Final = Path(__file__).with_name("live_page.html")
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
)
_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class LivePage:
    """The page of one run. It listens from its creation until `finish`."""

    def __init__(self, address: str, port: int) -> None:
        self._changed = threading.Condition()
        self._view: LiveView | None = None
        self._report: Path | None = None
        self._over = False
        self._watching = 0
        self._fetched = 0
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
            self._changed.notify_all()

    def finish(self, report: Path | None) -> None:
        """Give browsers the report (None: there is none), wait up to LAST_WAIT_S until they have fetched it, and close."""
        with self._changed:
            self._report, self._over = report, True
            self._changed.notify_all()
            if report is not None:
                self._changed.wait_for(lambda: self._fetched >= self._watching, LAST_WAIT_S)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def page(self) -> bytes:
        """Return the page that a browser loads first."""
        return _PAGE.read_bytes()

    def report(self) -> bytes | None:
        """Return the report, or None if the run is not over or has none."""
        with self._changed:
            return None if self._report is None else self._report.read_bytes()

    def sent_report(self) -> None:
        """Count a browser that has fetched the report."""
        with self._changed:
            self._fetched += 1
            self._changed.notify_all()

    def enter(self) -> bool:
        """Count one more watching browser and return True; return False if there are MOST_BROWSERS already."""
        with self._changed:
            if self._watching >= MOST_BROWSERS:
                return False
            self._watching += 1
            return True

    def leave(self, *, lost: bool) -> None:
        """Remove a browser from the count if it is `lost`: it will not fetch the report."""
        with self._changed:
            if lost:
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
    return f"{_POLICY}; connect-src 'self'; script-src {sources}"


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
                self._send(content, "text/html; charset=utf-8")
                self.server.page.sent_report()
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
        lost = True
        try:
            self.send_response(HTTPStatus.OK)
            for name, value in {**_HEADERS, "Content-Type": "text/event-stream"}.items():
                self.send_header(name, value)
            self.end_headers()
            lost = self._send_event(page)
        except OSError:
            pass  # the browser closed the connection
        finally:
            page.leave(lost=lost)

    def _send_event(self, page: LivePage) -> bool:
        """Send changed views until the run is over; return whether the browser will not fetch the report."""
        last: LiveView | None = None
        while True:
            view, over = page.next_event(last)
            if view is not None and view is not last:
                self._event("run", json.dumps(asdict(view)))
            last = view
            if over:
                has_report = page.report() is not None
                self._event("over", json.dumps({"report": has_report}))
                return not has_report
            self._event("beat", "{}")

    def _event(self, name: str, text: str) -> None:
        self.wfile.write(f"event: {name}\ndata: {text}\n\n".encode())
        self.wfile.flush()

"""A run while it goes on, as a page that a browser draws: the lines of `cli.text.live` as events, then the report.

A shell: one thread with the sockets of a few browsers. Decides how many there may be, how often they hear, and how long the
page waits for them at the end. What it tells is made by `LiveRun`; nothing that a browser says changes anything.
"""

from __future__ import annotations

import json
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
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class LivePage:
    """The page of one run. Made, it listens; closed, nothing of it is left."""

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
        """Have browsers draw this."""
        with self._changed:
            self._view = view
            self._changed.notify_all()

    def finish(self, report: Path | None) -> None:
        """Give browsers the report, None where there is none, and close when those that watch have it."""
        with self._changed:
            self._report, self._over = report, True
            self._changed.notify_all()
            if report is not None:
                self._changed.wait_for(lambda: self._fetched >= self._watching, LAST_WAIT_S)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def page(self) -> bytes:
        """Return what a browser loads first."""
        return _PAGE.read_bytes()

    def report(self) -> bytes | None:
        """Return the report, if the run is over and has one."""
        with self._changed:
            return None if self._report is None else self._report.read_bytes()

    def sent_report(self) -> None:
        """Count a browser that has it."""
        with self._changed:
            self._fetched += 1
            self._changed.notify_all()

    def enter(self) -> bool:
        """Take one more browser that watches, if there may be one more."""
        with self._changed:
            if self._watching >= MOST_BROWSERS:
                return False
            self._watching += 1
            return True

    def leave(self, *, lost: bool) -> None:
        """Let a browser go; a `lost` one will not fetch the report."""
        with self._changed:
            if lost:
                self._watching -= 1
                self._changed.notify_all()

    def next_event(self, last: LiveView | None) -> tuple[LiveView | None, bool]:
        """Wait a moment for something newer than `last`; return what there is, and whether the run is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._view is not last, EVERY_S)
            return self._view, self._over


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: LivePage) -> None:
        self.page = page
        self.names = {address[0], "localhost"} if ip_address(address[0]).is_loopback else {address[0]}
        super().__init__(address, _Request)


class _Request(BaseHTTPRequestHandler):
    timeout = 10
    server: _Server

    def do_GET(self) -> None:
        """Answer one of three addresses, to who asked for them by the name of this machine's own address."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in self.server.names:  # another site's name may lead here: a page of it could read along
            self.send_error(HTTPStatus.FORBIDDEN, f"expected Host {' or '.join(sorted(self.server.names))}")
            return
        match self.path.partition("?")[0]:
            case "/":
                self._send(self.server.page.page(), "text/html; charset=utf-8")
            case "/events":
                self._stream()
            case "/report.html":
                content = self.server.page.report()
                if content is None:
                    self.send_error(HTTPStatus.NOT_FOUND, "the run is not over")
                    return
                self._send(content, "text/html; charset=utf-8")
                self.server.page.sent_report()
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 - named by the base class
        """Keep quiet: standard error is the run's."""

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _stream(self) -> None:
        page = self.server.page
        if not page.enter():
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_BROWSERS} browsers watch already")
            return
        lost = True
        try:
            self.send_response(HTTPStatus.OK)
            for name, value in {**_HEADERS, "Content-Type": "text/event-stream"}.items():
                self.send_header(name, value)
            self.end_headers()
            lost = self._tell(page)
        except OSError:
            pass  # it went away
        finally:
            page.leave(lost=lost)

    def _tell(self, page: LivePage) -> bool:
        """Tell what changes until the run is over; return whether the browser will not want the report."""
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

"""A client that fetches from a rack takes what comes back for hostile."""

from __future__ import annotations

import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError, EtloopError
from etloop.controller.rack.client.client import RackUnreachable
from etloop.controller.rack.client.web import RackWeb


@contextmanager
def server(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    """A server that answers everything alike; its address."""

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    serving = http.server.HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}/runs/j1.tar"
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()


def tar_of(*members: tuple[str, bytes, bytes]) -> bytes:
    """An archive of (name, type, content)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, kind, content in members:
            about = tarfile.TarInfo(name)
            about.type, about.linkname, about.size = kind, "/etc/passwd", len(content)
            archive.addfile(about, io.BytesIO(content))
    return file.getvalue()


FILE = tarfile.REGTYPE


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (tar_of(("j1/../../x", FILE, b"1")), r"holds \"j1/\.\./\.\./x\", which is not a file below j1"),
        (tar_of(("/etc/x", FILE, b"1")), "which is not a file below j1"),
        (tar_of(("j2/x", FILE, b"1")), "which is not a file below j1"),
        (tar_of(("j1", FILE, b"1")), "which is not a file below j1"),
        (tar_of(("j1/./x", FILE, b"1")), "which is not a file below j1"),
        (tar_of(("j1/x", tarfile.SYMTYPE, b"")), "which is not a file below j1"),
        (tar_of(("j1/x", tarfile.LNKTYPE, b"")), "which is not a file below j1"),
        (tar_of(("j1/x", tarfile.FIFOTYPE, b"")), "which is not a file below j1"),
        (tar_of(("j1/x", FILE, b"1"), ("j1/x", FILE, b"2")), "File exists"),
        (
            tar_of(("j1/x", FILE, bytes(5000)))[:2000],
            "broke off: the archive is damaged or cut off: it is truncated",
        ),
        (b"no archive at all" * 100, "broke off: the archive is damaged or cut off: no tar header at byte 0"),
    ],
)
def test_an_archive_that_no_rack_sends_leaves_nothing(tmp_path: Path, archive: bytes, said: str) -> None:
    with server(200, {}, archive) as url, pytest.raises(EtloopError, match=said):
        RackWeb().fetch("j1", url, url, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_fewer_bytes_than_were_said_are_not_all(tmp_path: Path) -> None:
    whole = tar_of(("j1/x", FILE, b"1"))
    with (
        server(200, {"Content-Length": str(len(whole) + 1)}, whole) as url,
        pytest.raises(
            RackUnreachable, match=rf"received {len(whole)} of {len(whole) + 1} bytes; fetch it again"
        ),
    ):
        RackWeb().fetch("j1", url, url, tmp_path / "out")


@pytest.mark.parametrize(
    ("status", "headers", "body", "said"),
    [
        (302, {"Location": "http://127.0.0.1:1/"}, b"", "is refused with 302"),
        (401, {}, b"who are you\n", "is refused with 401: who are you; give --token-file FILE"),
        (404, {}, b"there\x1b[2J is none\n", r"is refused with 404: there\\x1b\[2J is none"),
        (503, {}, b"later\n", "is refused with 503: later; try again in some seconds"),
    ],
)
def test_a_refusal_is_told_in_the_words_of_the_rack(
    tmp_path: Path, status: int, headers: dict[str, str], body: bytes, said: str
) -> None:
    with server(status, headers, body) as url, pytest.raises(ConfigError, match=said):
        RackWeb().fetch("j1", url, url, tmp_path / "out")


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RackUnreachable, match=r"http://127.0.0.1:1/x does not answer: .*refused"):
        RackWeb().fetch("j1", "http://127.0.0.1:1/x", "http://127.0.0.1:1/y", tmp_path / "out")

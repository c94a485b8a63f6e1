"""Installs pip into an interpreter that has neither pip nor ensurepip: `PYTHON tools/bootstrap_pip.py`.

Fetches one pinned wheel from the package index (PyPI's "simple" pages, PEP 503; `PIP_INDEX_URL` or pip's own
configuration files name another) and runs it to install itself. The wheel must have the SHA-256 below, so neither the
index nor the connection needs to be trusted; it also works on a machine without certificates.
"""

from __future__ import annotations

import configparser
import hashlib
import html.parser
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Final

PIP_VERSION: Final = "26.3"
PIP_SHA256: Final = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"
WHEEL_NAME: Final = f"pip-{PIP_VERSION}-py3-none-any.whl"
DEFAULT_INDEX: Final = "https://pypi.org/simple"
TIMEOUT_S: Final = 60
LARGEST_PAGE_BYTES: Final = 16 << 20
"""Limit of a response: a wheel is about 2 MB and pip's page of versions under 1 MB."""


class BootstrapError(Exception):
    """Pip cannot be installed; the text gives reason and remedy."""


class LinkParser(html.parser.HTMLParser):
    """Collects the links of an index page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Store the target of every anchor."""
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]


def configuration_files(environment: dict[str, str], home: Path) -> list[Path]:
    """Return pip's configuration files, weakest first (the order of pip's documentation, "Configuration")."""
    if chosen := environment.get("PIP_CONFIG_FILE"):
        return [] if chosen == os.devnull else [Path(chosen)]
    user = Path(environment.get("XDG_CONFIG_HOME", home / ".config"))
    return [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", user / "pip" / "pip.conf"]


def index_url(environment: dict[str, str], files: list[Path]) -> str:
    """Return the index that pip itself would use: environment, then configuration files, then PyPI."""
    if url := environment.get("PIP_INDEX_URL"):
        return url
    parser = configparser.RawConfigParser()
    parser.read(files)
    for section in ("install", "global"):
        if parser.has_option(section, "index-url"):
            return parser.get(section, "index-url").strip()
    return DEFAULT_INDEX


def wheel_url(page: str, page_url: str) -> str:
    """Return the URL of the pinned wheel on the index page.

    Raises `BootstrapError` if the page does not list it.
    """
    parser = LinkParser()
    parser.feed(page)
    for link in parser.links:
        url = urllib.parse.urldefrag(urllib.parse.urljoin(page_url, link)).url
        if urllib.parse.unquote(url.rsplit("/", 1)[-1]) == WHEEL_NAME:
            return url
    raise BootstrapError(f"{page_url} does not list {WHEEL_NAME}; set PIP_INDEX_URL to an index that does")


def check_digest(wheel: bytes) -> bytes:
    """Return the wheel if its SHA-256 is the pinned one. Raises `BootstrapError` otherwise."""
    digest = hashlib.sha256(wheel).hexdigest()
    if digest != PIP_SHA256:
        raise BootstrapError(
            f"{WHEEL_NAME} has the SHA-256 {digest}, expected {PIP_SHA256}; the index is not to be trusted"
        )
    return wheel


def fetch(url: str) -> bytes:
    """Return the content of an http(s) or file URL."""
    try:
        return read(url, ssl.create_default_context(cafile=os.environ.get("PIP_CERT")))
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLCertVerificationError):
            raise
    print("  this machine has no certificate to check the index with; the wheel's SHA-256 is checked instead")
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    return read(url, unverified)


def read(url: str, context: ssl.SSLContext) -> bytes:
    """Read one response of at most `LARGEST_PAGE_BYTES`. Raises `BootstrapError` for a longer one."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=context) as answer:
        body: bytes = answer.read(LARGEST_PAGE_BYTES + 1)
    if len(body) > LARGEST_PAGE_BYTES:
        raise BootstrapError(
            f"{url} answered with more than {LARGEST_PAGE_BYTES} bytes; is it a package index?"
        )
    return body


def main() -> int:
    """Fetch and check pip, and install it into the interpreter that runs this; return the exit code."""
    index = index_url(dict(os.environ), configuration_files(dict(os.environ), Path.home()))
    page_url = index.rstrip("/") + "/pip/"
    try:
        page = fetch(page_url).decode(errors="replace")
        wheel = check_digest(fetch(wheel_url(page, page_url)))
    except (BootstrapError, OSError, ValueError) as error:
        print(f"pip could not be fetched from {page_url}: {error}", file=sys.stderr)
        print("with root rights this works too: apt-get install python3-venv", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / WHEEL_NAME
        path.write_bytes(wheel)
        # A wheel is a zip archive, and Python runs packages straight out of one.
        install = [sys.executable, f"{path}/pip", "install", "--quiet", "--no-index", str(path)]
        return subprocess.run(install, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Opens a run's page in a browser of this machine, or prints it into a PDF. A shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import webbrowser
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem, RigError

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PRINT_TIMEOUT_S: Final = 120
_DRAW_MS: Final = 10_000
"""Virtual time of the page for drawing its plots."""
_QUIET: Final = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"),
)


def open_page(page: Path) -> str:
    """Open a page in a browser and return the message. Raise `ConfigError` without a page, `RigError` without a browser."""
    _require_page(page)
    if not webbrowser.open(page.resolve().as_uri()):
        remedy = f"open {page.resolve()} yourself, or set BROWSER"
        raise RigError(Problem("--open", "no browser can be started here", remedy))
    return f"{page.resolve()}\n"


def print_page(page: Path, out: Path) -> str:
    """Print a page into a PDF and return the message.

    Raise `ConfigError` if the page is missing or the PDF cannot be placed, `RigError` if no browser prints it.
    """
    _require_page(page)
    if out.exists():
        raise ConfigError(Problem(str(out), "exists already", "name another file, or remove it"))
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        remedy = "install Chromium (Debian: chromium), or print report.html from another browser"
        raise RigError(Problem("--pdf", f"none of {', '.join(BROWSERS)} is installed", remedy))
    with tempfile.TemporaryDirectory(prefix="etloop-pdf-") as scratch:
        scratch_pdf = Path(scratch) / "report.pdf"
        command = [
            *(browser, *_QUIET, f"--user-data-dir={scratch}/profile", f"--virtual-time-budget={_DRAW_MS}"),
            # Chromium has no sandbox for root; the page comes from ETLoop and loads no other content.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            *("--no-pdf-header-footer", f"--print-to-pdf={scratch_pdf}", page.resolve().as_uri()),
        ]
        try:
            outcome = subprocess.run(command, capture_output=True, timeout=PRINT_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            problem = f"{Path(browser).name} did not end within {PRINT_TIMEOUT_S} s"
            raise RigError(Problem("--pdf", problem, "print report.html from another browser")) from None
        if outcome.returncode != 0 or not scratch_pdf.is_file():
            error_lines = outcome.stderr.decode(errors="replace").strip().splitlines()[-1:] or [
                "it printed no error"
            ]
            problem = f"{Path(browser).name} ended with {outcome.returncode}: {error_lines[0]}"
            raise RigError(Problem("--pdf", problem, "print report.html from another browser"))
        try:
            shutil.copyfile(scratch_pdf, out)
        except OSError as error:
            problem = f"cannot be written: {error.strerror or error}"
            raise ConfigError(Problem(str(out), problem, "choose a place that can be written")) from None
    return f"{out}: {out.stat().st_size} bytes\n"


def _require_page(page: Path) -> None:
    if not page.is_file():
        remedy = "etloop report RUN_DIR --write writes it again"
        raise ConfigError(Problem(str(page), "does not exist", remedy))

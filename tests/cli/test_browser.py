"""A run's page is printed by a real browser, or opened in one; what is missing is said with a way out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from etloop.cli.browser import BROWSERS, open_page, print_page
from etloop.contract.base.errors import ConfigError, RigError

PAGE = "<!doctype html><title>t</title><p id=p>unread</p><script>document.body.style.pageBreakAfter='always'</script>"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    made = tmp_path / "report.html"
    made.write_text(PAGE)
    return made


@pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)), reason="no browser to print with (Debian package chromium)"
)
def test_a_browser_prints_the_page(page: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.pdf"
    assert print_page(page, out) == f"{out}: {out.stat().st_size} bytes\n"
    assert out.read_bytes().startswith(b"%PDF-")
    with pytest.raises(ConfigError, match=r"report\.pdf: exists already; name another file, or remove it"):
        print_page(page, out)


def test_without_a_browser_it_says_which_would_do(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        RigError, match=r"none of chromium, .* is installed; install Chromium \(Debian: chromium\)"
    ):
        print_page(page, tmp_path / "out.pdf")


def test_a_browser_that_fails_is_quoted(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho 'no display' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(
        RigError, match=r"chromium ended with 3: no display; print report\.html from another browser"
    ):
        print_page(page, tmp_path / "out.pdf")
    assert not (tmp_path / "out.pdf").exists()


@pytest.mark.parametrize("act", [open_page, partial(print_page, out=Path("out.pdf"))], ids=["open", "print"])
def test_a_run_without_a_page_is_refused(act: Callable[[Path], str], tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"none\.html: does not exist; etloop report RUN_DIR --write writes it again"
    ):
        act(tmp_path / "none.html")


def test_the_page_is_opened_in_the_users_browser(page: Path, tmp_path: Path) -> None:
    browser = tmp_path / "mine"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    code = f"from pathlib import Path; from etloop.cli.browser import open_page; print(open_page(Path({str(page)!r})), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"BROWSER": str(browser)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{page}\n"
    assert (tmp_path / "opened").read_text() == f"file://{page}\n"

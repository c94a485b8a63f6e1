"""The scripts that run before anything is installed: which index pip comes from, and that only the pinned wheel is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import check_build
from tools.bootstrap_pip import (
    WHEEL_NAME,
    BootstrapError,
    check_digest,
    configuration_files,
    index_url,
    wheel_url,
)
from tools.make_venv import has_pip, works

PAGE_URL = "https://index.example/simple/pip/"


@pytest.mark.parametrize(
    ("sentence", "link", "expected"),
    [
        (
            "an absolute link",
            f"https://files.example/a/{WHEEL_NAME}",
            f"https://files.example/a/{WHEEL_NAME}",
        ),
        (
            "with the hash that indexes append",
            f"https://f.example/{WHEEL_NAME}#sha256=00",
            f"https://f.example/{WHEEL_NAME}",
        ),
        (
            "relative to the page",
            f"../../packages/{WHEEL_NAME}",
            f"https://index.example/packages/{WHEEL_NAME}",
        ),
    ],
)
def test_the_wheel_is_found_on_an_index_page(sentence: str, link: str, expected: str) -> None:
    page = f'<html><a href="pip-1.0.tar.gz">old</a> <a data-x="1" href="{link}">pip</a></html>'
    assert wheel_url(page, PAGE_URL) == expected, sentence


@pytest.mark.parametrize(
    "page", ["", "no index at all", f"<a>{WHEEL_NAME}</a>", '<a href="pip-1.0-py3-none-any.whl">x</a>']
)
def test_an_index_without_it_says_what_to_do(page: str) -> None:
    with pytest.raises(BootstrapError, match=r"does not list pip-.*; set PIP_INDEX_URL"):
        wheel_url(page, PAGE_URL)


def test_another_wheel_is_not_run() -> None:
    with pytest.raises(BootstrapError, match=r"expected .*the index is not to be trusted"):
        check_digest(b"not the wheel")


def test_the_index_is_the_one_pip_would_use(tmp_path: Path) -> None:
    weak, strong = tmp_path / "weak.conf", tmp_path / "strong.conf"
    weak.write_text("[global]\nindex-url = https://weak.example/simple\n")
    strong.write_text("[global]\nindex-url = https://strong.example/simple\nextra = 100%\n")
    assert index_url({}, []) == "https://pypi.org/simple"
    assert index_url({}, [weak, tmp_path / "absent.conf"]) == "https://weak.example/simple"
    assert index_url({}, [weak, strong]) == "https://strong.example/simple"
    assert index_url({"PIP_INDEX_URL": "https://mine.example"}, [weak]) == "https://mine.example"


def test_configuration_files_are_those_of_pip() -> None:
    home = Path("/h")
    assert configuration_files({}, home)[-1] == Path("/h/.config/pip/pip.conf")
    assert configuration_files({"XDG_CONFIG_HOME": "/x"}, home)[-1] == Path("/x/pip/pip.conf")
    assert configuration_files({"PIP_CONFIG_FILE": "/c"}, home) == [Path("/c")]
    assert configuration_files({"PIP_CONFIG_FILE": "/dev/null"}, home) == []


def test_an_environment_whose_python_is_gone_does_not_work(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(tmp_path / "removed")
    assert not works(tmp_path / "python")
    silent = tmp_path / "fails"
    silent.write_text("#!/bin/sh\nexit 1\n")
    silent.chmod(0o755)
    assert not works(silent)
    assert not has_pip(silent)


def test_missing_headers_name_the_package_that_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_build, "include_directory", lambda: tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("sys.base_prefix", "/usr")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert check_build.headers_problem().endswith(f"run: sudo apt-get install python{version}-dev")
    monkeypatch.setattr("sys.base_prefix", "/opt/python")
    assert "install the development files of" in check_build.headers_problem()
    (tmp_path / "Python.h").touch()
    assert check_build.headers_problem() == ""


def test_a_compiler_that_cannot_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old-c++"
    old.write_text("#!/bin/sh\necho unrecognized command line option >&2; exit 1\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    assert "does not compile C++20" in check_build.compiler_problem()
    monkeypatch.setenv("CXX", str(tmp_path / "absent"))
    assert "does not run" in check_build.compiler_problem()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_build.compiler_problem() == "no C++ compiler; run: sudo apt-get install g++"

"""Where labs keep their sockets: a place of the user's own, or an error that says which variable named it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etloop.contract.base.errors import RigError
from etloop.runtime.lab_directory import lab_directory


def test_the_place_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = lab_directory("x")
    assert found == tmp_path / f"etloop-{os.getuid()}" / "lab-x"
    assert found.parent.stat().st_mode & 0o777 == 0o700


def test_a_variable_that_names_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(missing))
    with pytest.raises(RigError) as refused:
        lab_directory("x")
    assert str(refused.value) == (
        f"{missing}/etloop-{os.getuid()}: cannot be created: No such file or directory; XDG_RUNTIME_DIR is "
        f"{missing}: create that "
        "directory, or set one that exists"
    )


def test_a_place_that_is_open_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"etloop-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(RigError, match="belongs to another user or is accessible to other users"):
        lab_directory("x")

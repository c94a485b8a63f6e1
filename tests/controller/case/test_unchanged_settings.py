"""A settings file of a run directory that cannot be read is no changed file."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.case import unpack


@pytest.mark.parametrize(
    ("number", "is_error"), [(errno.EIO, True), (errno.EMFILE, True), (errno.ENOENT, False)]
)
def test_an_unreadable_settings_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, *, is_error: bool
) -> None:
    def digest_of(_: Path) -> object:
        raise OSError(number, os.strerror(number))

    (tmp_path / "case.zip").touch()
    case = SimpleNamespace(files=[SimpleNamespace(name="scenario.yaml", read_sha256="0" * 64)])
    monkeypatch.setattr(unpack, "open_archive", nullcontext)
    monkeypatch.setattr(unpack, "case_in", lambda *_: case)
    monkeypatch.setattr(unpack, "digest_of", digest_of)
    if is_error:
        with pytest.raises(ConfigError, match="cannot be read"):
            unpack.is_as_the_run_read_it(tmp_path / "scenario.yaml")
    else:
        assert not unpack.is_as_the_run_read_it(tmp_path / "scenario.yaml")

"""Topology files of `etloop lab` that cannot be read: told by name, and never read without an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from etloop.contract.base.yaml_reader import LARGEST_FILE_BYTES

LATIN = "latin.yaml"
LARGE = "large.yaml"
CASES = {
    "a device that never ends": ("/dev/zero", f"the file has {LARGEST_FILE_BYTES + 1} bytes; keep it under"),
    "a large file": (LARGE, f"the file has {LARGEST_FILE_BYTES + 1} bytes; keep it under"),
    "no file": (
        "none.yaml",
        "none.yaml: cannot be read: No such file or directory; check the name and the permissions",
    ),
    "a directory": (".", "cannot be read: Is a directory; check the name and the permissions"),
    "text of another encoding": (LATIN, "cannot be read: it is not UTF-8 text; name a topology file"),
}


@pytest.mark.parametrize(("name", "printed"), CASES.values(), ids=CASES.keys())
def test_a_topology_that_cannot_be_read_is_told(
    name: str,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(LATIN).write_bytes("größe: 1\n".encode("latin-1"))
    Path(LARGE).write_bytes(b"#" * (LARGEST_FILE_BYTES + 100))
    assert main(["lab", "up", name]) == ExitCode.PREPARATION_FAILED
    assert printed in capsys.readouterr().err

"""A lab for a user without rights: its process is root of a user namespace of its own, where the kernel lets users have one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.as_nobody import NOBODY
from tests.support.places import ROOT

PATIENCE_S: Final = 100
TOPOLOGY: Final = """\
single:
  rate: 100Mbps
  ports: [a/p0, b/p0]
"""
LIFE: Final = """\
import os, sys
from etloop.cli.main import main
assert os.geteuid() != 0
assert main(["lab", "up", "topology.yaml", "--unmeasured"]) == 0
send = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('198.18.2.1', 9))"
assert main(["lab", "exec", "a", "--", sys.executable, "-c", send]) == 0
assert main(["lab", "status", "--json"]) == 0
assert main(["lab", "down"]) == 0
"""
ASK: Final = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"
"""Whether the kernel gives a user a namespace, whatever ETLoop makes of it."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() == 0 and not namespaces_are_allowed(), reason=NO_NAMESPACES),
]


def as_a_user(code: str, directory: Path, runtime: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python as this user, or as nobody if this user is root."""
    command: tuple[str, ...] = (sys.executable, "-c", code)
    if os.geteuid() == 0:
        os.chown(runtime, NOBODY, NOBODY)
        directory.chmod(0o755)
        needed = (ROOT, directory, runtime, sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"))
        command = (
            sys.executable,
            str(ROOT / "tests/support/as_nobody.py"),
            *map(str, needed),
            "--",
            *command,
        )
    return subprocess.run(
        command,
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(runtime),
            "HOME": str(runtime),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A directory with a short path, as users' are: names of sockets are bounded by the kernel (108 bytes)."""
    with tempfile.TemporaryDirectory(prefix="etloop-test-") as name:
        yield Path(name)


def test_a_user_without_rights_has_a_lab_too(tmp_path: Path, runtime: Path) -> None:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    done = as_a_user(LIFE, tmp_path, runtime)
    if done.returncode != 0 and as_a_user(ASK, tmp_path, runtime).returncode != 0:
        assert "cannot create a user namespace" in done.stderr
        assert "allow user namespaces" in done.stderr
        pytest.skip("this kernel lets no user have namespaces")
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    status = json.loads(shown[shown.index("\n{\n") + 1 : shown.rindex("\n}\n") + 2])
    rows = [port["counters"] for port in status["counters"]["switches"][0]["ports"]]
    assert (rows[0]["rx_packets"], rows[1]["tx_packets"]) == (1, 1)
    assert not status["counters"]["soft_switch"]["real_time"]
    assert "lab lab: stopped" in shown
    assert not list(runtime.glob("etloop-*/lab-*"))

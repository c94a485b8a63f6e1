"""A container engine for the compose file where Debian's is installed: podman with runc, and docker-compose before its socket.

Images are made without a registry: the base with mmdebstrap, ours of a wheel built outside. Both are kept; the base for as
long as it is younger than a month, ours for as long as nothing that goes into it has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.support.built_wheel import build_wheel
from tests.support.places import ROOT

PROGRAMS: Final = ("podman", "runc", "mmdebstrap", "docker-compose")
BASE_PACKAGES: Final = "mosquitto,python3,python3-venv"
OURS: Final = "localhost/etloop-test"
BASE: Final = "localhost/etloop-test-base"
LABEL: Final = "etloop.test=1"
SHIPPED: Final = (
    "contract",
    "workload",
    "traffic",
    "dut_profiles",
    "controller",
    "agent",
    "results",
    "CMakeLists.txt",
    "pyproject.toml",
    "locks",
    "Dockerfile",
)
"""What an image of ours is made of."""


def obstacle() -> str:
    """Why containers cannot run here; "" if they can be tried."""
    if os.geteuid() != 0:
        return "not root"
    absent = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian packages {', '.join(absent)})"
    debian = re.search(r"^ID=debian$", Path("/etc/os-release").read_text(), re.MULTILINE)
    return "" if debian and _release() else "not Debian, of which mmdebstrap makes the base image"


def _release() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    return found.group(1) if found else ""


def _path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin"])


class Stages:
    """How long each part took: a container test is mostly the making of its images."""

    def __init__(self) -> None:
        self.taken_s: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the block's time to that of the part."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.taken_s[name] = round(self.taken_s.get(name, 0) + time.monotonic() - begin, 1)


class Engine:
    """podman with runc behind a socket that docker-compose speaks to, with settings of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stages = Stages()
        settings = directory / "containers.conf"
        runc = shutil.which("runc", path=_path())
        # The limits are those that runc may set in a nested machine; crun is refused by hybrid control groups.
        settings.write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            f'[engine]\nruntime = "runc"\n[engine.runtimes]\nrunc = ["{runc}"]\n'
        )
        self.environment = os.environ | {"CONTAINERS_CONF": str(settings), "PATH": _path()}

    def podman(self, *arguments: str, limit_s: int = 300) -> str:
        """A podman command to its end; its output, of both kinds."""
        return self._run(["podman", *arguments], limit_s)

    def _run(self, command: list[str], limit_s: int) -> str:
        done = subprocess.run(
            command,
            check=False,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-8000:]}"
        return done.stdout

    def has(self, image: str) -> bool:
        """Whether an image is there already."""
        command = ["podman", "image", "exists", image]
        return subprocess.run(command, check=False, env=self.environment, timeout=60).returncode == 0

    def base(self) -> str:
        """Debian of this machine's release with Python and Mosquitto."""
        image = f"{BASE}:{_release()}-{time.strftime('%Y%m', time.gmtime())}"
        if self.has(image):
            return image
        with in_memory(self.directory / "base") as place, self.stages.stage("base"):
            root = place / "root"
            options = ["--variant=minbase", f"--include={BASE_PACKAGES}"]
            self._run(["mmdebstrap", *options, _release(), str(root)], 900)
            for unread in (
                "var/cache/apt",
                "var/lib/apt/lists",
                "usr/share/doc",
                "usr/share/man",
                "usr/share/locale",
            ):
                shutil.rmtree(root / unread, ignore_errors=True)
            with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packing:
                imported = subprocess.run(
                    ["podman", "import", "--quiet", "-", image],
                    check=False,
                    env=self.environment,
                    stdin=packing.stdout,
                    capture_output=True,
                    text=True,
                    timeout=300,
                )
            assert (packing.returncode, imported.returncode) == (0, 0), imported.stderr
        return image

    def image(self, base: str) -> str:
        """Our image, of a wheel that is built outside from this tree."""
        image = f"{OURS}:{self._content(base)}"
        if self.has(image):
            return image
        context = self.directory / "context"
        (context / "dist").mkdir(parents=True)
        shutil.copy(ROOT / "Dockerfile", context)
        shutil.copytree(ROOT / "locks", context / "locks")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        wheels = str(context / "dist")
        with self.stages.stage("wheel"):
            build_wheel(context / "dist")
        with self.stages.stage("download"):
            locked = [
                "--require-hashes",
                "--requirement",
                str(ROOT / "locks" / "run.lock"),
                "--only-binary=:all:",
            ]
            self._run([*pip, "download", *locked, "--dest", wheels], 300)
        with self.stages.stage("image"):
            arguments = (
                f"build --isolation chroot --layers=false --build-arg BASE={base} --build-arg WHEELS=given"
            )
            self.podman(*arguments.split(), "--label", LABEL, "--tag", image, str(context), limit_s=600)
        # Of yesterday's trees.
        self.podman(
            "image", "prune", "--all", "--force", "--filter", f"label={LABEL}", "--filter", "until=24h"
        )
        return image

    def _content(self, base: str) -> str:
        """A name for everything that goes into the image."""
        found = hashlib.sha256(base.encode())
        for path in sorted(_files(ROOT / name for name in SHIPPED)):
            found.update(f"{path.relative_to(ROOT)}\0".encode())
            found.update(path.read_bytes())
        return found.hexdigest()[:16]

    @contextlib.contextmanager
    def socket(self) -> Iterator[str]:
        """Where docker-compose finds the engine."""
        path = self.directory / "engine.sock"
        command = ["podman", "system", "service", "--time", "0", f"unix://{path}"]
        with (self.directory / "engine.log").open("w") as log:
            service = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
            try:
                for _ in range(600):
                    if path.exists():
                        break
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        service.wait(0.05)
                yield f"unix://{path}"
            finally:
                service.terminate()
                service.wait(30)


@contextlib.contextmanager
def in_memory(directory: Path) -> Iterator[Path]:
    """A directory in memory, where there may be one: dpkg waits for a disk after every file."""
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(directory)], check=False, capture_output=True
    )
    try:
        yield directory
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)


def _files(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_file():
            yield place
            continue
        for path in place.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
                yield path

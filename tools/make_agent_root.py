"""Makes the root file system of an agent's image: `python3 tools/make_agent_root.py ROOT WHEELS`, as root on Debian.

It contains only Python's interpreter and standard library, the libraries they load, and the imports of `etloop-agent`: no
shell, no package manager. Debian's packages are fetched and checked by apt and unpacked without their scripts; those of
locks/agent.lock are installed from the directory WHEELS by their hashes, and so is ETLoop's own wheel. The unpacked packages
are listed in var/lib/dpkg/status.d, where scanners search for them. Needs an up-to-date `apt-get update`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

LOCK: Final = Path(__file__).resolve().parent.parent / "locks" / "agent.lock"
PYTHON: Final = "python3.11"
DEBIAN: Final = (
    *(
        "libc6",
        "gcc-12-base",
        "libgcc-s1",
        "libstdc++6",
        "zlib1g",
        "libexpat1",
        "libffi8",
        "libssl3",
        "libuuid1",
    ),
    *(f"lib{PYTHON}-minimal", f"lib{PYTHON}-stdlib", f"{PYTHON}-minimal"),
)
"""Packages of Bookworm, so that a wheel for its Python 3.11 fits."""
UNREAD: Final = (
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/lib/*/gconv",
    f"usr/lib/{PYTHON}/pydoc_data",
    f"usr/local/lib/{PYTHON}/dist-packages/**/tests",
    f"usr/local/lib/{PYTHON}/dist-packages/bin",
)
"""Files that an agent never reads; copyright files are kept."""
COMMAND: Final = f"#!/usr/bin/{PYTHON} -I\nimport sys\nfrom etloop.agent.cli import main\nsys.exit(main())\n"
USERS: Final = "root:x:0:0:root:/:/usr/sbin/nologin\netloop:x:10001:10001::/:/usr/sbin/nologin\n"
GROUPS: Final = "root:x:0:\netloop:x:10001:\n"


class RootError(Exception):
    """The file system cannot be made; the text gives reason and remedy."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command and return its output. Raises `RootError` with the end of its error output."""
    finished = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RootError(f"{command[0]} ended with {finished.returncode}: {finished.stderr.strip()[-500:]}")
    return finished.stdout


def unpack_debian(root: Path) -> None:
    """Unpack Debian's packages, and store their control data."""
    status_directory = root / "var" / "lib" / "dpkg" / "status.d"
    status_directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as directory:
        run("apt-get", "download", "--quiet", *DEBIAN, cwd=Path(directory))
        packages = sorted(Path(directory).glob("*.deb"))
        if len(packages) != len(DEBIAN):
            raise RootError(
                f"apt-get fetched {len(packages)} packages, expected {len(DEBIAN)}; run: apt-get update"
            )
        for package in packages:
            run("dpkg-deb", "--extract", package, root)
            (status_directory / package.name.partition("_")[0]).write_text(
                run("dpkg-deb", "--field", package)
            )


def install_python_packages(root: Path, wheels: Path) -> None:
    """Install the packages of the lock, and the wheel of ETLoop."""
    etloop_wheels = sorted(wheels.glob("etloop-*.whl"))
    if len(etloop_wheels) != 1:
        raise RootError(f"{wheels} holds {len(etloop_wheels)} wheels of etloop, expected one")
    target = root / "usr" / "local" / "lib" / PYTHON / "dist-packages"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
        "--target",
        target,
    )
    run(*pip, "--no-index", "--find-links", wheels, "--require-hashes", "--requirement", LOCK)
    run(*pip, "--no-index", "--no-deps", etloop_wheels[0])


def finish(root: Path) -> None:
    """Remove files that are never read; add the command, the user and the mount points."""
    for pattern in UNREAD:
        for place in sorted(root.glob(pattern)):
            shutil.rmtree(place)
    command = root / "usr" / "bin" / "etloop-agent"
    command.write_text(COMMAND)
    command.chmod(0o755)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "passwd").write_text(USERS)
    (root / "etc" / "group").write_text(GROUPS)
    for name in ("dev", "proc", "sys", "tmp"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def make(root: Path, wheels: Path) -> None:
    """Make the file system. Raises `RootError` if it cannot be made."""
    if root.exists():
        raise RootError(f"{root} is there already; name a directory that is not")
    if not re.search(r"^VERSION_CODENAME=bookworm$", Path("/etc/os-release").read_text(), re.MULTILINE):
        raise RootError("this is not Debian bookworm, whose packages it takes; make it in a container of it")
    unpack_debian(root)
    install_python_packages(root, wheels)
    finish(root)


def size_bytes(root: Path) -> int:
    """Return the bytes of all files; a file with several hard links counts once."""
    statuses = (path.lstat() for path in root.rglob("*") if not path.is_dir() or path.is_symlink())
    return sum({status.st_ino: status.st_size for status in statuses}.values())


def main(arguments: list[str]) -> int:
    """Make the file system in a directory that does not exist yet; return the exit code."""
    if len(arguments) != 2:
        print("usage: python3 tools/make_agent_root.py ROOT WHEELS", file=sys.stderr)
        return 2
    root, wheels = (Path(argument).resolve() for argument in arguments)
    try:
        make(root, wheels)
    except (RootError, OSError) as error:
        print(f"no root file system: {error}", file=sys.stderr)
        return 1
    print(f"{root}: {size_bytes(root) / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

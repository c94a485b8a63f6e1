"""Makes the root file system of an agent's image: `python3 tools/make_agent_root.py ROOT WHEELS`, as root on Debian.

It holds Python's interpreter and standard library, the libraries they load, what `etloop-agent` imports and nothing else: no
shell, no package manager. Debian's packages are fetched and checked by apt and unpacked without their scripts; those of
locks/agent.lock come from the directory WHEELS by their hashes, and ETLoop as the one wheel of it there. What was unpacked
stands in var/lib/dpkg/status.d, where scanners look for it. Needs an up-to-date `apt-get update`.
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
"""Bookworm's, so that a wheel of its Python 3.11 fits."""
UNREAD: Final = (
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/lib/*/gconv",
    f"usr/lib/{PYTHON}/pydoc_data",
    f"usr/local/lib/{PYTHON}/dist-packages/**/tests",
    f"usr/local/lib/{PYTHON}/dist-packages/bin",
)
"""What an agent never reads; copyright files stay."""
COMMAND: Final = f"#!/usr/bin/{PYTHON} -I\nimport sys\nfrom etloop.agent.cli import main\nsys.exit(main())\n"
USERS: Final = "root:x:0:0:root:/:/usr/sbin/nologin\netloop:x:10001:10001::/:/usr/sbin/nologin\n"
GROUPS: Final = "root:x:0:\netloop:x:10001:\n"


class RootError(Exception):
    """The file system cannot be made; the text says why and what to do."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Runs a command and returns what it printed; raises `RootError` with its last words."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RootError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def unpack_debian(root: Path) -> None:
    """Unpacks Debian's packages, and notes what they are."""
    noted = root / "var" / "lib" / "dpkg" / "status.d"
    noted.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as directory:
        run("apt-get", "download", "--quiet", *DEBIAN, cwd=Path(directory))
        packages = sorted(Path(directory).glob("*.deb"))
        if len(packages) != len(DEBIAN):
            raise RootError(
                f"apt-get fetched {len(packages)} packages, expected {len(DEBIAN)}; run: apt-get update"
            )
        for package in packages:
            run("dpkg-deb", "--extract", package, root)
            (noted / package.name.partition("_")[0]).write_text(run("dpkg-deb", "--field", package))


def install_python_packages(root: Path, wheels: Path) -> None:
    """Installs what the lock names, and our wheel."""
    ours = sorted(wheels.glob("etloop-*.whl"))
    if len(ours) != 1:
        raise RootError(f"{wheels} holds {len(ours)} wheels of etloop, expected one")
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
    run(*pip, "--no-index", "--no-deps", ours[0])


def finish(root: Path) -> None:
    """Takes out what is never read, and adds the command, the user and what is mounted upon."""
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
    """Makes the file system; raises `RootError` where it cannot be."""
    if root.exists():
        raise RootError(f"{root} is there already; name a directory that is not")
    if not re.search(r"^VERSION_CODENAME=bookworm$", Path("/etc/os-release").read_text(), re.MULTILINE):
        raise RootError("this is not Debian bookworm, whose packages it takes; make it in a container of it")
    unpack_debian(root)
    install_python_packages(root, wheels)
    finish(root)


def size_bytes(root: Path) -> int:
    """Returns the bytes of all files, each once however many names it has."""
    found = (path.lstat() for path in root.rglob("*") if not path.is_dir() or path.is_symlink())
    return sum({one.st_ino: one.st_size for one in found}.values())


def main(arguments: list[str]) -> int:
    """Makes the file system in a directory that is not there yet."""
    if len(arguments) != 2:
        print("usage: python3 tools/make_agent_root.py ROOT WHEELS", file=sys.stderr)
        return 2
    root, wheels = (Path(one).resolve() for one in arguments)
    try:
        make(root, wheels)
    except (RootError, OSError) as error:
        print(f"no root file system: {error}", file=sys.stderr)
        return 1
    print(f"{root}: {size_bytes(root) / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

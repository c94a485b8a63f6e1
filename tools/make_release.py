"""Make the files of a release: `python tools/make_release.py PYTHON...`, which `make release` calls for a clean commit.

Writes build/release/etloop-VERSION: the source distribution, a wheel of it by each interpreter (that of 3.12 or later serves
all later versions, by the stable ABI) and one of its agent alone (tools/agent_wheel.py), bill of materials, documentation
site, notes and SHA256SUMS. Wheels are built from the unpacked source distribution, so a file that it lacks is noticed. The
environment is that of `make`; it needs build/site, build/sbom.cdx.json and the tools of the group "supply".
tools/try_release.py tries the result. The variable RELEASE_ENGINE names docker or podman, with options of its `build`, for the
images of controller and agent.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.agent_wheel import make_agent_wheel
from tools.release_images import make_images

ROOT: Final = Path(__file__).resolve().parent.parent
RELEASES: Final = ROOT / "build" / "release"
SUPPLY: Final = ROOT / ".venv" / "supply" / "bin"
MOST_S: Final = 7200
"""Longest time of one step; the compilation of a wheel takes minutes."""
SUMS: Final = "SHA256SUMS"


class ReleaseError(Exception):
    """The release cannot be made; the text gives reason and remedy."""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return its output. Raises `ReleaseError` with the end of its output."""
    finished = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=MOST_S,
    )
    if finished.returncode:
        ending = (finished.stdout + finished.stderr).strip()[-2000:]
        raise ReleaseError(f"{Path(command[0]).name} ended with {finished.returncode}: {ending}")
    return finished.stdout


def changes_of(changelog: str, version: str) -> str:
    """Return the section of a version in CHANGELOG.md, without its heading. Raises `ReleaseError` if there is none."""
    section = re.search(
        rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if section is None:
        raise ReleaseError(f"CHANGELOG.md has no section of {version}; write one")
    return section[1].strip() + "\n"


def notes_of(version: str, commit: str, changes: str, files: Iterable[tuple[str, int]]) -> str:
    """Return the release notes: how to install, the files with their sizes in bytes, and the changes."""
    rows = "".join(f"| `{name}` | {size / 1e6:.1f} MB |\n" for name, size in files)
    # Pages of the repository are not where the notes are read.
    plain = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", changes)
    return f"""# ETLoop {version}

Linux, Python 3.11 or later. Commit {commit}.

```sh
sha256sum --check --ignore-missing {SUMS}
pip install 'etloop[controller] @ file://'"$PWD/WHEEL"   # plans, runs, simulates and reads runs
pip install ./etloop_agent-WHEEL                        # a host with an agent alone, without etloop
```

The wheel `cp311` is for Python 3.11, `cp312-abi3` for 3.12 and later.

| file | size |
|---|---|
{rows}
## Changes

{plain}"""


def make_sdist(python: Path, into: Path, epoch: str) -> Path:
    """Make the source distribution; the same commit gives the same bytes."""
    code = "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))"
    run(python, "-c", code, into, SOURCE_DATE_EPOCH=epoch)
    (sdist,) = into.glob("*.tar.gz")
    return sdist


def unpack(sdist: Path, into: Path) -> Path:
    """Return the directory of an unpacked source distribution, in a new directory."""
    shutil.rmtree(into, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    (source,) = into.iterdir()
    return source


def build_environment(python: str, into: Path) -> Path:
    """Return the interpreter of an environment with the build tools of locks/build.lock, made if it is absent."""
    if not (into / "ready").exists():
        run(python, ROOT / "tools" / "make_venv.py", into)
        lock = ROOT / "locks" / "build.lock"
        run(into / "bin" / "python", "-m", "pip", "install", "--require-hashes", "--requirement", lock)
        (into / "ready").touch()
    return into / "bin" / "python"


def make_wheel(python: Path, source: Path, epoch: str) -> Path:
    """Build a wheel of an unpacked source distribution, and return it with its manylinux tag."""
    raw, tagged = source.parent / "raw", source.parent / "tagged"
    for directory in (raw, tagged):
        shutil.rmtree(directory, ignore_errors=True)
    options = ("--no-deps", "--no-build-isolation", "--config-settings=build-dir=build/native")
    built = ("-m", "pip", "wheel", *options, "--wheel-dir", str(raw), str(source))
    run(python, *built, cwd=source, SOURCE_DATE_EPOCH=epoch)
    (wheel,) = raw.glob("*.whl")
    path = f"{SUPPLY}{os.pathsep}{os.environ['PATH']}"
    run(SUPPLY / "auditwheel", "repair", "--wheel-dir", tagged, wheel, PATH=path, SOURCE_DATE_EPOCH=epoch)
    (repaired,) = tagged.glob("*.whl")
    return repaired


def pack_site(site: Path, archive: Path, epoch: int) -> None:
    """Pack the documentation site, with the times of the commit and without names of users."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch
        return entry

    with tarfile.open(archive, "w:xz") as packed:
        for path in sorted(site.rglob("*")):
            packed.add(path, f"site/{path.relative_to(site)}", recursive=False, filter=plain)


def sums_of(directory: Path) -> str:
    """Return the lines of SHA256SUMS for the files of a directory."""
    names = sorted(path.name for path in directory.iterdir() if path.name != SUMS)
    return "".join(
        f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()}  {name}\n" for name in names
    )


def make_release(pythons: Sequence[str], engine: str = "", engine_options: Sequence[str] = ()) -> Path:
    """Make all files of the release and return their directory; `engine` builds the images. Raises `ReleaseError`."""
    if changed := run("git", "status", "--porcelain").strip():
        raise ReleaseError(f"the tree differs from its commit:\n{changed}\ncommit or remove this first")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    changes = changes_of((ROOT / "CHANGELOG.md").read_text(), version)
    commit, epoch = run("git", "show", "--no-patch", "--format=%h %ct").split()
    release = RELEASES / f"etloop-{version}"
    shutil.rmtree(release, ignore_errors=True)
    release.mkdir(parents=True)
    sdist = make_sdist(ROOT / ".venv" / "bin" / "python", release, epoch)
    for number, interpreter in enumerate(pythons):
        python = build_environment(interpreter, RELEASES / f"environment-{Path(interpreter).name}")
        wheel = make_wheel(python, unpack(sdist, RELEASES / f"source-{number}"), epoch)
        shutil.copy(wheel, release)
        agent_wheel = make_agent_wheel(wheel, release)
        print(f"{wheel.name}, {agent_wheel.name}: by {interpreter}", flush=True)
    if engine:
        python = ROOT / ".venv" / "bin" / "python"
        for image in make_images(engine, engine_options, version, release, python, run):
            print(f"{image.name}: by {engine}", flush=True)
    else:
        print("no images: RELEASE_ENGINE=docker or podman builds them", flush=True)
    shutil.copy(ROOT / "build" / "sbom.cdx.json", release / f"etloop-{version}.cdx.json")
    pack_site(ROOT / "build" / "site", release / f"etloop-{version}-site.tar.xz", int(epoch))
    files = [(path.name, path.stat().st_size) for path in sorted(release.iterdir())]
    (release / "NOTES.md").write_text(notes_of(version, commit, changes, files))
    (release / SUMS).write_text(sums_of(release))
    return release


def main(arguments: list[str]) -> int:
    """Make the release with the interpreters that are given; return the exit code."""
    if not arguments:
        print("usage: tools/make_release.py PYTHON...", file=sys.stderr)
        return 2
    engine, *engine_options = os.environ.get("RELEASE_ENGINE", "").split() or [""]
    try:
        release = make_release(arguments, engine, engine_options)
    except (ReleaseError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(f"{release.relative_to(ROOT)}:\n{(release / SUMS).read_text()}", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

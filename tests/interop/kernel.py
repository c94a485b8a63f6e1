"""The kernel of the interop machine: Debian's own, fetched as a package and unpacked as far as it is needed.

Decides which modules the machine loads and in which order. Nothing is installed: the package lands in a cache directory
and only the image and the modules of `WANTED` with what they depend on are kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

METAPACKAGE: Final = "linux-image-amd64"
WANTED: Final = (
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "crc32_generic",
    "ib_uverbs",
    "rdma_rxe",
    "veth",
    "sch_fq",
)
"""rdma_rxe asks the kernel's crypto interface for crc32 by name, which no dependency says."""
_KEPT: Final = re.compile(
    r"\./lib/modules/[^/]+/kernel/(drivers/(infiniband/(core|sw/rxe)|virtio|char)|drivers/net/(virtio_net|net_failover|veth)"
    r"|net/(9p|core|ipv4|ipv6|sched)|fs/(9p|netfs|fscache)|crypto|lib|arch/x86/crypto).*\.ko"
)
_MARK: Final = "complete-" + hashlib.sha256(repr((WANTED, _KEPT.pattern)).encode()).hexdigest()[:16]
"""Of a cache that has all of this; one of other wishes is fetched anew."""
_FETCH_SECONDS: Final = 300


class NoKernelError(Exception):
    """The kernel cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An image to boot and its modules in loading order."""

    image: Path
    modules: tuple[Path, ...]
    release: str


def kernel(cache: Path) -> Kernel:
    """The kernel in `cache`, fetched there first if it is not. Raises NoKernelError."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with cache.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Test processes start together, and one fetches for all.
        if not (cache / _MARK).exists():
            shutil.rmtree(cache, ignore_errors=True)
            _fetch(cache)
    image = next((cache / "boot").glob("vmlinuz-*"))
    return Kernel(image, _in_loading_order(cache / "modules"), image.name.removeprefix("vmlinuz-"))


def _fetch(cache: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoKernelError("no apt-get and dpkg-deb to fetch and unpack a kernel package with")
    with tempfile.TemporaryDirectory(dir=cache.parent) as name:
        place = Path(name)
        package = _package()
        done = subprocess.run(
            ["apt-get", "download", "-q", package],
            cwd=place, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False,
        )  # fmt: skip
        fetched = list(place.glob("*.deb"))
        if done.returncode != 0 or len(fetched) != 1:
            raise NoKernelError(f"apt-get download {package}: {done.stderr.strip()[-300:]}")
        unpacked = place / "unpacked"
        _unpack(fetched[0], unpacked)
        (unpacked / _MARK).touch()
        unpacked.rename(cache)


def _package() -> str:
    reported = subprocess.run(
        ["apt-cache", "depends", METAPACKAGE], capture_output=True, text=True, check=False
    ).stdout
    match = re.search(r"Depends: (linux-image-[0-9.]+\S*-amd64)", reported)
    if match is None:
        raise NoKernelError(f"apt-cache knows no {METAPACKAGE}; run apt-get update on a Debian system")
    return match[1]


def _unpack(package: Path, into: Path) -> None:
    (into / "boot").mkdir(parents=True)
    (into / "modules").mkdir()
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as unpacker:
        assert unpacker.stdout is not None
        with tarfile.open(fileobj=unpacker.stdout, mode="r|") as members:
            for member in members:
                folder = "boot" if member.name.startswith("./boot/vmlinuz-") else "modules"
                if folder == "boot" or _KEPT.fullmatch(member.name):
                    content = members.extractfile(member)
                    assert content is not None
                    _copy(content, into / folder / Path(member.name).name)
    if unpacker.returncode != 0:
        raise NoKernelError(f"dpkg-deb cannot unpack {package.name}")


def _copy(content: IO[bytes], to: Path) -> None:
    with to.open("wb") as out:
        shutil.copyfileobj(content, out)


def _in_loading_order(folder: Path) -> tuple[Path, ...]:
    ordered: list[Path] = []

    def load(name: str) -> None:
        path = folder / f"{name}.ko"
        if not path.exists():  # The kernel writes some names with a dash where the file has an underscore.
            path = folder / f"{name.replace('_', '-')}.ko"
        if not path.exists():
            raise NoKernelError(f"the kernel package has no module {name}.ko where it was looked for")
        if path in ordered:
            return
        for needed in _depends(path):
            load(needed)
        ordered.append(path)

    for wanted in WANTED:
        load(wanted)
    return tuple(ordered)


def _depends(module: Path) -> list[str]:
    """What a module says it needs (`depends=` in its .modinfo section)."""
    match = re.search(rb"\0depends=([^\0]*)\0", module.read_bytes())
    return [name for name in os.fsdecode(match[1]).split(",") if name] if match else []

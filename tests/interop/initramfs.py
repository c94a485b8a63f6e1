"""The first file system of the interop machine: busybox, kernel modules and a script. Pure: bytes in, archive out.

The script mounts the host's root file system read-only over 9p, brings the network interface and the Soft-RoCE device
up, and hands over to `guest/runner.py`, which starts programs as the tests ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_DIRECTORY: Final = 0o040755
_FILE: Final = 0o100755


@dataclass(frozen=True, slots=True)
class Guest:
    """What the machine is to be."""

    addresses: tuple[str, ...]
    """With prefix length, such as "198.18.0.2/24" or "fd00::2/64"."""
    mtu: int
    python: str
    runner: str
    """Paths on the host, which the machine sees as its own."""
    modules: tuple[str, ...]
    """File names in /modules, in loading order."""


def script(guest: Guest) -> str:
    """The init script of a machine."""
    family = (
        "-6 addr add {} dev eth0 nodad" if ":" in each else "addr add {} dev eth0" for each in guest.addresses
    )
    addresses = "\n".join(
        f"ip {line.format(each)}" for line, each in zip(family, guest.addresses, strict=True)
    )
    return f"""#!/bin/busybox sh
export PATH=/bin
stop() {{ echo "interop: $1 failed"; busybox poweroff -f; }}
busybox mount -t devtmpfs dev /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
for module in {" ".join(guest.modules)}; do
  busybox insmod /modules/$module || stop "insmod $module"
done
busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host || stop "mount of the host"
busybox mount --move /dev /host/dev
busybox mount --move /proc /host/proc
busybox mount --move /sys /host/sys
busybox mount -t tmpfs run /host/run || stop "mount of /run"
cat > /host/run/start <<'END'
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/run HOME=/run PYTHONDONTWRITEBYTECODE=1
ulimit -l unlimited
sysctl -q -w net.core.rmem_max=67108864 || true
ip link set lo up
ip link set eth0 mtu {guest.mtu} up
{addresses}
rdma link add rxe0 type rxe netdev eth0
exec {guest.python} {guest.runner}
END
busybox chroot /host /bin/sh /run/start || stop "the start of the runner"
busybox poweroff -f
"""


def archive(init: str, busybox: bytes, modules: Mapping[str, bytes]) -> bytes:
    """A cpio archive ("newc", Linux Documentation/driver-api/early-userspace/buffer-format.rst) that boots with `init`."""
    members: list[tuple[str, int, bytes]] = [
        (name, _DIRECTORY, b"") for name in ("bin", "dev", "proc", "sys", "host", "modules")
    ]
    members += [("init", _FILE, init.encode()), ("bin/busybox", _FILE, busybox), ("bin/cat", _FILE, busybox)]
    members += [(f"modules/{name}", _FILE, content) for name, content in modules.items()]
    return b"".join(_members([*members, ("TRAILER!!!", 0, b"")]))


def _members(members: Sequence[tuple[str, int, bytes]]) -> list[bytes]:
    parts = []
    for inode, (name, mode, content) in enumerate(members, 1):
        links = 2 if mode == _DIRECTORY else 1
        fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        parts += [header, bytes(-len(header) % 4), content, bytes(-len(content) % 4)]
    return parts

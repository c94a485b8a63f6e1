"""A small virtual machine with the kernel's Soft-RoCE, beside the tests: the RDMA NIC that nobody here wrote.

It boots Debian's kernel in software emulation (or KVM where that works) with the host's root file system read-only, so
that Python, our modules and compiled programs run inside as they stand. Its network interface is a tap in a namespace of
its own; programs in it are started over virtual serial ports, which do not touch that network.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.interop.initramfs import Guest, archive, script
from tests.interop.kernel import Kernel, NoKernelError, kernel

ROOT: Final = Path(__file__).parent.parent.parent
CACHE: Final = ROOT / "build" / "interop-kernel"
MTU: Final = 9000
_SUBNET: Final = os.getpid() % 200
HOST_ADDRESSES: Final = tuple(f"198.19.{_SUBNET}.{host}" for host in range(1, 9))
GUEST_ADDRESSES: Final = tuple(f"198.19.{_SUBNET}.{host}" for host in range(101, 109))
HOST_ADDRESS_6: Final = "fd00:e7:1::1"
GUEST_ADDRESS_6: Final = "fd00:e7:1::2"
BOOT_SECONDS: Final = 120
BOOT_TRIES: Final = 2
"""An emulated processor that its host withheld may lose a timer while the kernel boots, and stand still for good."""
ANSWER_SECONDS: Final = 60
_PORTS: Final = 4
_nothing: Final = threading.Event()
_CLONE_NEWNET: Final = 0x40000000


@dataclass(slots=True)
class Program:
    """A program under way in the machine, talked to in lines."""

    port: socket.socket
    name: str
    console: Path
    code: int | None = None
    _buffer: bytes = b""
    lines: list[str] = field(default_factory=list)
    """The beginning of each line it wrote, for messages."""

    def ask(self, line: str, seconds: float = ANSWER_SECONDS) -> str:
        """Writes a line and returns the next one that comes back."""
        self.port.sendall(line.encode() + b"\n")
        answer = self.line(seconds)
        assert answer is not None, f"{self.name} ended ({self.code}) at {line!r}: {self.lines[-20:]}"
        return answer

    def line(self, seconds: float = ANSWER_SECONDS) -> str | None:
        """The next line that the program writes; None once it has ended."""
        deadline = time.monotonic() + seconds
        while self.code is None:
            head, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                text = head.decode(errors="replace")
                if text.startswith(">"):
                    self.lines.append(text[1:200])
                    return text[1:]
                self.code = int(text.removeprefix("= "))
                break
            self.port.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                self._buffer += self.port.recv(65536)
            except TimeoutError:
                console = self.console.read_text(errors="replace")[-1500:]
                raise AssertionError(
                    f"{self.name} wrote nothing for {seconds} s; before: {self.lines[-10:]}; console: {console}"
                ) from None
        return None

    def rest(self, seconds: float = ANSWER_SECONDS) -> list[str]:
        """What it writes until it ends."""
        lines = []
        while (line := self.line(seconds)) is not None:
            lines.append(line)
        return lines

    def kill(self) -> None:
        """Ends it."""
        if self.code is None:
            self.port.sendall(b"!kill\n")
            self.rest()


class Machine:
    """A machine that has booted."""

    def __init__(self, namespace: str, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.namespace = namespace
        self.console = folder / "console"
        self._process = process
        self._ports: list[socket.socket] = []
        for number in range(_PORTS):
            port = socket.socket(socket.AF_UNIX)
            port.connect(str(folder / f"port{number}"))
            self._ports.append(port)
        self._free = list(self._ports)

    def start(self, *argv: str, env: dict[str, str] | None = None) -> Program:
        """Starts a program; paths are the host's."""
        assert self._free, "all serial ports of the machine are in use"
        port = self._free.pop()
        order = {"argv": argv, "env": env or {}, "cwd": str(ROOT)}
        port.sendall(json.dumps(order).encode() + b"\n")
        return Program(port, Path(argv[0]).name, self.console)

    def finish(self, program: Program) -> None:
        """Ends a program and takes its port back."""
        program.kill()
        self._free.append(program.port)

    @contextlib.contextmanager
    def running(self, *argv: str, env: dict[str, str] | None = None) -> Iterator[Program]:
        """A program for as long as a test needs it."""
        program = self.start(*argv, env=env)
        try:
            yield program
        finally:
            self.finish(program)

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Sockets that this thread opens meanwhile are on the machine's network."""
        with (
            Path(f"/run/netns/{self.namespace}").open() as theirs,
            Path("/proc/thread-self/ns/net").open() as ours,
        ):
            _enter(theirs.fileno())
            try:
                yield
            finally:
                _enter(ours.fileno())

    def close(self) -> None:
        """Ends the machine."""
        for port in self._ports:
            port.close()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def obstacle() -> str:
    """Why no machine can run here, "" if nothing is known to prevent it."""
    if os.geteuid() != 0:
        return "a tap and a namespace are for root"
    for tool, package in (
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("rdma", "iproute2"),
    ):
        if shutil.which(tool) is None:
            return f"no {tool} here (Debian package {package})"
    if not Path("/dev/net/tun").exists():
        return "no /dev/net/tun here"
    try:
        kernel(CACHE)
    except (NoKernelError, subprocess.TimeoutExpired) as reason:
        return f"no kernel to boot: {reason}"
    return ""


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """A machine on a network of its own, ready to start programs; `folder` takes its console and sockets."""
    namespace = f"rxe{os.getpid() % 100_000}"
    tap = "tap0"
    _ip("netns", "add", namespace)
    try:
        _lay_network(namespace, tap)
        command = ["ip", "netns", "exec", namespace, *_command(kernel(CACHE), folder, tap)]
        process = _started(command, folder)
        try:
            machine = Machine(namespace, folder, process)
            try:
                yield machine
            finally:
                machine.close()
        finally:
            process.kill()
            process.wait()
    finally:
        _ip("netns", "delete", namespace)


def _lay_network(namespace: str, tap: str) -> None:
    _ip("-n", namespace, "link", "set", "lo", "up")
    _ip("-n", namespace, "tuntap", "add", tap, "mode", "tap")
    _ip("-n", namespace, "link", "set", tap, "mtu", str(MTU), "up")
    for address in HOST_ADDRESSES:
        _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", tap)
    _ip("-n", namespace, "-6", "addr", "add", f"{HOST_ADDRESS_6}/64", "dev", tap, "nodad")


def _command(booted_kernel: Kernel, folder: Path, tap: str) -> list[str]:
    runner = Path(__file__).parent / "guest" / "runner.py"
    addresses = (*(f"{address}/24" for address in GUEST_ADDRESSES), f"{GUEST_ADDRESS_6}/64")
    modules = tuple(module.name for module in booted_kernel.modules)
    guest = Guest(addresses, MTU, sys.executable, str(runner), modules)
    content = {module.name: module.read_bytes() for module in booted_kernel.modules}
    busybox = Path(str(shutil.which("busybox"))).read_bytes()
    (folder / "initramfs").write_bytes(archive(script(guest), busybox, content))
    ports = [
        argument
        for number in range(_PORTS)
        for argument in (
            "-chardev", f"socket,id=c{number},path={folder}/port{number},server=on,wait=off",
            "-device", f"virtserialport,chardev=c{number},name=etloop.{number}",
        )
    ]  # fmt: skip
    return [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-M", "q35",
        "-accel", _accelerator(), "-cpu", "max", "-smp", "2", "-m", "1024",
        "-kernel", str(booted_kernel.image), "-initrd", str(folder / "initramfs"),
        "-append", "console=ttyS0 panic=-1 quiet mitigations=off net.ifnames=0 tsc=reliable no_timer_check",
        "-serial", f"file:{folder}/console",
        "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
        "-netdev", f"tap,id=n0,ifname={tap},script=no,downscript=no",
        "-device", "virtio-net-pci,netdev=n0,romfile=",
        "-device", "virtio-serial-pci", *ports,
    ]  # fmt: skip


def _accelerator() -> str:
    """KVM where the processor has it. A /dev/kvm without the processor's flags is an emulation that may hang."""
    flags = Path("/proc/cpuinfo").read_text()
    has_kvm = (" vmx" in flags or " svm" in flags) and os.access("/dev/kvm", os.R_OK | os.W_OK)
    return "kvm" if has_kvm else "tcg,thread=multi"


def _started(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """A machine that has booted. What an earlier try said is kept beside the console, as `console-1`."""
    for trial in range(1, BOOT_TRIES + 1):
        with (folder / "qemu").open("wb") as reported:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=reported, stderr=reported)
        ready = False
        try:
            _await_ready(process, folder)
            ready = True
            break
        except AssertionError as stalled:
            if trial == BOOT_TRIES:
                raise
            print(f"try {trial} of {BOOT_TRIES}: {stalled}")
            if (folder / "console").exists():
                (folder / "console").rename(folder / f"console-{trial}")
        finally:
            if not ready:
                process.kill()
                process.wait()
    return process


def _await_ready(process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + BOOT_SECONDS
    console = folder / "console"
    while time.monotonic() < deadline:
        if console.exists() and "interop: ready" in console.read_text(errors="replace"):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            break
    reported = [
        path.read_text(errors="replace")[-2000:] for path in (folder / "qemu", console) if path.exists()
    ]
    raise AssertionError("the machine did not start:\n" + "\n".join(reported))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)

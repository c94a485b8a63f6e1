"""Creates network namespaces without names, by threads that enter them for a moment; descriptors keep them alive.

The kernel removes such a namespace, with every interface in it, when its last descriptor and process are gone, for whatever
reason. So a kill needs no cleanup and leaves nothing in /run/netns. Needs root, or a kernel that allows users to create user
namespaces (user_namespaces(7)).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from etloop.contract.base.errors import Problem, RigError

T = TypeVar("T")

CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def become_root() -> bool:
    """Enter a new user namespace with this user as its root unless the process is root already; return whether it did.

    The process must have a single thread. Raise `RigError` if the kernel does not allow it.
    """
    if os.geteuid() == 0:
        return False
    uid, gid = os.geteuid(), os.getegid()
    try:
        _check(_LIBC.unshare(CLONE_NEWUSER))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    except OSError as error:
        problem = f"cannot create a user namespace: {error.strerror}"
        remedy = (
            "run it as root, or allow user namespaces"
            " (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)"
        )
        raise RigError(Problem("lab", problem, remedy)) from None
    return True


def new_namespace() -> int:
    """Return a descriptor of a new network namespace. Raise `RigError` if the kernel refuses."""

    def make() -> int:
        _check(_LIBC.unshare(CLONE_NEWNET))
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    try:
        return _in_thread(make)
    except OSError as error:
        problem = f"cannot create a network namespace: {error.strerror}"
        raise RigError(Problem("lab", problem, "run it as root, or where namespaces are allowed")) from None


def inside(namespace: int, call: Callable[[], T]) -> T:
    """Call `call` in a thread inside the namespace and return its result. Sockets that it opens stay in the namespace."""

    def enter() -> T:
        _check(_LIBC.setns(namespace, CLONE_NEWNET))
        return call()

    return _in_thread(enter)


def enter_for_good(namespace: int, kind: int = CLONE_NEWNET) -> None:
    """Move this process, which must have a single thread, into a namespace of that kind. Raise OSError."""
    _check(_LIBC.setns(namespace, kind))


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process a signal when its parent's thread ends."""
    _check(_LIBC.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _in_thread(call: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again by the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def set_in_proc(path: str, value: str) -> None:
    """Write a network setting of the calling thread's namespace; ignore settings that the kernel does not have."""
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/sys/net", path).write_text(value)

"""Reports a host that cannot be read as just that: without a file descriptor, a host has neither addresses nor devices."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from etloop.contract.base.errors import Problem, RigError

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Errors of this process and this kernel, whatever was to be read."""


@contextmanager
def raising_unread(subject: str) -> Iterator[None]:
    """Raise an `OSError` of the block as a `RigError` that names `subject`, the part of the host that was to be read."""
    try:
        yield
    except OSError as error:
        remedy = "raise the limits of etloop-agent (LimitNOFILE of its unit, ulimit -n), or end what exhausts this host"
        raise RigError(Problem(subject, f"cannot be read: {error.strerror or error}", remedy)) from None

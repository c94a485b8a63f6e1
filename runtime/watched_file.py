"""A small settings file that is checked at each use, and read again when it has changed. A shell: the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from etloop.contract.base.errors import ConfigError, Problem
from etloop.runtime.secret_file import exposed_secret

T = TypeVar("T")

MOST_BYTES: Final = 1 << 20


class WatchedFile(Generic[T]):
    """The current parsed content of a file."""

    def __init__(self, path: Path, parse: Callable[[bytes, str], T], *, is_secret: bool) -> None:
        """Watch the file at `path`, without reading it yet.

        `parse` gets the bytes and the name of the file, and raises `ConfigError`. A secret that other users may read is
        refused.
        """
        self._path = path
        self._parse = parse
        self._is_secret = is_secret
        self._seen: tuple[int, int, int] | None = None
        self._last: T | None = None

    def current(self) -> T:
        """Return the content of the file, read again if it has changed. Raises `ConfigError` if it cannot be used."""
        try:
            status = self._path.stat()
            signature = (status.st_mtime_ns, status.st_size, status.st_ino)
            if self._is_secret and (problem := exposed_secret(self._path)):
                raise ConfigError(problem)
            if signature != self._seen or self._last is None:
                with self._path.open("rb") as file:
                    raw = file.read(MOST_BYTES + 1)
                if len(raw) > MOST_BYTES:
                    remedy = f"keep it below {MOST_BYTES} bytes"
                    raise ConfigError(Problem(str(self._path), "is too large", remedy))
                self._last = self._parse(raw, str(self._path))
                self._seen = signature
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
            remedy = "check that it exists and is readable"
            raise ConfigError(Problem(str(self._path), reason, remedy)) from None
        return self._last

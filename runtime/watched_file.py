"""A small file of settings that is looked at whenever it is needed, and read again when it has changed. A shell: the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from etloop.contract.base.errors import ConfigError, Problem
from etloop.runtime.secret_file import exposed_secret

T = TypeVar("T")

MOST_BYTES: Final = 1 << 20


class WatchedFile(Generic[T]):
    """What a file says now."""

    def __init__(self, path: Path, parse: Callable[[bytes, str], T], *, is_secret: bool) -> None:
        """`parse` gets the bytes and the name of the file, and raises `ConfigError`. A secret that others may read is refused."""
        self._path = path
        self._parse = parse
        self._is_secret = is_secret
        self._seen: tuple[int, int, int] | None = None
        self._last: T | None = None

    def current(self) -> T:
        """Return what the file says, read again if it has changed. Raises `ConfigError` for one that cannot be used."""
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if self._is_secret and (problem := exposed_secret(self._path)):
                raise ConfigError(problem)
            if seen != self._seen or self._last is None:
                with self._path.open("rb") as file:
                    raw = file.read(MOST_BYTES + 1)
                if len(raw) > MOST_BYTES:
                    remedy = f"keep it below {MOST_BYTES} bytes"
                    raise ConfigError(Problem(str(self._path), "is larger than what is read", remedy))
                self._last = self._parse(raw, str(self._path))
                self._seen = seen
        except OSError as error:
            what = f"cannot be read: {error.strerror or error}"
            remedy = "check the name and that it may be read"
            raise ConfigError(Problem(str(self._path), what, remedy)) from None
        return self._last

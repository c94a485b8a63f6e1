"""Pass small objects between the recordings of ranks, through files of one directory.

Values that a script gets from other ranks before it can go on (shapes of a pipeline's stages, Python objects) have to come from
their recordings. Files are written by these processes alone, in a directory that only this user can enter.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .events import Refusal

_POLL_S: Final = 0.02


class Channel:
    """One directory with an object in each file."""

    def __init__(self, directory: str, rank: int, timeout_s: float, flush: Callable[[], None]) -> None:
        """`flush` writes the events so far: while this rank waits, the launcher reads them to choose other ranks."""
        self._directory, self._rank, self._timeout_s, self._flush = Path(directory), rank, timeout_s, flush

    @property
    def recorded(self) -> frozenset[int]:
        """Return the ranks that are recorded, as soon as the launcher has chosen them."""
        path = self._directory / "recorded.json"
        self._wait_for(path, "the choice of ranks")
        return frozenset(json.loads(path.read_text()))

    def put(self, key: str, value: Any) -> None:
        """Write an object under a key; a later object of the same key must be equal."""
        path = self._directory / f"{key}.object"
        content = pickle.dumps(value)
        if path.exists() and path.read_bytes() != content:
            raise Refusal(
                f"ranks of one role hand different values to other ranks ({key})",
                "record every rank with --record all",
            )
        partial = path.with_suffix(f".{self._rank}")
        partial.write_bytes(content)
        partial.replace(path)

    def get(self, key: str, source: str) -> Any:
        """Return the object of a key as soon as it is there. `source` names who writes it, for the error."""
        path = self._directory / f"{key}.object"
        self._wait_for(path, source)
        return pickle.loads(path.read_bytes())  # noqa: S301 - written by these processes

    def _wait_for(self, path: Path, source: str) -> None:
        if path.exists():
            return
        waiting = self._directory / f"{self._rank}.waiting"
        deadline = time.monotonic() + self._timeout_s
        self._flush()
        waiting.touch()
        try:
            while not path.exists():
                if (self._directory / "failed").exists() or time.monotonic() > deadline:
                    raise Refusal(
                        f"{source} did not hand over what this rank needs ({path.stem})",
                        "see the error of that rank; otherwise record every rank with --record all",
                    )
                time.sleep(_POLL_S)
        finally:
            waiting.unlink(missing_ok=True)

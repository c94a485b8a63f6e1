"""SHA256SUMS of a run directory: the digest of every file in it, so that a damaged file is named and never read.

`sha256sum -c` checks it, too. While a run is updated, a file may have two lines: its content is then the old or the new one,
whenever the update is broken off. The last line is a comment with the digest of the lines above it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.results.schema.typed_json import RESTORE, RunDirError

SUMS_FILE: Final = "SHA256SUMS"
FOR_READERS: Final = frozenset({"report.html", "junit.xml", "trace.perfetto.json"})
"""Files that no command reads: they may be removed, and are checked only if present."""
MOST_SUMS_BYTES: Final = 1 << 20
_LINE: Final = re.compile(r"([0-9a-f]{64})  ([^\n/\\]+)\n")
_LAST: Final = "# sha256 of the lines above: "
_PIECE_BYTES: Final = 1 << 20
_MOST_UPDATES: Final = 3
"""Updates by another process that a check is repeated for."""

Sums = Mapping[str, frozenset[str]]
"""File name -> the digests that its content may have, in hex."""


def sums_text(sums: Sums) -> str:
    """Return the content of SHA256SUMS."""
    lines = "".join(f"{digest}  {name}\n" for name in sorted(sums) for digest in sorted(sums[name]))
    return f"{lines}{_LAST}{hashlib.sha256(lines.encode()).hexdigest()}\n"


def parse_sums(text: str, where: str) -> Sums:
    """Parse the content of SHA256SUMS. Raises `RunDirError` if any byte differs from the output of `sums_text`."""
    sums: dict[str, frozenset[str]] = {}
    for digest, name in _LINE.findall(text):
        sums[name] = sums.get(name, frozenset()) | {digest}
    if sums_text(sums) != text:
        raise RunDirError(
            Problem(where, "is damaged: its lines do not have the digest of its last line", RESTORE)
        )
    return sums


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises `OSError`."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def read_sums(run_dir: Path) -> Sums:
    """Return the digests of a run directory. Raises `RunDirError` if they are missing, unreadable or damaged."""
    path = run_dir / SUMS_FILE
    try:
        with path.open("rb") as file:
            content = file.read(MOST_SUMS_BYTES + 1)
    except FileNotFoundError:
        problem = f"has no {SUMS_FILE}, so damage of its files would not be noticed"
        raise RunDirError(
            Problem(str(run_dir), problem, "restore the whole directory, or run it again")
        ) from None
    except OSError as error:
        raise RunDirError(Problem(str(path), f"cannot be read: {error.strerror}", RESTORE)) from None
    return parse_sums(content.decode(errors="replace"), str(path))


def refuse_damage(run_dir: Path, names: Iterable[str] | None = None) -> Sums:
    """Return the digests of a run directory after comparing files with them: `names`, or all.

    Raises:
        RunDirError: with every file that is damaged, missing, unreadable, or not part of the run.
    """
    wanted = None if names is None else tuple(names)
    sums = read_sums(run_dir)
    for _ in range(_MOST_UPDATES):
        problems = _problems(run_dir, sums, wanted)
        if not problems:
            return sums
        # Another process may have updated the run between the two reads.
        before, sums = sums, read_sums(run_dir)
        if sums == before:
            break
    raise RunDirError(*problems)


def _problems(run_dir: Path, sums: Sums, names: tuple[str, ...] | None) -> list[Problem]:
    problems = []
    for name in sorted(sums) if names is None else names:
        path = run_dir / name
        try:
            digest = digest_of_file(path)
        except FileNotFoundError:
            if names is not None or name not in FOR_READERS:
                problems.append(Problem(str(path), "cannot be read: no such file", RESTORE))
            continue
        except OSError as error:
            problems.append(Problem(str(path), f"cannot be read: {error.strerror}", RESTORE))
            continue
        if name not in sums:
            problems.append(
                Problem(str(path), f"is not part of the run: {SUMS_FILE} does not list it", "move it away")
            )
        elif digest not in sums[name]:
            problem = f"is damaged or was changed: its SHA-256 differs from that in {SUMS_FILE}"
            problems.append(Problem(str(path), problem, RESTORE))
    return problems

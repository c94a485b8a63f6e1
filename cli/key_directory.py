"""The key directory of the control connection: key pairs, and the public keys of the agents that may connect.

A key directory holds pairs, `NAME.key` (public) and `NAME.key_secret`, and in `allowed/` the public keys of the agents that may
connect: `security.curve` of a rig file names it. `runtime.curve_keys` makes and reads pairs.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.runtime.curve_keys import (
    key_pair,
    make_key_pairs,
    name_problems,
    public_key_problem,
    read_public_key,
)

ALLOWED: Final = "allowed"
"""Folder of the public keys that may connect, below the key directory."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One name of a key directory."""

    name: str
    public_key: str
    """Z85, 40 characters; "" if the file cannot be read."""
    secret_here: bool
    allowed: bool
    remark: str
    """The problem with it; "" if there is none."""


def make_pairs(directory: Path, names: Sequence[str], *, keep: bool = False) -> tuple[str, ...]:
    """Make a pair for every name and return lines about them. Raise `ConfigError` as `make_key_pairs` does."""
    pairs = make_key_pairs(directory, names, keep=keep)
    return tuple(line for pair in pairs for line in pair.lines()) or ("every pair exists already",)


def allow(directory: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Put public keys on the allow-list, given by name if the pair lies in `directory`, else by the file's path.

    Raise `ConfigError`, and allow none, if one of them cannot be read or would replace another key of its name.
    """
    problems, copies = [], []
    for name in dict.fromkeys(names):
        path = Path(name) if name.endswith(".key") else directory / f"{name}.key"
        problem = public_key_problem(path)
        target = directory / ALLOWED / path.name
        if problem is None and target.exists() and read_public_key(target) != read_public_key(path):
            remedy = f"etloop keys revoke {path.stem} first, if the agent has a new key"
            problem = Problem(str(target), "is a different key with the same name", remedy)
        if problem is not None:
            problems.append(problem)
        copies.append((path, target))
    if problems:
        raise ConfigError(*problems)
    try:
        (directory / ALLOWED).mkdir(mode=0o755, parents=True, exist_ok=True)
        for path, target in copies:
            # Copied atomically: a controller may be reading the list.
            partial_file = target.with_suffix(".part")
            shutil.copyfile(path, partial_file)
            partial_file.chmod(0o644)
            partial_file.replace(target)
    except OSError as error:
        raise _access_error(directory / ALLOWED, "written", error) from None
    return tuple(f"{target.stem} may connect" for _, target in copies)


def revoke(directory: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Remove keys from the allow-list. Raise `ConfigError`, and revoke none, if one of them is not on it."""
    targets = [directory / ALLOWED / f"{name.removesuffix('.key')}.key" for name in dict.fromkeys(names)]
    problems = name_problems([path.stem for path in targets]) or [
        Problem(str(path), "is not on the allow-list", f"etloop keys list --dir {directory} lists it")
        for path in targets
        if not path.is_file()
    ]
    if problems:
        raise ConfigError(*problems)
    try:
        for path in targets:
            path.unlink()
    except OSError as error:
        raise _access_error(directory / ALLOWED, "changed", error) from None
    return tuple(f"{path.stem} may no longer connect" for path in targets)


def key_rows(directory: Path) -> tuple[KeyRow, ...]:
    """Return every name in `directory` or its allow-list, sorted. Raise `ConfigError` if the directory cannot be read."""
    try:
        pairs = {path.stem: path for path in directory.glob("*.key*")}
        allowed = {path.stem: path for path in (directory / ALLOWED).glob("*.key")}
        next(directory.iterdir(), None)
    except OSError as error:
        raise _access_error(directory, "read", error) from None
    return tuple(_row(directory, name, allowed.get(name)) for name in sorted(pairs | allowed))


def _row(directory: Path, name: str, allowed: Path | None) -> KeyRow:
    pair = key_pair(directory, name)
    file = allowed or pair.public
    remark = ""
    if problem := public_key_problem(file):
        remark = problem.what
    elif (
        allowed is not None and pair.public.exists() and read_public_key(pair.public) != read_public_key(file)
    ):
        remark = "the allow-list has a different key with this name"
    elif pair.secret.exists() and pair.secret.stat().st_mode & _OTHERS:
        remark = f"other users can read the secret: chmod 600 {pair.secret}"
    key = "" if problem else read_public_key(file).decode("ascii")
    return KeyRow(name, key, pair.secret.exists(), allowed is not None, remark)


def key_table(rows: Sequence[KeyRow], directory: Path) -> str:
    """Return the table of a key directory; it ends with a newline."""
    if not rows:
        return f"{directory} has no keys; etloop keys make NAME --dir {directory} makes a pair\n"
    width = max(len("name"), *(len(row.name) for row in rows))
    lines = [f"{'name':<{width}}  {'public key':<40}  secret  allowed"]
    for row in rows:
        secret, allowed = "here" if row.secret_here else "-", "yes" if row.allowed else "-"
        lines.append(f"{row.name:<{width}}  {row.public_key:<40}  {secret:<6}  {allowed:<7}  {row.remark}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _access_error(path: Path, action: str, error: OSError) -> ConfigError:
    remedy = "name a directory that this user may use, with --dir"
    return ConfigError(Problem(str(path), f"cannot be {action}: {error.strerror}", remedy))

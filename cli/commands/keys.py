"""`etloop keys`: key pairs of the control connection, and the list of agents that may connect. A shell: key files.

A key directory holds pairs, `NAME.key` (public) and `NAME.key_secret`, and in `allowed/` the public keys of the agents that
get in: what `security.curve` of a rig file names. Which connection a key admits is ZeroMQ's to decide (CURVE, ZAP).
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import zmq.auth
from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import QuantityError, parse_name

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ALLOWED: Final = "allowed"
"""Folder of the public keys that get in, below the key directory."""
_LARGEST_KEY_FILE_BYTES: Final = 65_536
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
    """What is wrong with it; "" if nothing."""


def carried_out(parsed: argparse.Namespace) -> CommandResult:
    """Carries the command out. Raises `ConfigError` with everything that is wrong, before anything is changed."""
    directory: Path = parsed.dir
    names: list[str] = parsed.names
    if (parsed.action == "list") == bool(names):
        remedy = "etloop keys list takes no name" if names else "give one name or more"
        raise ConfigError(Problem(f"etloop keys {parsed.action}", f"got {len(names)} names", remedy))
    if parsed.action == "make":
        done = make_pairs(directory, names, keep=parsed.keep)
    elif parsed.action == "allow":
        done = allow(directory, names)
    elif parsed.action == "revoke":
        done = revoke(directory, names)
    else:
        done = ()
    rows = key_rows(directory)
    if parsed.json:
        return CommandResult(to_json({"done": list(done), "keys": [asdict(row) for row in rows]}))
    return CommandResult("".join(f"{line}\n" for line in done) if done else _table(rows, directory))


def make_pairs(directory: Path, names: Sequence[str], *, keep: bool = False) -> tuple[str, ...]:
    """Makes a pair for every name; the secret is readable by its owner alone from its first byte on.

    Raises `ConfigError` for names that cannot be file names, and, unless `keep`, for pairs that exist.
    """
    problems = _name_problems(names)
    wanted = []
    for name in dict.fromkeys(names):
        taken = [path for path in _pair(directory, name) if path.exists()]
        if taken and not (keep and len(taken) == 2):
            remedy = "remove it to make a new pair; whoever holds the old one is then locked out"
            problems.append(Problem(str(taken[0]), "exists already", remedy))
        elif not taken:
            wanted.append(name)
    if problems:
        raise ConfigError(*problems)
    made = []
    # No moment in which a secret could be read by others: the umask is the process's, and this is a command of one thread.
    before = os.umask(0o077)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            zmq.auth.create_certificates(directory, name)
            public, secret = _pair(directory, name)
            public.chmod(0o644)
            made += [
                f"{public}  public: give it to the other side",
                f"{secret}  secret: never leaves its host",
            ]
    except OSError as error:
        raise _cannot(directory, "written", error) from None
    finally:
        os.umask(before)
    return tuple(made) or ("nothing to make: every pair exists",)


def allow(directory: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Puts public keys on the allow-list: by name if the pair lies in `directory`, else by the file's path."""
    problems, found = [], []
    for name in dict.fromkeys(names):
        path = Path(name) if name.endswith(".key") else directory / f"{name}.key"
        problem = _public_problem(path)
        target = directory / ALLOWED / path.name
        if problem is None and target.exists() and _public_key(target) != _public_key(path):
            remedy = f"etloop keys revoke {path.stem} first, if the agent really has a new key"
            problem = Problem(str(target), "is another key of that name", remedy)
        if problem is not None:
            problems.append(problem)
        found.append((path, target))
    if problems:
        raise ConfigError(*problems)
    try:
        (directory / ALLOWED).mkdir(mode=0o755, parents=True, exist_ok=True)
        for path, target in found:
            # Whole or not at all: a controller may be reading the list.
            part = target.with_suffix(".part")
            shutil.copyfile(path, part)
            part.chmod(0o644)
            part.replace(target)
    except OSError as error:
        raise _cannot(directory / ALLOWED, "written", error) from None
    return tuple(f"{target.stem} may connect" for _, target in found)


def revoke(directory: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Takes keys off the allow-list. Raises `ConfigError`, and revokes none, if one of them is not on it."""
    targets = [directory / ALLOWED / f"{name.removesuffix('.key')}.key" for name in dict.fromkeys(names)]
    problems = _name_problems([path.stem for path in targets]) or [
        Problem(str(path), "is not on the allow-list", f"etloop keys list --dir {directory} shows who is")
        for path in targets
        if not path.is_file()
    ]
    if problems:
        raise ConfigError(*problems)
    try:
        for path in targets:
            path.unlink()
    except OSError as error:
        raise _cannot(directory / ALLOWED, "changed", error) from None
    return tuple(f"{path.stem} may no longer connect" for path in targets)


def key_rows(directory: Path) -> tuple[KeyRow, ...]:
    """Every name that `directory` or its allow-list knows, in order. Raises `ConfigError` if it cannot be read."""
    try:
        pairs = {path.stem: path for path in directory.glob("*.key*")}
        allowed = {path.stem: path for path in (directory / ALLOWED).glob("*.key")}
        next(directory.iterdir(), None)
    except OSError as error:
        raise _cannot(directory, "read", error) from None
    return tuple(_row(directory, name, allowed.get(name)) for name in sorted(pairs | allowed))


def _row(directory: Path, name: str, allowed: Path | None) -> KeyRow:
    public, secret = _pair(directory, name)
    file = allowed or public
    remark = ""
    if problem := _public_problem(file):
        remark = problem.what
    elif allowed is not None and public.exists() and _public_key(public) != _public_key(allowed):
        remark = "the allow-list holds another key of that name"
    elif secret.exists() and secret.stat().st_mode & _OTHERS:
        remark = f"others may read the secret: chmod 600 {secret}"
    key = "" if _public_problem(file) else _public_key(file).decode("ascii")
    return KeyRow(name, key, secret.exists(), allowed is not None, remark)


def _table(rows: Sequence[KeyRow], directory: Path) -> str:
    if not rows:
        return f"{directory} holds no keys; etloop keys make NAME --dir {directory} makes some\n"
    width = max(len("name"), *(len(row.name) for row in rows))
    lines = [f"{'name':<{width}}  {'public key':<40}  secret  allowed"]
    for row in rows:
        secret, allowed = "here" if row.secret_here else "-", "yes" if row.allowed else "-"
        lines.append(f"{row.name:<{width}}  {row.public_key:<40}  {secret:<6}  {allowed:<7}  {row.remark}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _pair(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.key", directory / f"{name}.key_secret"


def _public_problem(path: Path) -> Problem | None:
    remedy = "name a .key file as etloop keys make writes it"
    try:
        if path.stat().st_size > _LARGEST_KEY_FILE_BYTES:
            return Problem(str(path), "is too large for a key file", remedy)
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it holds no public key"
        return Problem(str(path), f"is no readable key file: {why}", remedy)
    if secret is not None:
        return Problem(
            str(path), "holds a secret key", "give the .key file; the secret stays on its own host"
        )
    return None if len(public) == 40 else Problem(str(path), "holds no public key of 40 characters", remedy)


def _public_key(path: Path) -> bytes:
    public, _ = zmq.auth.load_certificate(path)
    return public


def _name_problems(names: Sequence[str]) -> list[Problem]:
    problems = []
    for name in names:
        try:
            parse_name(name)
        except QuantityError as error:
            problems.append(Problem(f'"{name[:64]}"', error.what, error.remedy))
    return problems


def _cannot(path: Path, what: str, error: OSError) -> ConfigError:
    remedy = "name a directory that this user may use, with --dir"
    return ConfigError(Problem(str(path), f"cannot be {what}: {error.strerror}", remedy))

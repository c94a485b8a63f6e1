"""Make and read the key pairs of the control connection, and set them on its sockets. A shell: key files, ZeroMQ.

A pair is two files of one directory, `NAME.key` (public) and `NAME.key_secret` (both keys). Which agents a controller admits
is decided in `controller.session.admission`, from the keys that `key_directory` reads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import zmq
import zmq.auth

from etloop.contract.base.errors import ConfigError, Mistakes, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import parse_at, parse_name
from etloop.runtime.secret_file import exposed_secret

_LARGEST_KEY_FILE_BYTES: Final = 65_536
_KEY_CHARACTERS: Final = 40
"""Length of a key in Z85."""
_MAKE: Final = "as etloop keys make and etloop-agent keygen write it"


class UnreadableKeyFile(ConfigError):
    """A key file could not be read, so its content is unknown."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The two files of one name."""

    public: Path
    secret: Path

    def lines(self) -> tuple[str, str]:
        """Return one line per file with its path and its use."""
        return (
            f"{self.public}  public: give it to the other side",
            f"{self.secret}  secret: never leaves its host",
        )


def key_pair(directory: Path, name: str) -> KeyPair:
    """Return the paths of the pair of `name`, whether they exist or not."""
    return KeyPair(directory / f"{name}.key", directory / f"{name}.key_secret")


def make_key_pairs(directory: Path, names: Sequence[str], *, keep: bool = False) -> tuple[KeyPair, ...]:
    """Make a pair for every name; from its first byte a secret is readable by its owner only.

    Raises `ConfigError`, before any file is made, for names that cannot be file names and, unless `keep`, for pairs
    that exist; and for a directory that cannot be written. Not thread-safe: it changes the umask while it writes.
    """
    problems = name_problems(names)
    missing_pairs = []
    for name in dict.fromkeys(names):
        pair = key_pair(directory, name)
        existing_paths = [path for path in (pair.public, pair.secret) if path.exists()]
        if existing_paths and not (keep and len(existing_paths) == 2):
            remedy = "remove it to make a new pair; the old key is then no longer accepted"
            problems.append(Problem(str(existing_paths[0]), "already exists", remedy))
        elif not existing_paths:
            missing_pairs.append((name, pair))
    if problems:
        raise ConfigError(*problems)
    previous_umask = os.umask(0o077)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, pair in missing_pairs:
            zmq.auth.create_certificates(directory, name)
            pair.public.chmod(0o644)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise ConfigError(
            Problem(str(directory), problem, "give a directory that this user can write to")
        ) from None
    finally:
        os.umask(previous_umask)
    return tuple(pair for _, pair in missing_pairs)


def name_problems(names: Sequence[str]) -> list[Problem]:
    """Return the problems of names that cannot be names of key files."""
    mistakes = Mistakes()
    for name in names:
        mistakes.of(partial(parse_at, f'"{name[:64]}"', parse_name, name))
    return mistakes.problems


def public_key_problem(path: Path) -> Problem | None:
    """Return why a file is not a public key that may be given away; None if it is one."""
    try:
        read_public_key(path)
    except ConfigError as error:
        return error.problems[0]
    return None


def read_public_key(path: Path) -> bytes:
    """Read the key of a `.key` file. Raises `ConfigError`, also for a file with a secret key."""
    public, secret = _read(path)
    if secret is not None:
        remedy = "give the .key file; the secret stays on its own host"
        raise ConfigError(Problem(str(path), "contains a secret key", remedy))
    return public


def read_key_pair(path: Path) -> tuple[bytes, bytes]:
    """Read the public and the secret key of a `.key_secret` file. Raises `ConfigError`, also if other users may read it."""
    public, secret = _read(path)
    if secret is None:
        raise ConfigError(Problem(str(path), "contains no secret key", f"give a .key_secret file {_MAKE}"))
    if problem := exposed_secret(path):
        raise ConfigError(problem)
    return public, secret


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """Keys of an agent's end of an encrypted connection, read once, so that the files may change later."""

    server: bytes
    """Public key of the controller; no other one is accepted."""
    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return f"ClientKeys({self.public.decode('ascii', 'replace')})"


def read_client_keys(server_key_file: Path, secret_key_file: Path) -> ClientKeys:
    """Read the keys that `secure_client` needs. Raises `ConfigError`."""
    server = read_public_key(server_key_file)
    public, secret = read_key_pair(secret_key_file)
    return ClientKeys(server, public, secret)


def secure_client(socket: zmq.Socket[Any], keys: ClientKeys) -> None:
    """Encrypt a socket before it connects; it accepts only the server with that key."""
    socket.curve_serverkey = keys.server
    socket.curve_publickey, socket.curve_secretkey = keys.public, keys.secret


def secure_server(socket: zmq.Socket[Any], secret_key_file: Path) -> None:
    """Encrypt a socket before it binds; the context's ZAP handler decides which clients are admitted. Raises
    `ConfigError`.
    """
    public, secret = read_key_pair(secret_key_file)
    socket.curve_publickey, socket.curve_secretkey = public, secret
    socket.curve_server = True


def _read(path: Path) -> tuple[bytes, bytes | None]:
    try:
        if path.stat().st_size > _LARGEST_KEY_FILE_BYTES:
            raise ConfigError(Problem(str(path), "is too large for a key file", f"give a key file {_MAKE}"))
        public, secret = zmq.auth.load_certificate(path)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or 'it was removed'}"
        raise UnreadableKeyFile(Problem(str(path), problem, f"give a key file {_MAKE}")) from None
    except ValueError:
        problem = "contains no public key"
        raise ConfigError(Problem(str(path), problem, f"give a key file {_MAKE}")) from None
    if len(public) != _KEY_CHARACTERS:
        problem = f"contains no public key of {_KEY_CHARACTERS} characters"
        raise ConfigError(Problem(str(path), problem, f"give a key file {_MAKE}"))
    return public, secret

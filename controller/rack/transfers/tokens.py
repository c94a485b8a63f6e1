"""Rights over HTTP: bearer tokens from a file that only its owner may read. Pure.

A line has a name, a right, and the token: `nightly write 5d41402a…`. The name appears in logs and audit trail, the
token nowhere. The file is checked for every request (`WatchedFile`), so a token that was removed is refused at once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from enum import StrEnum
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.runtime.watched_file import WatchedFile

_MOST_TOKENS: Final = 1024
_LEAST_CHARACTERS: Final = 24
"""Shortest token: cannot be guessed, whatever the rate of attempts."""
_MOST_CHARACTERS: Final = 512
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""Characters of RFC 6750, section 2.1."""
_MAKE_ONE: Final = "make one with openssl rand -hex 32"


class Right(StrEnum):
    """A right that a token gives."""

    READ = "read"
    """View and download results and traces."""
    WRITE = "write"
    """In addition, upload traces."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The name and right of a token."""

    name: str
    right: Right

    def may(self, right: Right) -> bool:
        """Return whether the holder has this right; WRITE includes READ."""
        return right is Right.READ or self.right is Right.WRITE


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one file; only their digests are kept."""

    holders: tuple[tuple[bytes, Holder], ...]

    def holder(self, token: str) -> Holder | None:
        """Return the holder of a token in a time independent of which one it is; None for an unknown token."""
        presented = _digest(token)
        matching_holder = None
        for digest, holder in self.holders:
            if hmac.compare_digest(digest, presented):
                matching_holder = holder
        return matching_holder


def parse_tokens(text: str, source: str) -> Tokens:
    """Parse a file of tokens. Raises `ConfigError` with every invalid line; no message has a token."""
    problems: list[Problem] = []
    holders: dict[bytes, Holder] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if fault := _fault(words):
            problems.append(Problem(f"{source}:{number}", *fault))
            continue
        name, right, token = words
        digest = _digest(token)
        if digest in holders:
            problem = f"{name} has the same token as {holders[digest].name}"
            problems.append(Problem(f"{source}:{number}", problem, _MAKE_ONE))
        holders[digest] = Holder(name, Right(right))
    if not problems and not holders:
        problems.append(Problem(source, "has no tokens", "write NAME read|write TOKEN; " + _MAKE_ONE))
    if len(holders) > _MOST_TOKENS:
        problems.append(Problem(source, f"holds {len(holders)} tokens", f"keep at most {_MOST_TOKENS}"))
    if problems:
        raise ConfigError(*problems)
    return Tokens(tuple(holders.items()))


def _fault(words: list[str]) -> tuple[str, str] | None:
    if len(words) != 3:
        return f"has {len(words)} words, expected 3", "write NAME read|write TOKEN"
    name, right, token = words
    if not _NAME.fullmatch(name):
        return f'"{printable(name[:64])}" is not a name', "write letters, digits and . _ @ -, at most 64"
    if right not in tuple(Right):
        return f'{name} may "{printable(right[:64])}"', "write read or write"
    if not _LEAST_CHARACTERS <= len(token) <= _MOST_CHARACTERS or not _TOKEN.fullmatch(token):
        problem = f"the token of {name} is not {_LEAST_CHARACTERS} to {_MOST_CHARACTERS} characters of base64"
        return problem, _MAKE_ONE
    return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def token_file(path: Path) -> WatchedFile[Tokens]:
    """Return a watched file that parses the tokens whenever they are read, and raises `ConfigError` then."""
    return WatchedFile(path, _parse_bytes, is_secret=True)


def _parse_bytes(raw: bytes, source: str) -> Tokens:
    try:
        return parse_tokens(raw.decode(), source)
    except UnicodeDecodeError:
        raise ConfigError(Problem(source, "is not UTF-8 text", "write NAME read|write TOKEN")) from None

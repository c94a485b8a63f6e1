"""Who may read and write over HTTP: bearer tokens of a file that only its owner may read. Pure.

A line is a name, what it may do, and the token: `nightly write 5d41402a…`. The name stands in logs and audit, the token
nowhere. The file is looked at for every request (`WatchedFile`), so that a token that was taken out admits nobody any more.
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
"""Of a token: nobody guesses one of so many, whatever the rate at which he may ask."""
_MOST_CHARACTERS: Final = 512
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""The characters of RFC 6750, section 2.1."""
_MAKE_ONE: Final = "make one with openssl rand -hex 32"


class Right(StrEnum):
    """What a token lets its holder do."""

    READ = "read"
    """See and download what jobs left, and traces."""
    WRITE = "write"
    """That, and upload traces."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a token stands for."""

    name: str
    right: Right

    def may(self, right: Right) -> bool:
        """Whether that is allowed."""
        return right is Right.READ or self.right is Right.WRITE


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one file; of each only its digest is kept."""

    holders: tuple[tuple[bytes, Holder], ...]

    def holder(self, token: str) -> Holder | None:
        """Return whom a token stands for, in a time that does not depend on which it is; None of one that is not there."""
        presented = _digest(token)
        found = None
        for digest, holder in self.holders:
            if hmac.compare_digest(digest, presented):
                found = holder
        return found


def parse_tokens(text: str, source: str) -> Tokens:
    """Return the tokens of a file's text. Raises `ConfigError` with every line that is none; no message has a token."""
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
            what = f"{name} has the token of {holders[digest].name}, and nobody could tell them apart"
            problems.append(Problem(f"{source}:{number}", what, _MAKE_ONE))
        holders[digest] = Holder(name, Right(right))
    if not problems and not holders:
        problems.append(Problem(source, "holds no token", "write NAME read|write TOKEN; " + _MAKE_ONE))
    if len(holders) > _MOST_TOKENS:
        problems.append(Problem(source, f"holds {len(holders)} tokens", f"keep at most {_MOST_TOKENS}"))
    if problems:
        raise ConfigError(*problems)
    return Tokens(tuple(holders.items()))


def _fault(words: list[str]) -> tuple[str, str] | None:
    if len(words) != 3:
        return f"has {len(words)} words, and not three", "write NAME read|write TOKEN"
    name, right, token = words
    if not _NAME.fullmatch(name):
        return f'"{printable(name[:64])}" is no name', "write letters, digits and . _ @ -, at most 64"
    if right not in tuple(Right):
        return f'{name} may "{printable(right[:64])}"', "write read or write"
    if not _LEAST_CHARACTERS <= len(token) <= _MOST_CHARACTERS or not _TOKEN.fullmatch(token):
        what = (
            f"the token of {name} is none of {_LEAST_CHARACTERS} to {_MOST_CHARACTERS} characters of base 64"
        )
        return what, _MAKE_ONE
    return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def token_file(path: Path) -> WatchedFile[Tokens]:
    """Return the tokens as a file has them whenever they are asked for. Raises `ConfigError` then, not now."""
    return WatchedFile(path, _parse_bytes, is_secret=True)


def _parse_bytes(raw: bytes, source: str) -> Tokens:
    try:
        return parse_tokens(raw.decode(), source)
    except UnicodeDecodeError:
        raise ConfigError(Problem(source, "is no text", "write NAME read|write TOKEN")) from None

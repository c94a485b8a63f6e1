"""Reads a device's credentials from files that only their owner can read. A shell: checks the files' modes.

A rig never holds a secret; it names a file that does, which is a small YAML mapping. Messages never repeat text of that file,
because a mistake in it may be the secret itself; values are left out of every `repr`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_parsers import word_of
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document

T = TypeVar("T")

MOST_BYTES: Final = 65_536
MOST_PEM_BYTES: Final = 1 << 20
MOST_SECRET_CHARACTERS: Final = 256
LEAST_PASSWORD_CHARACTERS: Final = 8
"""Minimum of SNMPv3 (RFC 3414 section 11.2)."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class AuthProtocol(StrEnum):
    """Authentication protocols of SNMPv3 (RFC 3414, RFC 7860)."""

    MD5 = "md5"
    SHA1 = "sha1"
    SHA224 = "sha224"
    SHA256 = "sha256"
    SHA384 = "sha384"
    SHA512 = "sha512"


class PrivacyProtocol(StrEnum):
    """Encryption protocols of SNMPv3 (RFC 3414, RFC 3826; more than 128 bits as draft-blumenthal-aes-usm-04)."""

    DES = "des"
    AES128 = "aes128"
    AES192 = "aes192"
    AES256 = "aes256"


@dataclass(frozen=True, slots=True)
class Community:
    """The community string of SNMPv2c: its password, sent in clear text."""

    community: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SnmpUser:
    """An SNMPv3 user with authentication and encryption; lower security levels are not supported."""

    user: str
    auth: AuthProtocol
    auth_password: str = field(repr=False)
    privacy: PrivacyProtocol
    privacy_password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password, as gNMI devices expect them in the metadata of each call."""

    user: str
    password: str = field(repr=False)


def credentials_text(file: Path) -> bytes:
    """Read a credentials file. Raise `ConfigError` if it cannot be read or if its mode lets other users than the owner use it."""
    try:
        with file.open("rb") as stream:
            if os.fstat(stream.fileno()).st_mode & _OTHERS:
                remedy = f"chmod 600 {file}, and change the passwords, which others may have read"
                raise ConfigError(Problem(str(file), "is accessible to other users than its owner", remedy))
            return stream.read(MOST_BYTES + 1)
    except OSError as error:
        remedy = "give a file that this user can read"
        raise ConfigError(Problem(str(file), f"cannot be read: {error.strerror}", remedy)) from None


def pem_bytes(file: Path) -> bytes:
    """Read a PEM file of certificates or of a key. Raise `ConfigError` if it cannot be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(MOST_PEM_BYTES)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError(Problem(str(file), problem, "give a PEM file that this user can read")) from None


def snmp_credentials(text: bytes, name: Path) -> Community | SnmpUser:
    """Parse a community or an SNMPv3 user. Raise `ConfigError`, which repeats no text of the file."""
    remedy = (
        "give community; or user, auth (such as sha256), auth_password, privacy (such as aes128) and privacy_password, with "
        f"passwords of {LEAST_PASSWORD_CHARACTERS} to {MOST_SECRET_CHARACTERS} characters"
    )
    return _read(text, name, remedy, _read_snmp)


def gnmi_login(text: bytes, name: Path) -> Login:
    """Parse a user and a password. Raise `ConfigError`, which repeats no text of the file."""
    remedy = f"give user and password, printable ASCII of at most {MOST_SECRET_CHARACTERS} characters"
    return _read(text, name, remedy, _login)


def _read(text: bytes, name: Path, remedy: str, read: Callable[[Section], T]) -> T:
    file = ConfigFile(str(name))
    try:
        if len(text) > MOST_BYTES:
            file.mistake(None, "", "too long", "")
            file.refuse_mistakes()
        top = read_document(text, file)
        value = read(top)
        top.close()
        file.refuse_mistakes()
    except ConfigError as error:
        # The problems quote the offending text, which may be a secret: keep only their line numbers.
        places = dict.fromkeys(_line_of(problem.where, str(name)) for problem in error.problems)
        raise ConfigError(*(Problem(place, "has no valid credentials", remedy) for place in places)) from None
    return value


def _line_of(where: str, place: str) -> str:
    line = where.removeprefix(f"{place}:").split(":")[0].split(" ")[0]
    return f"{place}:{line}" if line.isdecimal() else place


def _read_snmp(top: Section) -> Community | SnmpUser:
    if top.has("community"):
        return Community(top.require("community", _secret_parser(1), "?", ""))
    password = _secret_parser(LEAST_PASSWORD_CHARACTERS)
    return SnmpUser(
        user=top.require("user", _secret_parser(1), "?", ""),
        auth=top.require("auth", word_of(AuthProtocol), AuthProtocol.SHA256, ""),
        auth_password=top.require("auth_password", password, "?", ""),
        privacy=top.require("privacy", word_of(PrivacyProtocol), PrivacyProtocol.AES128, ""),
        privacy_password=top.require("privacy_password", password, "?", ""),
    )


def _login(top: Section) -> Login:
    return Login(
        top.require("user", _secret_parser(1), "?", ""),
        top.require("password", _secret_parser(1), "?", ""),
    )


def _secret_parser(least: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        # gRPC's metadata and SNMP's octet strings both carry ASCII without loss; a line break is a mistake of the file.
        if not least <= len(text) <= MOST_SECRET_CHARACTERS or not text.isascii() or not text.isprintable():
            raise QuantityError("not usable", "")
        return text

    return parse

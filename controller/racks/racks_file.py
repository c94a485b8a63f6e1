"""`racks.yaml`: the racks that a user works with, and how each is reached. A shell: files.

Declares the keys of the file, and decides where it is searched for. Passwords are read from their files only when a rack is
contacted, so that an unreadable one affects its rack alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.contract.base.setting import groups, mapping_setting, required_setting, setting, setting_like
from etloop.contract.base.settings_reader import read_file
from etloop.contract.base.units import QuantityError, parse_name
from etloop.contract.base.value_form import pattern_form, with_form
from etloop.contract.base.value_parsers import file_name, words, yes_or_no
from etloop.contract.protocol.endpoint import is_loopback
from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.job import MOST_LABELS
from etloop.runtime.broker_connection import broker_settings
from etloop.runtime.broker_settings import parse_broker_address

VARIABLE: Final = "ETLOOP_RACKS"
MOST_RACKS: Final = 1000
_LARGEST_BYTES: Final = 1 << 20
_BASE_URL: Final = re.compile(
    r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?"
)
_LABEL_LENGTH: Final = 256


@with_form(pattern_form("text", f"[^\\x00-\\x1f]{{1,{_LABEL_LENGTH}}}"))
def _label(text: str) -> str:
    if len(text) > _LABEL_LENGTH or not text.isprintable():
        raise QuantityError("is not a label", f"write at most {_LABEL_LENGTH} printable characters")
    return words(text)


@with_form(pattern_form("HOST or HOST:PORT", r"[A-Za-z0-9._:\[\]-]+"))
def _broker(text: str) -> str:
    parse_broker_address(text)
    return text


@with_form(pattern_form("URL", _BASE_URL.pattern))
def _url(text: str) -> str:
    if not _BASE_URL.fullmatch(text):
        raise QuantityError(
            f'"{text[:64]}" is not the base URL of a web server', "write such as https://rack.example/etloop"
        )
    return text.rstrip("/")


@dataclass(frozen=True, slots=True)
class RackPlace:
    """A rack, and how it is reached."""

    name: str = required_setting("name", parse_name, "rack", "write the name of the rack")
    """Name by which you call the rack; `--rack NAME`."""
    broker: str = required_setting(
        "broker", _broker, "127.0.0.1", "write HOST or HOST:PORT of its MQTT broker"
    )
    """MQTT broker of the rack, HOST or HOST:PORT."""
    rack: str = setting_like("rack", parse_name, "name")
    """Name of the rack on that broker, part of every topic; as `name` if left out."""
    username: str = setting("username", words, "")
    """Account of the broker."""
    password_file: Path | None = setting("password_file", file_name, None)
    """File with the password of the account; read when the rack is contacted."""
    ca: Path | None = setting("ca", file_name, None)
    """PEM file of the authority that signed the broker's certificate; encrypts the connection."""
    http: str = setting("http", _url, "")
    """Base URL of the rack's web server; the one that its controller publishes if left out."""
    token_file: Path | None = setting("token_file", file_name, None)
    """File with the token for the web server."""
    labels: Mapping[str, str] = mapping_setting(
        _label, "labels", parse_name, "a label's value.", most=MOST_LABELS
    )
    """Labels of your choice, for `--rack-label site=rome`."""
    insecure: bool = setting("insecure", yes_or_no, False)
    """Whether the password may cross a network unencrypted."""

    def client(self, response_timeout_s: float) -> RackClient:
        """Return a client of the rack. Raises `ConfigError` for an unusable secret or certificate."""
        settings = broker_settings(
            self.broker,
            username=self.username,
            password_file=self.password_file,
            ca=self.ca,
            where=f"rack {self.name}",
        )
        return RackClient(settings, self.rack, response_timeout_s=response_timeout_s)

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield a password that would not be sent, or in clear."""
        if self.password_file is not None and not self.username:
            remedy = "add username, or leave it out"
            yield Problem("password_file", "a password without a username is never sent", remedy)
        host, _port = parse_broker_address(self.broker)
        is_local = is_loopback(f"tcp://{f'[{host}]' if ':' in host else host}:1")
        if self.password_file is not None and self.ca is None and not is_local and not self.insecure:
            problem = f"the password would cross the network to {host} unencrypted"
            yield Problem("password_file", problem, "add ca: FILE, or set insecure: true")


@dataclass(frozen=True, slots=True)
class Racks:
    """Content of `racks.yaml`."""

    racks: tuple[RackPlace, ...] = groups(
        RackPlace, "racks", remedy="write a list of racks, each with its name and broker", most=MOST_RACKS
    )
    """The racks, at most 1,000."""

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield names that are used twice."""
        names: set[str] = set()
        for index, place in enumerate(self.racks):
            if place.name in names:
                problem = f"{place.name} is the name of a rack above"
                yield Problem(f"racks[{index}].name", problem, "give each rack a name of its own")
            names.add(place.name)


def racks_path(requested: Path | None, environment: Mapping[str, str]) -> Path:
    """Return the path of `racks.yaml`: the given one, that of ETLOOP_RACKS, or the one in the user's configuration."""
    if requested is not None:
        return requested
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE])
    home = Path(environment.get("HOME") or "/")
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "etloop" / "racks.yaml"


def read_racks(path: Path) -> tuple[RackPlace, ...]:
    """Read the racks of a file. Raises `ConfigError` with all its mistakes."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        remedy = f"name a file of racks with --racks or {VARIABLE}, or write this one (docs/racks.md)"
        raise ConfigError(Problem(str(path), problem, remedy)) from None
    return parse_racks(text, str(path), path.parent)


def parse_racks(text: bytes, source: str, directory: Path) -> tuple[RackPlace, ...]:
    """Parse the racks of a YAML text. `source` names the file in messages; paths are relative to `directory`.

    Raises `ConfigError` with all mistakes of the file.
    """
    return read_file(Racks, text, source, directory).racks


def chosen_racks(
    racks: Sequence[RackPlace], names: Sequence[str], labels: Mapping[str, str], source: str
) -> tuple[RackPlace, ...]:
    """Return the racks of these names (none: all) that have all these labels, in the file's order.

    Raises `ConfigError` for a name that the file does not have, or if no rack is left.
    """
    known_names = {place.name for place in racks}
    if unknown := [name for name in names if name not in known_names]:
        problem = f'has no rack "{printable(unknown[0][:64])}"'
        raise ConfigError(Problem(source, problem, f"it has {', '.join(sorted(known_names)[:16])}"))
    chosen = tuple(
        place
        for place in racks
        if (not names or place.name in names) and labels.items() <= place.labels.items()
    )
    if not chosen:
        label_text = ", ".join(f"{name}={value}" for name, value in labels.items())
        raise ConfigError(
            Problem(source, f"no rack has the labels {printable(label_text)}", "see the labels of its racks")
        )
    return chosen

"""`racks.yaml`: the racks that a user works with, and how each is reached. A shell: files.

Decides the keys of the file and where it is searched for. Passwords are read from their files only when a rack is
contacted, so that an unreadable one affects its rack alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.contract.base.units import QuantityError, parse_name
from etloop.contract.base.value_form import formed, pattern_form
from etloop.contract.base.value_parsers import words, yes_or_no
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
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


@dataclass(frozen=True, slots=True)
class RackPlace:
    """A rack, and how it is reached."""

    name: str
    """Name by which the user calls it."""
    broker: str
    """HOST[:PORT]."""
    rack: str
    """Its name on that broker, part of every topic."""
    username: str = ""
    password_file: Path | None = None
    ca: Path | None = None
    """Certificate authority; the connection is encrypted if it is set."""
    http: str = ""
    """Base URL of its web server, without a trailing slash; "": the one that its controller publishes."""
    token_file: Path | None = None
    labels: Mapping[str, str] | None = None

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


def racks_path(given: Path | None, environment: Mapping[str, str]) -> Path:
    """Return the path of `racks.yaml`: the given one, that of ETLOOP_RACKS, or the one in the user's configuration."""
    if given is not None:
        return given
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
    file = ConfigFile(source)
    top = read_document(text, file)
    if not top.has("racks"):
        top.mistake("racks", "is missing", "write a list of racks, each with its name and broker")
    places: dict[str, RackPlace] = {}
    remedy = "write a list of racks, each with its name and broker"
    for section in top.up_to(MOST_RACKS, "racks", "racks", remedy):
        place = _read_rack(section, directory)
        if place.name in places:
            section.mistake("name", f"{place.name} is listed twice", "give each rack a name of its own")
        places[place.name] = place
    top.close()
    file.refuse_mistakes()
    return tuple(places.values())


def _read_rack(section: Section, directory: Path) -> RackPlace:
    name = section.required("name", parse_name, "rack", "write the name of the rack")
    place = RackPlace(
        name=name,
        broker=section.required("broker", _broker, "127.0.0.1", "write HOST or HOST:PORT of its MQTT broker"),
        rack=section.optional("rack", parse_name, name),
        username=section.optional("username", words, ""),
        password_file=_path(section, "password_file", directory),
        ca=_path(section, "ca", directory),
        http=section.optional("http", _url, ""),
        token_file=_path(section, "token_file", directory),
        labels=_labels(section.section("labels")),
    )
    if place.password_file is not None and not place.username:
        problem = "a password without a username is never sent"
        section.mistake("password_file", problem, "add username, or leave it out")
    insecure = section.optional("insecure", yes_or_no, False)
    host, _ = parse_broker_address(place.broker)
    is_local = is_loopback(f"tcp://{f'[{host}]' if ':' in host else host}:1")
    if place.password_file is not None and place.ca is None and not is_local and not insecure:
        problem = f"the password would cross the network to {host} unencrypted"
        section.mistake("password_file", problem, "add ca: FILE, or set insecure: true")
    section.close()
    return place


def _labels(section: Section) -> dict[str, str]:
    names = section.entry_names()
    if len(names) > MOST_LABELS:
        section.mistake(names[0], f"there are {len(names)} labels", f"write at most {MOST_LABELS}")
    return {_checked(section, name): section.optional(name, _label, "-") for name in names[:MOST_LABELS]}


def _checked(section: Section, name: str) -> str:
    try:
        return parse_name(name)
    except QuantityError as error:
        section.mistake(name, error.what, error.remedy)
        return name


@formed(pattern_form("text", f"[^\\x00-\\x1f]{{1,{_LABEL_LENGTH}}}"))
def _label(text: str) -> str:
    if len(text) > _LABEL_LENGTH or not text.isprintable():
        raise QuantityError("is not a label", f"write at most {_LABEL_LENGTH} printable characters")
    return words(text)


@formed(pattern_form("HOST or HOST:PORT", r"[A-Za-z0-9._:\[\]-]+"))
def _broker(text: str) -> str:
    parse_broker_address(text)
    return text


@formed(pattern_form("URL", _BASE_URL.pattern))
def _url(text: str) -> str:
    if not _BASE_URL.fullmatch(text):
        raise QuantityError(
            f'"{text[:64]}" is not the base URL of a web server', "write such as https://rack.example/etloop"
        )
    return text.rstrip("/")


def _path(section: Section, key: str, directory: Path) -> Path | None:
    text = section.optional(key, words, "")
    return directory / text if text else None


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
        if (not names or place.name in names) and labels.items() <= (place.labels or {}).items()
    )
    if not chosen:
        label_text = ", ".join(f"{name}={value}" for name, value in labels.items())
        raise ConfigError(
            Problem(source, f"no rack has the labels {printable(label_text)}", "see the labels of its racks")
        )
    return chosen

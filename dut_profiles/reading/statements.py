"""Reads stated values of a profile's YAML: plain ones, or declared, configured or measured ones, always with a source.

    buffer:
      basis: configured            # holds for the plain values of this section and of those in it
      source: arista_7060x6        # a name of `sources:`
      total: 165660324B
      cell: {declared: 254B, source: datasheet}
      headroom:
        configured: 29423360B
        measured: {value: 29MB, source: run_17}

Decides these forms and that every value has a source. `profile_file` decides which values there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final, TypeVar

from etloop.contract.base.units import QuantityError, parse_name
from etloop.contract.base.value_parsers import one_of, words
from etloop.contract.base.yaml_reader import Section
from etloop.dut_profiles.model.stated import Basis, Claim, Source, Stated

P = TypeVar("P")
Reader = Callable[[Section, str], Any]
"""Reads the value of a key of a section."""

MOST_SOURCES: Final = 64
LONGEST_TEXT: Final = 2000
_BASES: Final = {basis.value: basis for basis in Basis}
_UNIT: Final = re.compile("_(bytes|bps|ns|packets|per_million|per_s)$")
_UNKNOWN: Final = Source("?", "?", "", date(1970, 1, 1))
_REMEDY: Final = "write {declared: VALUE, source: NAME}, or give the section a basis and a source"


class Statements:
    """Reads stated values; has the profile's sources, and the basis and source of plain values in a section."""

    def __init__(
        self, sources: Mapping[str, Source], basis: Basis | None = None, source: Source | None = None
    ) -> None:
        self.sources = sources
        self._basis = basis
        self._source = source

    def within(self, section: Section) -> Statements:
        """Return the reader for the values of a section, which may have a basis and a source of its own."""
        basis = section.optional("basis", one_of(_BASES), self._basis)
        return Statements(self.sources, basis, self._source_at(section))

    def fields(self, section: Section, readers: Mapping[str, Reader]) -> dict[str, Any]:
        """Read fields of a part of a profile, each under its name without the unit."""
        return {name: self.read(section, _UNIT.sub("", name), reader) for name, reader in readers.items()}

    def part(self, section: Section, kind: type[P], readers: Mapping[str, Reader], **others: object) -> P:
        """Read a part of a profile that has its own section, and close that section; `others` are fields read already."""
        fields = self.within(section).fields(section, readers)
        section.close()
        return kind(**fields, **others)

    def read(self, section: Section, key: str, reader: Reader) -> Stated[Any]:
        """Read all claims under `key`; `reader` reads a value from a section and a key of it."""
        if not section.has(key):
            return Stated()
        if not set(section.keys_under(key)) & _BASES.keys():
            return self._plain(section, key, reader)
        key_section = section.section(key)
        common_source = self._source_at(key_section)
        claims: dict[str, Claim[Any]] = {}
        for basis in _BASES:
            if not key_section.has(basis):
                continue
            place, name, source = key_section, basis, common_source
            if "value" in key_section.keys_under(basis):
                place, name = key_section.section(basis), "value"
                source = self._source_at(place) if place.has("source") else common_source
            if source is None:
                place.mistake(name, "is stated without a source", "add source: NAME, one of sources")
            claims[basis] = Claim(reader(place, name), source or _UNKNOWN, place.where(name))
            if place is not key_section:
                place.close()
        key_section.close()
        return Stated(**claims)

    def _plain(self, section: Section, key: str, reader: Reader) -> Stated[Any]:
        value = reader(section, key)
        if self._basis is None or self._source is None:
            missing = "a basis" if self._basis is None else "a source"
            section.mistake(key, f"is stated without {missing}", _REMEDY)
        claim = Claim(value, self._source or _UNKNOWN, section.where(key))
        return Stated(**{(self._basis or Basis.DECLARED).value: claim})

    def _source_at(self, section: Section) -> Source | None:
        """Return the source that a section names, else the one of the enclosing section."""
        return (
            section.optional("source", one_of(self.sources), _UNKNOWN)
            if section.has("source")
            else self._source
        )


def single(parse: Callable[[str], object]) -> Reader:
    """Return a reader of one value that `parse` parses. A mistake yields None, which is never used: the file is refused."""
    return lambda place, name: place.optional(name, parse, None)


def several(parse: Callable[[str], object]) -> Reader:
    """Return a reader of a list of values; `[]` states that there are none."""
    return lambda place, name: place.texts(name, parse, None)


def read_sources(top: Section) -> dict[str, Source]:
    """Read the `sources:` of a profile, by name; at least one is required."""
    section = top.section("sources")
    names = section.entry_names()
    if not names:
        top.mistake("sources", "no source is given", "write NAME: {title: ..., url: ..., date: 2025-01-31}")
    if len(names) > MOST_SOURCES:
        top.mistake("sources", f"{len(names)} sources", f"give at most {MOST_SOURCES}")
    sources = {}
    for name in names[:MOST_SOURCES]:
        entry = section.section(name)
        try:
            parse_name(name)
        except QuantityError as error:
            section.mistake(name, error.what, error.remedy)
        title = entry.require("title", text, "?", "write a title by which a reader can find it")
        url = entry.optional("url", _address, "")
        remedy = "write when it was published, read or measured, such as 2025-01-31"
        sources[name] = Source(name, title, url, entry.require("date", _day, _UNKNOWN.dated, remedy))
        entry.close()
    section.close()
    return sources


def text(written: str) -> str:
    """Return a text of one or more lines, joined to one line. Raise `QuantityError` if it is too long or not printable."""
    joined = " ".join(words(written).split())
    if len(joined) > LONGEST_TEXT or not joined.isprintable():
        raise QuantityError("the text is too long or not printable", f"keep it below {LONGEST_TEXT} letters")
    return joined


def _address(written: str) -> str:
    if not re.fullmatch(r"https?://[!-~]{3,500}", written):
        raise QuantityError(
            f'"{written[:64]}" is not an address', 'write one such as "https://example.org/sheet"'
        )
    return written


def _day(written: str) -> date:
    try:
        return date.fromisoformat(written)
    except ValueError:
        raise QuantityError(f'"{written[:64]}" is not a date', "write it as 2025-01-31") from None

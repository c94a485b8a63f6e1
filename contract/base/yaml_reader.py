"""YAML text -> typed values, with every mistake of the file collected and placed by line and key path.

Decides what a configuration file may look like at all: one document, mappings with known keys, no duplicate keys, no
anchors or aliases, no tags, bounded size, depth and number of values. The meaning of keys is decided by the readers
of one sort of file (scenarios, rigs, profiles), which ask a `Section` for each key they know; a key never asked for is
unknown and answered with the nearest known one.

A question returns a usable placeholder after a mistake, so that reading continues and finds the next one;
`ConfigFile.refuse_mistakes` at the end raises, so that no value with placeholders is ever returned.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

import yaml

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.questions import Question, Shape, are_noted, note
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_form import FormedParser, ValueForm, form_of, list_form

T = TypeVar("T")

LARGEST_FILE_BYTES: Final = 1 << 20
LARGEST_KEPT_BYTES: Final = 1 << 15
"""Length of a text whose nodes stay in memory, where they take about a hundred times as much."""
_NODES_KEPT: Final = 16
DEEPEST_NESTING: Final = 16
MOST_VALUES: Final = 1 << 16
"""Most keys, values, lists and mappings together: reading so many takes some seconds."""
MOST_PROBLEMS: Final = 50
_PLAIN_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq")
)
_NULL_TAG: Final = "tag:yaml.org,2002:null"
_ANY_LIST: Final = list_form("list", {})


class ConfigFile:
    """One file being read: its name, the directory that its file names are relative to, and the mistakes found so far."""

    def __init__(self, name: str, directory: Path = Path()) -> None:
        self.name = name
        self.directory = directory
        self.problems: list[Problem] = []

    def mistake(self, node: yaml.Node | None, key_path: str, problem: str, remedy: str) -> None:
        """Note one mistake at a node (None: the file as a whole)."""
        place = self.name if node is None else f"{self.name}:{node.start_mark.line + 1}"
        self.problems.append(Problem(f"{place}: {key_path}" if key_path else place, problem, remedy))

    def refuse_mistakes(self) -> None:
        """Raise `ConfigError` with all mistakes, in the order of the file, if there are any."""
        if not self.problems:
            return
        ordered = sorted(dict.fromkeys(self.problems), key=_line_of)
        more = len(ordered) - MOST_PROBLEMS
        if more > 0:
            ordered[MOST_PROBLEMS:] = [Problem(self.name, f"{more} more mistakes", "fix those above first")]
        raise ConfigError(*ordered)


def _line_of(problem: Problem) -> int:
    match = re.search(r":(\d+)(?::|$)", problem.where)
    return int(match[1]) if match else 0


def read_document(text: bytes, file: ConfigFile) -> Section:
    """Return the top-level mapping of a YAML text, to be read key by key. Raises `ConfigError` if it cannot be read."""
    return Section(file, "", read_tree(text, file))


def read_tree(text: bytes, file: ConfigFile) -> yaml.MappingNode:
    """Return the top-level mapping of a YAML text as a tree of nodes, which callers share and never change.

    Raises `ConfigError` if it cannot be read.
    """
    if len(text) > LARGEST_FILE_BYTES:
        file.mistake(None, "", f"the file has {len(text)} bytes", f"keep it under {LARGEST_FILE_BYTES} bytes")
        file.refuse_mistakes()
    try:
        node = _kept_node(text) if len(text) <= LARGEST_KEPT_BYTES else _composed_node(text)
    except _HostileShapeError as error:
        file.mistake(None, "", f"line {error.line}: {error.what}", error.remedy)
    except UnicodeDecodeError as error:
        file.mistake(None, "", f"byte {error.start} is not UTF-8", "save the file as UTF-8 text")
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        reason = " ".join(str(part) for part in (error.context, error.problem) if part)
        file.mistake(None, "", f"{line}not valid YAML: {reason}", "correct the YAML at this place")
    except yaml.YAMLError as error:
        file.mistake(None, "", f"not valid YAML: {' '.join(str(error).split())}", "write plain YAML text")
    else:
        if isinstance(node, yaml.MappingNode):
            file.refuse_mistakes()
            return node
        content = "is empty" if node is None else f"holds {_shape(node)}"
        file.mistake(None, "", f"the file {content}", "write a mapping of keys to values")
    file.refuse_mistakes()
    raise AssertionError("a document that was not returned was refused")


def _composed_node(text: bytes) -> yaml.Node | None:
    node: yaml.Node | None = yaml.compose(text.decode("utf-8-sig"), Loader=_PlainLoader)
    return node


# Cached because points of a sweep share most of their files, and each file of a run is read at several places.
_kept_node = lru_cache(maxsize=_NODES_KEPT)(_composed_node)


class _HostileShapeError(Exception):
    """YAML that is valid but refused."""

    def __init__(self, line: int, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.line = line
        self.what = problem
        self.remedy = remedy


class _PlainLoader(yaml.SafeLoader):
    """Composes nodes as its parent does, and stops at an anchor, an alias, too many levels or values before it builds them."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose one node with all nodes below it. Raises `_HostileShapeError`."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _HostileShapeError(
                line, "anchors and aliases (& and *) are not supported", "write the value itself"
            )
        nested = isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent)
        if nested and self._depth == DEEPEST_NESTING:
            raise _HostileShapeError(line, f"nested deeper than {DEEPEST_NESTING} levels", "write it flatter")
        self._values += 1
        if self._values > MOST_VALUES:
            raise _HostileShapeError(
                line, f"more than {MOST_VALUES} keys and values", "write less into one file"
            )
        self._depth += nested
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= nested
        return node


def _shape(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return f'"{str(node.value)[:64]}"' if node.tag != _NULL_TAG else "nothing"


class Section:
    """One mapping of a file. Every question names a key that the mapping may have; `close` reports the keys left over."""

    def __init__(self, file: ConfigFile, path: str, node: yaml.MappingNode | None) -> None:
        self._file = file
        self._path = path
        self._node = node
        self._known: dict[str, None] = {}
        self._below: dict[str, Section] = {}
        """Mappings below this one that were already read, by key."""
        self._taken_over: dict[str, str] = {}
        """Keys whose value comes from another mapping, each with its path there."""
        self._asked: frozenset[str] | None = None
        """Keys whose questions are noted, since the other keys belong to another mapping; None: all."""
        self._entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value_node in node.value if node is not None else ():
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                file.mistake(
                    key_node, path, f"{_shape(key_node)} is used as a key", "write a word as the key"
                )
            elif key in self._entries:
                first = self._entries[key][0].start_mark.line + 1
                problem = f"the key is already set in line {first}"
                file.mistake(key_node, self._at(key), problem, "keep one of them")
            else:
                self._entries[key] = (key_node, value_node)

    def over(self, base: Section, own: frozenset[str], dropped: Collection[str] = ()) -> Section:
        """Return this mapping, unread, with the entries of `base` for keys absent here, except those `dropped`.

        `own`: keys that are allowed here; other keys are mistakes. A mistake about a value is placed where the value is
        written.
        """
        merged = Section(self._file, self._path, None)
        merged._node, merged._asked = self._node, own
        merged._entries = {key: entry for key, entry in self._entries.items() if key in own}
        for key in self._entries.keys() - own:
            allowed = ", ".join(sorted(own))
            self.mistake(
                key, f"it is not one of {allowed}", f"write it under {base._path}, where it applies to all"
            )
        for key, entry in base._entries.items():
            if key not in self._entries and key not in dropped:
                merged._entries[key] = entry
                merged._taken_over[key] = base._at(key)
        return merged

    def _at(self, key: str) -> str:
        if key in self._taken_over:
            return self._taken_over[key]
        return f"{self._path}.{key}" if self._path else key

    def _note(
        self,
        key: str,
        shape: Shape,
        parse: Callable[[str], object] | None = None,
        default: object = None,
        *,
        required: bool = False,
        meaning: str = "",
    ) -> None:
        if are_noted() and (self._asked is None or key in self._asked):
            form = form_of(parse) if parse is not None else None
            present = self._node is not None
            note(Question(self._at(key), shape, form, parse, default, required, present, meaning))

    def mistake(self, key: str, problem: str, remedy: str) -> None:
        """Note a mistake about the value of `key`, such as one that contradicts another key."""
        node = self._entries[key][1] if key in self._entries else self._node
        self._file.mistake(node, self._at(key), problem, remedy)

    def where(self, key: str) -> str:
        """Return file, line and path of a key, for mistakes that are found later."""
        node = self._entries[key][1] if key in self._entries else self._node
        line = "" if node is None else f":{node.start_mark.line + 1}"
        return f"{self._file.name}{line}: {self._at(key)}"

    def has(self, key: str) -> bool:
        """Return whether the file gives `key` a value (an empty one counts as none)."""
        self._known[key] = None
        return key in self._entries and self._entries[key][1].tag != _NULL_TAG

    @property
    def directory(self) -> Path:
        """Return the directory that file names in this file are relative to."""
        return self._file.directory

    @property
    def is_present(self) -> bool:
        """Return whether the file has this mapping."""
        return self._node is not None

    def keys(self) -> frozenset[str]:
        """Return the keys that the file gives a value (an empty one counts as none)."""
        return frozenset(key for key, (_, value) in self._entries.items() if value.tag != _NULL_TAG)

    def accept_all(self) -> None:
        """Regard every key as known."""
        self._known |= dict.fromkeys(self._entries)

    def text_of(self, key: str) -> str:
        """Return the value of `key` as text; "" if it is absent or no single value."""
        node = self._entries[key][1] if self.has(key) else None
        return str(node.value) if isinstance(node, yaml.ScalarNode) else ""

    def keys_under(self, key: str) -> tuple[str, ...]:
        """Return the keys of the mapping under `key`; () if it is absent or not a mapping."""
        if not self.has(key):
            return ()
        node = self._entries[key][1]
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        return tuple(name.value for name, _ in pairs if isinstance(name, yaml.ScalarNode))

    def again(self, file: ConfigFile) -> Section:
        """Return the same mapping, unread, with mistakes going to `file`: for a mapping that is read several times."""
        return Section(file, self._path, self._node)

    def entry_names(self) -> tuple[str, ...]:
        """Return all keys of the mapping, for mappings whose keys are names that the user chooses."""
        return tuple(self._entries)

    def node(self, key: str) -> yaml.Node | None:
        """Return the value of `key` unread, for values that are passed on; None if it is absent."""
        self._note(key, Shape.UNREAD)
        return self._entries[key][1] if self.has(key) else None

    def nodes(self, key: str, form: ValueForm = _ANY_LIST, meaning: str = "") -> list[yaml.Node]:
        """Return the items of the list under `key` unread; none if it is absent. `form` is the form noted for the
        reference.
        """
        self._note(key, Shape.UNREAD_LIST, FormedParser(str, form), meaning=meaning)
        return self._sequence(key)

    def optional(self, key: str, parse: Callable[[str], T], default: T, meaning: str = "") -> T:
        """Return the value of `key` parsed by `parse`; `default` if the key is absent. `meaning`: for the reference."""
        self._note(key, Shape.VALUE, parse, default, meaning=meaning)
        return self._value(key, parse, default)

    def require(self, key: str, parse: Callable[[str], T], stand_in: T, remedy: str, meaning: str = "") -> T:
        """Return the value as `optional` does, but absence is a mistake with this remedy."""
        self._note(key, Shape.VALUE, parse, required=True, meaning=meaning)
        if not self.has(key):
            self._file.mistake(self._node, self._at(key), "is missing", remedy)
        return self._value(key, parse, stand_in)

    def section(self, key: str, meaning: str = "") -> Section:
        """Return the mapping under `key`; an empty one if it is absent. `meaning`: for the reference."""
        self._note(key, Shape.MAPPING, meaning=meaning)
        if key not in self._below:
            node = self._entries[key][1] if self.has(key) else None
            noted_keys = None if self._asked is None or key in self._asked else frozenset[str]()
            self._below[key] = self._section(node, self._at(key), noted_keys)
        return self._below[key]

    def sections(self, key: str, remedy: str, meaning: str = "") -> tuple[Section, ...]:
        """Return the list of mappings under `key`; with a `remedy`, an empty or absent one is a mistake."""
        self._note(key, Shape.MAPPINGS, required=True, meaning=meaning)
        nodes = self._sequence(key)
        if remedy and not nodes:
            self._file.mistake(self._node, self._at(key), "is missing or empty", remedy)
        return tuple(self._section(node, f"{self._at(key)}[{index}]") for index, node in enumerate(nodes))

    def up_to(self, most: int, key: str, things: str, remedy: str, meaning: str = "") -> tuple[Section, ...]:
        """Return the first `most` mappings under `key`, none without the key; more of these `things` is a mistake."""
        self._note(key, Shape.MAPPINGS, meaning=meaning)
        sections = self.sections(key, remedy) if self.has(key) else ()
        if len(sections) > most:
            self.mistake(key, f"there are {len(sections)} {things}", f"write at most {most}")
        return sections[:most]

    def texts(self, key: str, parse: Callable[[str], T], stand_in: T, meaning: str = "") -> tuple[T, ...]:
        """Return the list under `key`, each item parsed by `parse`; a single value counts as a list of one."""
        self._note(key, Shape.VALUES, parse, meaning=meaning)
        if self.has(key) and isinstance(self._entries[key][1], yaml.ScalarNode):
            return (self._value(key, parse, stand_in),)
        nodes = self._sequence(key)
        return tuple(
            self._scalar(node, f"{self._at(key)}[{index}]", parse, stand_in)
            for index, node in enumerate(nodes)
        )

    def close(self) -> None:
        """Note a mistake for every key that was never asked for."""
        for key, (key_node, _) in self._entries.items():
            if key in self._known:
                continue
            # The search is slow, and mistakes beyond this number are not printed.
            searches_near = len(self._file.problems) < MOST_PROBLEMS
            near_keys = difflib.get_close_matches(key, self._known, n=1, cutoff=0.6) if searches_near else []
            known_keys = ", ".join(self._known)
            remedy = f"did you mean {near_keys[0]}?" if near_keys else f"the keys here are {known_keys}"
            self._file.mistake(key_node, self._at(key), "unknown key", remedy)

    def _value(self, key: str, parse: Callable[[str], T], default: T) -> T:
        if not self.has(key):
            return default
        return self._scalar(self._entries[key][1], self._at(key), parse, default)

    def _sequence(self, key: str) -> list[yaml.Node]:
        if not self.has(key):
            return []
        node = self._entries[key][1]
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self._file.mistake(
            node, self._at(key), f"expected a list, found {_shape(node)}", "write items after dashes"
        )
        return []

    def _section(self, node: yaml.Node | None, path: str, asked: frozenset[str] | None = None) -> Section:
        if node is None or isinstance(node, yaml.MappingNode):
            below = Section(self._file, path, node)
            below._asked = asked
            return below
        self._file.mistake(
            node, path, f"expected a mapping, found {_shape(node)}", "write keys and values below it"
        )
        return Section(self._file, path, None)

    def _scalar(self, node: yaml.Node, path: str, parse: Callable[[str], T], stand_in: T) -> T:
        if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL_TAG:
            self._file.mistake(
                node, path, f"expected one value, found {_shape(node)}", "write a single value"
            )
            return stand_in
        if node.tag not in _PLAIN_TAGS:
            self._file.mistake(node, path, f"the tag {node.tag} is not supported", "write the plain value")
            return stand_in
        try:
            return parse(node.value)
        except QuantityError as error:
            self._file.mistake(node, path, error.what, error.remedy)
            return stand_in

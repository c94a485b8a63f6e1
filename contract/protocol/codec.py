"""Frozen values <-> plain values: the one codec, derived once per type from its annotations. Pure.

Knows dataclasses, integers, numbers, text, true and false, bytes, enumerations, lists as tuples, maps by text, what may be
null, and numpy columns (`columns`). Plain values are what JSON and msgpack have; `serialization` makes bytes of them.
Reading trusts nothing: whatever does not fit is refused with all other mistakes of the value, each by its key path with
what was expected and what came, and nothing but `Misfit` is raised. Writing checks types, not bounds: those bind readers,
and one long text takes nobody down who says it. Whether values make sense together is for those who use them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, StrEnum
from itertools import islice
from typing import Any, Final, Generic, TypeVar, cast

from etloop.contract.base.errors import Problem
from etloop.contract.protocol.typed_form import (
    JSON_RULES,
    MAX_INTEGER,
    MAX_PROBLEMS,
    MIN_INTEGER,
    NO_BOUNDS,
    Bounds,
    Misfit,
    Node,
    Rules,
    bounds_of,
    converted,
    description_of,
    fit_in_64_bits,
    key_text,
    may_be_left_out,
    too_long,
    wrong_type,
)

T = TypeVar("T")


class Codec(Generic[T]):
    """Both directions of one type."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def read(self, value: object, where: str = "") -> T:
        """Return plain values as the type. Raises `Misfit` with all mistakes; `where` names the whole in their paths."""
        try:
            return cast("T", self._node.read(value))
        except Misfit as found:
            raise found.placed(where) from None

    def write(self, value: T, where: str = "") -> Any:
        """Return a value as plain values. Raises `Misfit` where it breaks its own annotations, which is our own mistake."""
        try:
            return self._node.write(value)
        except Misfit as found:
            raise found.placed(where) from None


def codec_of(kind: type[T], rules: Rules) -> Codec[T]:
    """Return the codec of a type; one that has none is our own mistake and fails here."""
    return cast("Codec[T]", _codec_of(cast("Any", kind), rules))


def plain(value: object, rules: Rules = JSON_RULES) -> Any:
    """Return a frozen value as plain values. Raises as `Codec.write`."""
    return codec_of(type(value), rules).write(value)


@functools.cache
def _codec_of(kind: type[Any], rules: Rules) -> Codec[Any]:
    return Codec(_node(kind, NO_BOUNDS, rules))


def _node(annotation: Any, bounds: Bounds, rules: Rules) -> Node:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation](bounds, rules)
    if origin in (typing.Union, types.UnionType):
        (option,) = (each for each in arguments if each is not types.NoneType)
        return _optional(_node(option, bounds, rules))
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return _list(arguments[0], bounds, rules)
    if origin is tuple:
        return _row([_node(each, NO_BOUNDS, rules) for each in arguments])
    if origin is dict:
        assert arguments[0] is str, f"{annotation}: keys are text"
        return _map(_node(arguments[1], NO_BOUNDS, rules), bounds, rules)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enumeration(annotation)
    if dataclasses.is_dataclass(annotation):
        return _object(cast("type[Any]", annotation), rules)
    if origin is typing.Annotated or getattr(origin, "__module__", "") == "numpy":
        # Here, because numpy takes longer to import than most commands take.
        from etloop.contract.protocol.columns import numpy_node

        return numpy_node(annotation, rules)
    raise AssertionError(f"no codec for {annotation}")


# ---- scalars


def _integer(bounds: Bounds, _: Rules) -> Node:
    minimum = MIN_INTEGER if bounds.minimum is None else bounds.minimum
    maximum = MAX_INTEGER if bounds.maximum is None else bounds.maximum

    def read(value: object) -> int:
        if type(value) is not int:
            raise wrong_type("an integer", value)
        if not minimum <= value <= maximum:
            raise wrong_type(f"an integer of {minimum} to {maximum}", value)
        return value

    def write(value: object) -> int:
        # A member of an IntEnum, such as an exit code, is an integer where a field says so.
        number = value.value if isinstance(value, Enum) else value
        if type(number) is not int or not MIN_INTEGER <= number <= MAX_INTEGER:
            raise wrong_type("an integer of 64 bits with sign", value)
        return number

    return Node(read, write)


def _number(bounds: Bounds, rules: Rules) -> Node:
    read_integer = _integer(bounds, rules).read

    def checked(value: object) -> Any:
        if type(value) is int:
            return read_integer(value)
        if not isinstance(value, float):
            raise wrong_type("a number", value)
        if not math.isfinite(value):
            raise wrong_type("a finite number", value)
        return value

    return Node(lambda value: float(checked(value)), checked)


def _text(bounds: Bounds, rules: Rules) -> Node:
    maximum = rules.text_chars if bounds.max_length is None else bounds.max_length

    def read(value: object) -> str:
        if type(value) is not str:
            raise wrong_type("text", value)
        if len(value) > maximum:
            raise too_long("characters", maximum, len(value))
        return value

    def write(value: object) -> str:
        if not isinstance(value, str):
            raise wrong_type("text", value)
        return value.value if isinstance(value, StrEnum) else value

    return Node(read, write)


def _truth(_: Bounds, __: Rules) -> Node:
    def read(value: object) -> bool:
        if type(value) is not bool:
            raise wrong_type("true or false", value)
        return value

    return Node(read, read)


def _bytes(bounds: Bounds, rules: Rules) -> Node:
    assert rules.binary, "JSON has no bytes"

    def read(value: object) -> bytes:
        if type(value) is not bytes:
            raise wrong_type("bytes", value)
        if bounds.max_length is not None and len(value) > bounds.max_length:
            raise too_long("bytes", bounds.max_length, len(value))
        return value

    return Node(read, read)


def _anything(_: Bounds, __: Rules) -> Node:
    return Node(lambda value: value, lambda value: value)


_SCALARS: Final[dict[Any, Callable[[Bounds, Rules], Node]]] = {
    int: _integer,
    float: _number,
    str: _text,
    bool: _truth,
    bytes: _bytes,
    Any: _anything,
}


def _enumeration(kind: type[Enum]) -> Node:
    """Texts travel by their value, all others by name."""
    members = {
        str(member.value) if issubclass(kind, StrEnum) else name: member
        for name, member in kind.__members__.items()
    }
    texts = {member: text for text, member in members.items()}
    expected = f"one of {', '.join(members)}"

    def read(value: object) -> Enum:
        member = members.get(value) if type(value) is str else None
        if member is None:
            raise wrong_type(expected, value)
        return member

    def write(value: object) -> str:
        if not isinstance(value, kind):
            raise wrong_type(expected, value)
        return texts[value]

    return Node(read, write)


# ---- what holds others


def _optional(node: Node) -> Node:
    return Node(
        lambda value: None if value is None else node.read(value),
        lambda value: None if value is None else node.write(value),
    )


def _list(item: Any, bounds: Bounds, rules: Rules) -> Node:
    node = _node(item, NO_BOUNDS, rules)
    maximum = rules.items if bounds.max_length is None else bounds.max_length

    def fit_at_once(value: Sequence[Any]) -> bool:
        """Return whether all items are as they should be; of long lists without a step of Python per item."""
        if item is int:
            return fit_in_64_bits(value)
        return item is str and set(map(type, value)) == {str} and max(map(len, value)) <= rules.text_chars

    def read(value: object) -> tuple[Any, ...]:
        if type(value) is not list:
            raise wrong_type("a list", value)
        if len(value) > maximum:
            raise too_long("items", maximum, len(value))
        if fit_at_once(value):
            return tuple(value)
        return tuple(converted((index, node.read, each) for index, each in enumerate(value)))

    def write(value: object) -> list[Any]:
        if not isinstance(value, tuple | list):
            raise wrong_type("a list", value)
        if fit_at_once(value):
            return list(value)
        return converted((index, node.write, each) for index, each in enumerate(value))

    return Node(read, write)


def _row(nodes: Sequence[Node]) -> Node:
    """Return that of a tuple whose items have types of their own."""

    def parts(value: Any, kinds: Any) -> Iterable[tuple[int, Node, Any]]:
        if not isinstance(value, kinds) or len(value) != len(nodes):
            raise wrong_type(f"a list of {len(nodes)}", value)
        return zip(range(len(nodes)), nodes, value, strict=True)

    return Node(
        lambda value: tuple(converted((at, node.read, each) for at, node, each in parts(value, list))),
        lambda value: converted((at, node.write, each) for at, node, each in parts(value, tuple | list)),
    )


def _map(node: Node, bounds: Bounds, rules: Rules) -> Node:
    maximum = rules.items if bounds.max_length is None else bounds.max_length

    def entries(value: object, step: Callable[[Any], Any]) -> dict[str, Any]:
        if type(value) is not dict or set(map(type, value)) - {str}:
            raise wrong_type("an object", value)
        return dict(zip(value, converted((key, step, each) for key, each in value.items()), strict=True))

    def read(value: object) -> dict[str, Any]:
        if type(value) is dict and len(value) > maximum:
            raise too_long("entries", maximum, len(value))
        found = entries(value, node.read)
        longest = max(map(len, found), default=0)
        if longest > rules.text_chars:
            raise too_long("characters of a key", rules.text_chars, longest)
        return found

    return Node(read, lambda value: entries(value, node.write))


def _object(kind: type[Any], rules: Rules) -> Node:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {each.name: each for each in dataclasses.fields(kind)}
    nodes = {name: _node(hints[name], bounds_of(each), rules) for name, each in fields.items()}
    readers = [(name, node.read) for name, node in nodes.items()]
    writers = [(name, node.write) for name, node in nodes.items()]

    def read(value: object) -> Any:
        if type(value) is not dict:
            raise wrong_type("an object", value)
        fields_read: dict[str, Any] = {}
        problems: list[Problem] = []
        unknown = len(value)
        for name, read_field in readers:
            if name in value:
                unknown -= 1
                try:
                    fields_read[name] = read_field(value[name])
                except Misfit as found:
                    problems += found.under(f".{name}")
            elif not may_be_left_out(fields[name]):
                problems.append(Problem(f".{name}", "is missing", description_of(fields[name]) or "give it"))
        if unknown and not rules.skip_unknown:
            problems[:0] = _unknown(value, fields)
        if problems:
            raise Misfit(*problems[:MAX_PROBLEMS])
        return kind(**fields_read)

    def write(value: object) -> dict[str, Any]:
        if type(value) is not kind:
            raise wrong_type(kind.__name__, value)
        written: dict[str, Any] = {}
        for name, write_field in writers:
            try:
                written[name] = write_field(getattr(value, name))
            except Misfit as found:
                raise Misfit(*found.under(f".{name}")) from None
        return written

    return Node(read, write)


def _unknown(value: dict[Any, object], fields: Iterable[str]) -> Iterable[Problem]:
    known = list(fields)
    remedy = f"it may have {', '.join(known)}" if known else "it has no keys"
    for key in islice((key for key in value if key not in known), MAX_PROBLEMS):
        yield Problem(f".{key_text(key)}", "is not a key here", remedy)

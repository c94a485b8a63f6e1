"""Frozen values <-> plain values: the only codec, derived once per type from its annotations. Pure.

Supports dataclasses, integers, numbers, text, booleans, bytes, enumerations, lists as tuples, maps with text keys, optional
values, and numpy columns (`columns`). Plain values are those of JSON and msgpack; `serialization` encodes them.
Decoding trusts no input: a value that does not fit raises `Misfit`, and no other exception, with all mistakes of the value,
each by its key path with the expected and the actual value. Encoding checks types only; bounds are enforced by the decoder, so an
over-long text never crashes its sender. The users of values check whether they are consistent with each other.
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
    convert_all,
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
        """Return plain values as the type. Raises `Misfit` with all mistakes; `where` names the value in their paths."""
        try:
            return cast("T", self._node.read(value))
        except Misfit as misfit:
            raise misfit.with_full_paths(where) from None

    def write(self, value: T, where: str = "") -> Any:
        """Return a value as plain values. Raises `Misfit` if it violates its own annotations, which is a bug."""
        try:
            return self._node.write(value)
        except Misfit as misfit:
            raise misfit.with_full_paths(where) from None


def codec_of(kind: type[T], rules: Rules) -> Codec[T]:
    """Return the codec of a type; asserts that it has one."""
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
        (option,) = (argument for argument in arguments if argument is not types.NoneType)
        return _optional(_node(option, bounds, rules))
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return _list(arguments[0], bounds, rules)
    if origin is tuple:
        return _row([_node(argument, NO_BOUNDS, rules) for argument in arguments])
    if origin is dict:
        assert arguments[0] is str, f"{annotation}: keys are text"
        return _map(_node(arguments[1], NO_BOUNDS, rules), bounds, rules)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enumeration(annotation)
    if dataclasses.is_dataclass(annotation):
        return _object(cast("type[Any]", annotation), rules)
    if origin is typing.Annotated or getattr(origin, "__module__", "") == "numpy":
        # Imported here, because importing numpy takes longer than most commands run.
        from etloop.contract.protocol.columns import numpy_node

        return numpy_node(annotation, rules)
    raise AssertionError(f"no codec for {annotation}")


# ---- scalars


def _integer(bounds: Bounds, _: Rules) -> Node:
    minimum = MIN_INTEGER if bounds.minimum is None else bounds.minimum
    maximum = MAX_INTEGER if bounds.maximum is None else bounds.maximum

    def decode(value: object) -> int:
        if type(value) is not int:
            raise wrong_type("an integer", value)
        if not minimum <= value <= maximum:
            raise wrong_type(f"an integer of {minimum} to {maximum}", value)
        return value

    def write(value: object) -> int:
        # A member of an IntEnum, such as an exit code, is an integer if the field is one.
        number = value.value if isinstance(value, Enum) else value
        if type(number) is not int or not MIN_INTEGER <= number <= MAX_INTEGER:
            raise wrong_type("an integer of 64 bits with sign", value)
        return number

    return Node(decode, write)


def _number(bounds: Bounds, rules: Rules) -> Node:
    read_integer = _integer(bounds, rules).read

    def check(value: object) -> Any:
        if type(value) is int:
            return read_integer(value)
        if not isinstance(value, float):
            raise wrong_type("a number", value)
        if not math.isfinite(value):
            raise wrong_type("a finite number", value)
        return value

    return Node(lambda value: float(check(value)), check)


def _text(bounds: Bounds, rules: Rules) -> Node:
    maximum = rules.text_chars if bounds.max_length is None else bounds.max_length

    def decode(value: object) -> str:
        if type(value) is not str:
            raise wrong_type("text", value)
        if len(value) > maximum:
            raise too_long("characters", maximum, len(value))
        return value

    def write(value: object) -> str:
        if not isinstance(value, str):
            raise wrong_type("text", value)
        return value.value if isinstance(value, StrEnum) else value

    return Node(decode, write)


def _truth(_: Bounds, __: Rules) -> Node:
    def decode(value: object) -> bool:
        if type(value) is not bool:
            raise wrong_type("true or false", value)
        return value

    return Node(decode, decode)


def _bytes(bounds: Bounds, rules: Rules) -> Node:
    assert rules.binary, "JSON has no bytes"

    def decode(value: object) -> bytes:
        if type(value) is not bytes:
            raise wrong_type("bytes", value)
        if bounds.max_length is not None and len(value) > bounds.max_length:
            raise too_long("bytes", bounds.max_length, len(value))
        return value

    return Node(decode, decode)


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
    """Return the node of an enumeration: text enumerations are encoded by value, all others by name."""
    members = {
        str(member.value) if issubclass(kind, StrEnum) else name: member
        for name, member in kind.__members__.items()
    }
    texts = {member: text for text, member in members.items()}
    expected = f"one of {', '.join(members)}"

    def decode(value: object) -> Enum:
        member = members.get(value) if type(value) is str else None
        if member is None:
            raise wrong_type(expected, value)
        return member

    def write(value: object) -> str:
        if not isinstance(value, kind):
            raise wrong_type(expected, value)
        return texts[value]

    return Node(decode, write)


# ---- containers


def _optional(node: Node) -> Node:
    return Node(
        lambda value: None if value is None else node.read(value),
        lambda value: None if value is None else node.write(value),
    )


def _list(item: Any, bounds: Bounds, rules: Rules) -> Node:
    node = _node(item, NO_BOUNDS, rules)
    maximum = rules.items if bounds.max_length is None else bounds.max_length

    def fit_at_once(value: Sequence[Any]) -> bool:
        """Return whether all items are valid; checks long lists without Python code per item."""
        if item is int:
            return fit_in_64_bits(value)
        return item is str and set(map(type, value)) == {str} and max(map(len, value)) <= rules.text_chars

    def decode(value: object) -> tuple[Any, ...]:
        if type(value) is not list:
            raise wrong_type("a list", value)
        if len(value) > maximum:
            raise too_long("items", maximum, len(value))
        if fit_at_once(value):
            return tuple(value)
        return tuple(convert_all((index, node.read, element) for index, element in enumerate(value)))

    def write(value: object) -> list[Any]:
        if not isinstance(value, tuple | list):
            raise wrong_type("a list", value)
        if fit_at_once(value):
            return list(value)
        return convert_all((index, node.write, element) for index, element in enumerate(value))

    return Node(decode, write)


def _row(nodes: Sequence[Node]) -> Node:
    """Return the node of a tuple whose items have types of their own."""

    def parts(value: Any, kinds: Any) -> Iterable[tuple[int, Node, Any]]:
        if not isinstance(value, kinds) or len(value) != len(nodes):
            raise wrong_type(f"a list of {len(nodes)}", value)
        return zip(range(len(nodes)), nodes, value, strict=True)

    return Node(
        lambda value: tuple(
            convert_all((position, node.read, element) for position, node, element in parts(value, list))
        ),
        lambda value: convert_all(
            (position, node.write, element) for position, node, element in parts(value, tuple | list)
        ),
    )


def _map(node: Node, bounds: Bounds, rules: Rules) -> Node:
    maximum = rules.items if bounds.max_length is None else bounds.max_length

    def entries(value: object, step: Callable[[Any], Any]) -> dict[str, Any]:
        if type(value) is not dict or set(map(type, value)) - {str}:
            raise wrong_type("an object", value)
        return dict(zip(value, convert_all((key, step, entry) for key, entry in value.items()), strict=True))

    def decode(value: object) -> dict[str, Any]:
        if type(value) is dict and len(value) > maximum:
            raise too_long("entries", maximum, len(value))
        decoded = entries(value, node.read)
        longest = max(map(len, decoded), default=0)
        if longest > rules.text_chars:
            raise too_long("characters of a key", rules.text_chars, longest)
        return decoded

    return Node(decode, lambda value: entries(value, node.write))


def _object(kind: type[Any], rules: Rules) -> Node:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {class_field.name: class_field for class_field in dataclasses.fields(kind)}
    nodes = {name: _node(hints[name], bounds_of(class_field), rules) for name, class_field in fields.items()}
    readers = [(name, node.read) for name, node in nodes.items()]
    writers = [(name, node.write) for name, node in nodes.items()]

    def decode(value: object) -> Any:
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
                except Misfit as misfit:
                    problems += misfit.under(f".{name}")
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
        encoded_fields: dict[str, Any] = {}
        for name, write_field in writers:
            try:
                encoded_fields[name] = write_field(getattr(value, name))
            except Misfit as misfit:
                raise Misfit(*misfit.under(f".{name}")) from None
        return encoded_fields

    return Node(decode, write)


def _unknown(value: dict[Any, object], fields: Iterable[str]) -> Iterable[Problem]:
    names = list(fields)
    remedy = f"the keys are {', '.join(names)}" if names else "it has no keys"
    for key in islice((key for key in value if key not in names), MAX_PROBLEMS):
        yield Problem(f".{key_text(key)}", "is not a key here", remedy)

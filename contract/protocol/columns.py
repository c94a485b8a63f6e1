"""Numpy columns and rows as plain values. Pure.

A column is [type name, length, bytes] in msgpack, little-endian, and a list of numbers in JSON. A row of a record type is an
object by its fields' names.
"""

from __future__ import annotations

import typing
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import Problem
from etloop.contract.protocol.typed_form import (
    Misfit,
    Node,
    Rules,
    convert_all,
    fit_in_64_bits,
    key_text,
    wrong_type,
)

assert np.dtype("i4") == np.dtype("<i4"), "columns travel as they lie in memory, little-endian"

_COPIED_BYTES: Final = 1 << 16
"""Columns up to this size are cheaper to copy than to pass as a memory view."""
_COLUMN_ITEMS: Final = 3


def numpy_node(annotation: Any, rules: Rules) -> Node:
    """Return that of `NDArray[np.int32]` and the like, or of an array or row of records as
    `Annotated[NDArray[np.void], layout, "its name"]` and `Annotated[np.void, layout]`."""
    if typing.get_origin(annotation) is typing.Annotated:
        kind, layout, *name = typing.get_args(annotation)
        if kind is np.void:
            return _row(layout)
        (name,) = name
    else:
        layout = np.dtype(typing.get_args(typing.get_args(annotation)[1])[0])
        name = layout.str[1:]
    return _as_bytes(layout, name) if rules.binary else _as_numbers(layout)


# ---- columns


def _check_column(value: object, layout: np.dtype[Any], name: str) -> NDArray[Any]:
    if not isinstance(value, np.ndarray) or value.dtype != layout or value.ndim != 1:
        raise wrong_type(f"a column of {name}", value)
    return value


def _as_bytes(layout: np.dtype[Any], name: str) -> Node:
    def read(value: object) -> NDArray[Any]:
        if type(value) is not list or len(value) != _COLUMN_ITEMS:
            raise wrong_type("a column as type name, length and bytes", value)
        type_name, length, content = value
        if type(type_name) is not str or type_name != name:
            raise wrong_type(f"a column of {name}", type_name)
        if type(length) is not int or length < 0:
            raise wrong_type("the length of a column", length)
        if type(content) is not bytes:
            raise wrong_type("the bytes of a column", content)
        if len(content) != length * layout.itemsize:
            raise wrong_type(f"{length} x {name} in {length * layout.itemsize} bytes", content)
        return np.frombuffer(content, layout)

    def write(value: object) -> list[Any]:
        column = _check_column(value, layout, name)
        if column.nbytes <= _COPIED_BYTES:
            return [name, len(column), column.tobytes()]
        return [name, len(column), np.ascontiguousarray(column).view(np.uint8).data]

    return Node(read, write)


def _as_numbers(layout: np.dtype[Any]) -> Node:
    limits = np.iinfo(layout)

    def read(value: object) -> NDArray[Any]:
        return np.array(_integers(value, int(limits.min), int(limits.max)), layout)

    def write(value: object) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.ndim != 1:
            raise wrong_type("a column of integers", value)
        return value.tolist()

    return Node(read, write)


def _integers(value: object, minimum: int, maximum: int) -> list[int]:
    """Check and return a list of integers, without Python code per item."""
    if type(value) is not list:
        raise wrong_type("a list", value)
    if value and set(map(type, value)) != {int}:
        index = next(index for index, item in enumerate(value) if type(item) is not int)
        raise Misfit(*wrong_type("an integer", value[index]).under(f"[{index}]"))
    if value and (min(value) < minimum or max(value) > maximum):
        index = next(index for index, item in enumerate(value) if not minimum <= item <= maximum)
        misfit = wrong_type(f"an integer of {minimum} to {maximum}", value[index])
        raise Misfit(*misfit.under(f"[{index}]"))
    return value


# ---- rows


def _row(layout: np.dtype[Any]) -> Node:
    read, write = _fields(layout)

    def write_row(value: object) -> dict[str, Any]:
        if not isinstance(value, np.void) or value.dtype != layout:
            raise wrong_type("a row of counters", value)
        return typing.cast("dict[str, Any]", write(value.item()))

    return Node(lambda value: np.array(read(value), layout)[()], write_row)


def _fields(layout: np.dtype[Any]) -> Node:
    """Return the node between the object of a row and the tuple that numpy makes from it."""
    assert layout.names is not None
    nodes = {name: _field(layout[name]) for name in layout.names}
    of_one_type = {layout[name] for name in layout.names} == {np.dtype(np.int64)}

    def read(value: object) -> tuple[Any, ...]:
        if type(value) is not dict:
            raise wrong_type("an object", value)
        if of_one_type and value.keys() == nodes.keys():
            items = tuple(map(value.__getitem__, nodes))
            if fit_in_64_bits(items):
                return items
        problems = [Problem(f".{name}", "is missing", "give it") for name in nodes if name not in value] + [
            Problem(f".{key_text(name)}", "is not a key here", f"the keys are {', '.join(nodes)}")
            for name in value
            if name not in nodes
        ]
        if problems:
            raise Misfit(*problems)
        return tuple(convert_all((name, node.read, value[name]) for name, node in nodes.items()))

    def write(value: tuple[Any, ...]) -> dict[str, Any]:
        return {name: node.write(item) for (name, node), item in zip(nodes.items(), value, strict=True)}

    return Node(read, write)


def _field(layout: np.dtype[Any]) -> Node:
    if layout.subdtype is not None:
        item, shape = layout.subdtype
        return _fixed_list(item, shape[0])
    if layout.names is not None:
        return _fields(layout)
    limits = np.iinfo(layout)
    minimum, maximum = int(limits.min), int(limits.max)

    def read(value: object) -> int:
        if type(value) is not int or not minimum <= value <= maximum:
            raise wrong_type(f"an integer of {minimum} to {maximum}", value)
        return value

    return Node(read, lambda value: value)


def _fixed_list(item: np.dtype[Any], length: int) -> Node:
    node = _field(item)

    def read(value: object) -> list[Any]:
        if type(value) is not list or len(value) != length:
            raise wrong_type(f"a list of {length}", value)
        if item == np.int64 and fit_in_64_bits(value):
            return value
        return convert_all((index, node.read, element) for index, element in enumerate(value))

    return Node(read, lambda value: [node.write(element) for element in value.tolist()])

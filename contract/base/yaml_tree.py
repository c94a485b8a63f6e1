"""YAML texts as trees that can be changed: sets values at key paths, and lists all values by path.

Decides the syntax of a key path and which nodes it may pass through. `yaml_reader` decides the allowed form of a file,
and its rules apply here too; the readers of each file define its keys. Comments of a text are lost, order and quotes
are kept.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import yaml

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.contract.base.yaml_reader import ConfigFile, read_tree

LONGEST_PATH: Final = 256
NULL_TAG: Final = "tag:yaml.org,2002:null"
TEXT_TAG: Final = "tag:yaml.org,2002:str"
_MAP_TAG: Final = "tag:yaml.org,2002:map"
_TEXTS_KEPT: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A value to set at a key path; a null removes the key."""

    path: tuple[str, ...]
    value: yaml.Node


def parse_path(text: str) -> tuple[str, ...]:
    """Parse a key path, keys joined by dots. Raises `QuantityError`."""
    keys = tuple(text.split("."))
    if len(text) > LONGEST_PATH or not all(keys) or re.search(r"\s", text):
        raise QuantityError(
            f'"{text[:64]}" is not a key path', "write keys with dots, such as transport.cc.preset"
        )
    return keys


def changed_text(text: bytes, source: str, changes: Sequence[Change]) -> str:
    """Return the text with all changes applied, in their order.

    Raises `ConfigError` for YAML that is refused, and `QuantityError` for a path through a single value or beyond the
    end of a list.
    """
    root = tree_of(text, source)
    for change in changes:
        _change(root, change)
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=120))


def tree_of(text: bytes, source: str) -> yaml.MappingNode:
    """Parse the text into a tree that the caller may change. Raises `ConfigError`."""
    root = read_tree(text, ConfigFile(source))
    return yaml.MappingNode(root.tag, _copy_items(root), *_place_and_style(root))


def _copy_items(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    return [(_copy(key), _copy(value)) for key, value in node.value]


def _copy(node: yaml.Node) -> yaml.Node:
    if isinstance(node, yaml.MappingNode):
        return yaml.MappingNode(node.tag, _copy_items(node), *_place_and_style(node))
    if isinstance(node, yaml.SequenceNode):
        items = [_copy(item) for item in node.value]
        return yaml.SequenceNode(node.tag, items, *_place_and_style(node))
    assert isinstance(node, yaml.ScalarNode)
    return yaml.ScalarNode(node.tag, node.value, node.start_mark, node.end_mark, node.style)


def _place_and_style(node: yaml.CollectionNode) -> tuple[yaml.Mark, yaml.Mark, bool | None]:
    return node.start_mark, node.end_mark, node.flow_style


def values_by_path(text: bytes, source: str) -> dict[str, str]:
    """Return every single value of the text by its path. Raises `ConfigError`."""
    return dict(_values_of(text, source))


# Cached because every run of a sweep is named after the values of the same few texts.
@lru_cache(maxsize=_TEXTS_KEPT)
def _values_of(text: bytes, source: str) -> tuple[tuple[str, str], ...]:
    return tuple(_leaves(tree_of(text, source), ""))


def value_text(node: yaml.Node) -> str:
    """Return a value as text in one line."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return f"[{', '.join(value_text(item) for item in node.value)}]"
    return f"{{{', '.join(f'{value_text(key)}: {value_text(value)}' for key, value in node.value)}}}"


def is_null(node: yaml.Node) -> bool:
    """Return whether the node is a null or empty."""
    return isinstance(node, yaml.ScalarNode) and node.tag == NULL_TAG


def _leaves(node: yaml.Node, path: str) -> Iterator[tuple[str, str]]:
    below: list[tuple[str, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        below = [(value_text(key), value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        below = [(str(index), value) for index, value in enumerate(node.value)]
    if not below:
        yield path, value_text(node)
    for key, value in below:
        yield from _leaves(value, f"{path}.{key}" if path else key)


def _change(root: yaml.MappingNode, change: Change) -> None:
    node: yaml.Node = root
    for depth, key in enumerate(change.path[:-1]):
        child = _child(node, key, change.path[: depth + 1])
        if child is None or is_null(child):
            if is_null(change.value):
                return
            child = yaml.MappingNode(_MAP_TAG, [])
            _put(node, key, child, change.path[: depth + 1])
        node = child
    _put(node, change.path[-1], copy.deepcopy(change.value), change.path)


def _child(node: yaml.Node, key: str, path: tuple[str, ...]) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    if isinstance(node, yaml.SequenceNode):
        child: yaml.Node = node.value[_index(node, key, path)]
        return child
    raise _through_a_value(path)


def _put(node: yaml.Node, key: str, value: yaml.Node, path: tuple[str, ...]) -> None:
    if isinstance(node, yaml.SequenceNode):
        index = _index(node, key, path)
        node.value[index : index + 1] = [] if is_null(value) else [value]
        return
    if not isinstance(node, yaml.MappingNode):
        raise _through_a_value(path)
    for index, (name, _) in enumerate(node.value):
        if name.value == key:
            node.value[index : index + 1] = [] if is_null(value) else [(name, value)]
            return
    if not is_null(value):
        node.value.append((yaml.ScalarNode(TEXT_TAG, key), value))


def _index(node: yaml.SequenceNode, key: str, path: tuple[str, ...]) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", key) or int(key) >= len(node.value):
        problem = f'"{".".join(path)}" is not an item of a list of {len(node.value)}'
        raise QuantityError(problem, "number its items from 0")
    return int(key)


def _through_a_value(path: tuple[str, ...]) -> QuantityError:
    problem = f'"{".".join(path)}" goes below a single value'
    return QuantityError(problem, "name the key itself, or give the section as the value")

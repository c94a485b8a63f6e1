"""YAML texts as trees that can be changed: values put in at key paths, and all values by their paths.

Decides what a key path is and what it may lead through. What files may look like at all is decided by `yaml_reader`, whose
rules hold here too; what their keys mean is for those who read them. Comments of a text are lost, order and quotes are not.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Final

import yaml
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.contract.base.yaml_reader import ConfigFile, read_document

LONGEST_PATH: Final = 256
NULL_TAG: Final = "tag:yaml.org,2002:null"
TEXT_TAG: Final = "tag:yaml.org,2002:str"
_MAP_TAG: Final = "tag:yaml.org,2002:map"


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A value at a key path; a null takes the key away."""

    path: tuple[str, ...]
    value: yaml.Node


def parse_path(text: str) -> tuple[str, ...]:
    """A key path, keys with dots between. Raises `QuantityError`."""
    keys = tuple(text.split("."))
    if len(text) > LONGEST_PATH or not all(keys) or re.search(r"\s", text):
        raise QuantityError(
            f'"{text[:64]}" is not a key path', "write keys with dots, such as transport.cc.preset"
        )
    return keys


def changed_text(text: bytes, source: str, changes: Sequence[Change]) -> str:
    """The text with all changes made, in their order.

    Raises:
        ConfigError: it is not YAML that we read.
        QuantityError: a path leads through a single value, or beyond the end of a list.
    """
    root = tree_of(text, source)
    for change in changes:
        _change(root, change)
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=120))


def tree_of(text: bytes, source: str) -> yaml.MappingNode:
    """The text as a tree of its own. Raises `ConfigError`."""
    read_document(text, ConfigFile(source))
    root = yaml.compose(text.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    return root


def values_by_path(text: bytes, source: str) -> dict[str, str]:
    """Every single value of the text by its path. Raises `ConfigError`."""
    return dict(_leaves(tree_of(text, source), ""))


def value_text(node: yaml.Node) -> str:
    """A value in one line, as people write it."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return f"[{', '.join(value_text(one) for one in node.value)}]"
    return f"{{{', '.join(f'{value_text(key)}: {value_text(value)}' for key, value in node.value)}}}"


def is_null(node: yaml.Node) -> bool:
    """Whether nothing is written there."""
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
        found = _child(node, key, change.path[: depth + 1])
        if found is None or is_null(found):
            if is_null(change.value):
                return
            found = yaml.MappingNode(_MAP_TAG, [])
            _put(node, key, found, change.path[: depth + 1])
        node = found
    _put(node, change.path[-1], copy.deepcopy(change.value), change.path)


def _child(node: yaml.Node, key: str, path: tuple[str, ...]) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    if isinstance(node, yaml.SequenceNode):
        found: yaml.Node = node.value[_index(node, key, path)]
        return found
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
        what = f'"{".".join(path)}" is no item of a list of {len(node.value)}'
        raise QuantityError(what, "number its items from 0")
    return int(key)


def _through_a_value(path: tuple[str, ...]) -> QuantityError:
    what = f'"{".".join(path)}" leads into a single value'
    return QuantityError(what, "name the key itself, or give the section as the value")

"""The list of the keys by which scenario, rig and topology name other files, and functions that replace those names.

Decides which keys these are; their meaning is decided by the readers of the files. A test compares the list with every `Path`
that scenarios and rigs are parsed to. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import yaml

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.yaml_tree import TEXT_TAG, Change, changed_text, is_null, tree_of
from etloop.controller.inputs.scenario.flows import SHIPPED_SIZES
from etloop.dut_profiles.reading.catalogue import is_path
from etloop.results.schema.case import CaseRole
from etloop.workload.serving.model_file import is_model_file

_ANY: Final = "*"
_ANYWHERE: Final = "**"
"""First part of a key path that matches at any depth."""
_COUNTERS: Final = ("dut", "counters", _ANY)

NAMES: Final[Mapping[CaseRole, Mapping[tuple[str, ...], CaseRole]]] = {
    CaseRole.SCENARIO: {
        ("workload", "trace"): CaseRole.TRACE,
        ("workload", "groups"): CaseRole.GROUPS,
        ("workload", "kernels"): CaseRole.KERNELS,
        ("workload", "flows", "file"): CaseRole.FLOWS,
        ("workload", "flows", "sizes"): CaseRole.FLOWS,
        ("workload", "checkpoint", "file"): CaseRole.LOAD,
        ("workload", "kv_offload", "file"): CaseRole.LOAD,
        ("workload", "serving", "model"): CaseRole.LOAD,
        ("workload", "serving", "requests", "trace"): CaseRole.LOAD,
        ("jobs", _ANY, "workload", "trace"): CaseRole.TRACE,
        ("jobs", _ANY, "workload", "groups"): CaseRole.GROUPS,
        ("jobs", _ANY, "workload", "kernels"): CaseRole.KERNELS,
        ("jobs", _ANY, "workload", "flows", "file"): CaseRole.FLOWS,
        ("jobs", _ANY, "workload", "flows", "sizes"): CaseRole.FLOWS,
        ("jobs", _ANY, "workload", "checkpoint", "file"): CaseRole.LOAD,
        ("jobs", _ANY, "workload", "kv_offload", "file"): CaseRole.LOAD,
        ("jobs", _ANY, "workload", "serving", "model"): CaseRole.LOAD,
        ("jobs", _ANY, "workload", "serving", "requests", "trace"): CaseRole.LOAD,
        ("collectives", _ANY, "schedule"): CaseRole.SCHEDULE,
        ("jobs", _ANY, "collectives", _ANY, "schedule"): CaseRole.SCHEDULE,
        ("transport", "cc", "plugin"): CaseRole.PLUGIN,
        ("twin",): CaseRole.TOPOLOGY,
    },
    CaseRole.RIG: {
        ("topology",): CaseRole.TOPOLOGY,
        ("dut", "profile"): CaseRole.PROFILE,
        (*_COUNTERS, "credentials"): CaseRole.PRIVATE,
        (*_COUNTERS, "tls", "ca"): CaseRole.PRIVATE,
        (*_COUNTERS, "tls", "cert"): CaseRole.PRIVATE,
        (*_COUNTERS, "tls", "key"): CaseRole.PRIVATE,
        ("security", "curve", "server_key"): CaseRole.PRIVATE,
        ("security", "curve", "authorised_keys"): CaseRole.PRIVATE,
    },
    CaseRole.TOPOLOGY: {(_ANYWHERE, "device"): CaseRole.PROFILE},
}
"""Role of the naming file -> key path -> role of the named file. A list under such a key names one file per item."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedFile:
    """A place in a file that names another file."""

    role: CaseRole
    key: tuple[str, ...]
    value: str
    """The name as written."""
    node: yaml.ScalarNode


def named_files(text: bytes, source: str, kind: CaseRole) -> tuple[NamedFile, ...]:
    """Return the files that a scenario, rig or topology names, in the order of its text, without names of shipped data.

    Raises `ConfigError` for a text that is not valid YAML; `source` names the text.
    """
    references = []
    for key, node in _walk_scalars(tree_of(text, source), ()):
        for pattern, role in NAMES[kind].items():
            # The items of a list are one level below its key.
            if not is_null(node) and (_matches(key, pattern) or _matches(key[:-1], pattern)):
                if _is_file(role, key, node.value):
                    references.append(NamedFile(role, key, node.value, node))
                break
    return tuple(references)


def _is_file(role: CaseRole, key: tuple[str, ...], value: str) -> bool:
    """Return whether a name is the path of a file, and not the name of shipped data."""
    if role is CaseRole.LOAD and key[-1] == "model":
        return is_model_file(value)
    if role is CaseRole.FLOWS:
        return value not in SHIPPED_SIZES
    return role is not CaseRole.PROFILE or is_path(value)


def with_names(text: bytes, renamed: Sequence[tuple[NamedFile, str]]) -> bytes:
    """Return the text with the names of the given `named_files` replaced; nothing else changes."""
    content = text.decode("utf-8-sig")
    for reference, name in sorted(renamed, key=lambda pair: pair[0].node.start_mark.index, reverse=True):
        if name == reference.value:
            continue
        start, end = reference.node.start_mark.index, reference.node.end_mark.index
        # A block scalar (| and >) ends with its last line.
        ends_line = "\n" if reference.node.style in ("|", ">") else ""
        # A quoted JSON string is valid YAML.
        content = f"{content[:start]}{json.dumps(name, ensure_ascii=False)}{ends_line}{content[end:]}"
    return content.encode()


def with_topology(text: bytes, source: str, name: str) -> bytes:
    """Return the text of a scenario that names no topology with `twin: name` added."""
    root = tree_of(text, source)
    if root.flow_style or root.start_mark.column or _child(root, "twin") is not None:
        # No line can be inserted before its first key: rewrite the document, without its comments.
        value = yaml.ScalarNode(TEXT_TAG, name)
        return changed_text(text, source, (Change(("twin",), value),)).encode()
    content, start = text.decode("utf-8-sig"), root.start_mark.index
    return f"{content[:start]}twin: {json.dumps(name)}\n{content[start:]}".encode()


def of_ports(text: bytes, source: str, ports: Sequence[str]) -> bytes:
    """Return the text of a rig with only these ports ("agent/port"); comments of the text are lost."""
    root = tree_of(text, source)
    for agent in _items(root, "agents"):
        own = _value(agent, "name")

        def is_kept(port: yaml.Node, own: str = own) -> bool:
            return f"{own}/{_value(port, 'name')}" in ports

        _filter_items(agent, "ports", is_kept)
    _filter_items(root, "agents", lambda agent: bool(_items(agent, "ports")))
    dut = _child(root, "dut")
    for source_node in _items(dut, "counters") if dut is not None else []:
        port_map = _child(source_node, "ports")
        if isinstance(port_map, yaml.MappingNode):
            port_map.value[:] = [pair for pair in port_map.value if pair[0].value in ports]
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=120)).encode()


def _walk_scalars(node: yaml.Node, key: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], yaml.ScalarNode]]:
    if isinstance(node, yaml.ScalarNode):
        yield key, node
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _walk_scalars(child, (*key, str(index)))
    elif isinstance(node, yaml.MappingNode):
        for name, child in node.value:
            yield from _walk_scalars(child, (*key, str(name.value)))


def _matches(key: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if pattern[0] == _ANYWHERE:
        return key[-len(pattern) + 1 :] == pattern[1:]
    return len(key) == len(pattern) and all(
        part in (_ANY, name) for name, part in zip(key, pattern, strict=True)
    )


def _child(node: yaml.Node, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _items(node: yaml.Node, key: str) -> list[yaml.Node]:
    child = _child(node, key)
    return child.value if isinstance(child, yaml.SequenceNode) else []


def _value(node: yaml.Node, key: str) -> str:
    child = _child(node, key)
    return str(child.value) if isinstance(child, yaml.ScalarNode) else ""


def _filter_items(node: yaml.Node, key: str, is_kept: Callable[[yaml.Node], bool]) -> None:
    items = _items(node, key)
    items[:] = [item for item in items if is_kept(item)]

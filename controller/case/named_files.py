"""The one list of the keys by which scenario, rig and topology name other files, and texts with other names in their place.

Decides which keys these are; what a key means is decided by who reads the file. A test holds the list to every `Path` that
scenarios and rigs are read to. Pure.
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

_ANY: Final = "*"
_ANYWHERE: Final = "**"
"""First in a path: at any depth."""
_COUNTERS: Final = ("dut", "counters", _ANY)

NAMES: Final[Mapping[CaseRole, Mapping[tuple[str, ...], CaseRole]]] = {
    CaseRole.SCENARIO: {
        ("workload", "trace"): CaseRole.TRACE,
        ("workload", "groups"): CaseRole.GROUPS,
        ("workload", "kernels"): CaseRole.KERNELS,
        ("workload", "flows", "file"): CaseRole.FLOWS,
        ("workload", "flows", "sizes"): CaseRole.FLOWS,
        ("jobs", _ANY, "workload", "trace"): CaseRole.TRACE,
        ("jobs", _ANY, "workload", "groups"): CaseRole.GROUPS,
        ("jobs", _ANY, "workload", "kernels"): CaseRole.KERNELS,
        ("jobs", _ANY, "workload", "flows", "file"): CaseRole.FLOWS,
        ("jobs", _ANY, "workload", "flows", "sizes"): CaseRole.FLOWS,
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
"""By the file that names them: key path -> what is named. A list under such a key names a file by each item."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedFile:
    """One place of a file that names another."""

    role: CaseRole
    key: tuple[str, ...]
    value: str
    """As it is written."""
    node: yaml.ScalarNode


def named_files(text: bytes, source: str, kind: CaseRole) -> tuple[NamedFile, ...]:
    """Return what a scenario, rig or topology names, in the order of its text; names of shipped profiles are no files.

    Raises `ConfigError` for what is not YAML that we read; `source` names the text.
    """
    found = []
    for key, node in _scalars(tree_of(text, source), ()):
        for pattern, role in NAMES[kind].items():
            # The items of a list stand one level below its key.
            if not is_null(node) and (_fits(key, pattern) or _fits(key[:-1], pattern)):
                if _is_file(role, node.value):
                    found.append(NamedFile(role, key, node.value, node))
                break
    return tuple(found)


def _is_file(role: CaseRole, value: str) -> bool:
    """Whether a name is one of a file, and not of something that is shipped."""
    if role is CaseRole.FLOWS:
        return value not in SHIPPED_SIZES
    return role is not CaseRole.PROFILE or is_path(value)


def with_names(text: bytes, renamed: Sequence[tuple[NamedFile, str]]) -> bytes:
    """Return the text with other names in the places of `named_files` of it; nothing else of it changes."""
    words = text.decode("utf-8-sig")
    for named, name in sorted(renamed, key=lambda each: each[0].node.start_mark.index, reverse=True):
        if name == named.value:
            continue
        begin, end = named.node.start_mark.index, named.node.end_mark.index
        # A block scalar (| and >) ends with its last line.
        ends_line = "\n" if named.node.style in ("|", ">") else ""
        # JSON's text in quotes is YAML's.
        words = f"{words[:begin]}{json.dumps(name, ensure_ascii=False)}{ends_line}{words[end:]}"
    return words.encode()


def with_topology(text: bytes, source: str, name: str) -> bytes:
    """Return the text of a scenario that names this topology, which names none."""
    root = tree_of(text, source)
    if root.flow_style or root.start_mark.column or _child(root, "twin") is not None:
        # Nothing can be put before its first key; comments of the text are lost.
        value = yaml.ScalarNode(TEXT_TAG, name)
        return changed_text(text, source, (Change(("twin",), value),)).encode()
    words, begin = text.decode("utf-8-sig"), root.start_mark.index
    return f"{words[:begin]}twin: {json.dumps(name)}\n{words[begin:]}".encode()


def of_ports(text: bytes, source: str, ports: Sequence[str]) -> bytes:
    """Return the text of a rig with these ports ("agent/port") and no others; comments of the text are lost."""
    root = tree_of(text, source)
    for agent in _items(root, "agents"):
        own = _value(agent, "name")

        def is_kept(port: yaml.Node, own: str = own) -> bool:
            return f"{own}/{_value(port, 'name')}" in ports

        _keep(agent, "ports", is_kept)
    _keep(root, "agents", lambda agent: bool(_items(agent, "ports")))
    dut = _child(root, "dut")
    for counted in _items(dut, "counters") if dut is not None else []:
        cables = _child(counted, "ports")
        if isinstance(cables, yaml.MappingNode):
            cables.value[:] = [pair for pair in cables.value if pair[0].value in ports]
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=120)).encode()


def _scalars(node: yaml.Node, key: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], yaml.ScalarNode]]:
    if isinstance(node, yaml.ScalarNode):
        yield key, node
    elif isinstance(node, yaml.SequenceNode):
        for index, each in enumerate(node.value):
            yield from _scalars(each, (*key, str(index)))
    elif isinstance(node, yaml.MappingNode):
        for name, each in node.value:
            yield from _scalars(each, (*key, str(name.value)))


def _fits(key: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if pattern[0] == _ANYWHERE:
        return key[-len(pattern) + 1 :] == pattern[1:]
    return len(key) == len(pattern) and all(
        part in (_ANY, each) for each, part in zip(key, pattern, strict=True)
    )


def _child(node: yaml.Node, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _items(node: yaml.Node, key: str) -> list[yaml.Node]:
    found = _child(node, key)
    return found.value if isinstance(found, yaml.SequenceNode) else []


def _value(node: yaml.Node, key: str) -> str:
    found = _child(node, key)
    return str(found.value) if isinstance(found, yaml.ScalarNode) else ""


def _keep(node: yaml.Node, key: str, is_kept: Callable[[yaml.Node], bool]) -> None:
    items = _items(node, key)
    items[:] = [each for each in items if is_kept(each)]

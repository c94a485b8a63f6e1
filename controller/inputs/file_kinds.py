"""Recognises a file that was given in place of another one: a rig, a topology or a trace as the scenario.

Decides by the keys at the top of the file alone, so that one answer replaces a list of unknown keys.
"""

from __future__ import annotations

import re
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem

_HEAD_BYTES: Final = 4096
_KEYS: Final = {
    "scenario": frozenset({"workload", "jobs"}),
    "rig": frozenset({"agents"}),
    "topology": frozenset(
        {"single", "leaf_spine", "fat_tree", "rail", "dumbbell", "parking_lot", "switches"}
    ),
    "trace": frozenset({"traceEvents", "schemaVersion", "nodes", "workload_graph"}),
}
"""Keys of which a file of each kind has at least one."""
_REMEDIES: Final = {
    "scenario": "give it in place of the scenario",
    "rig": "give it with --rig",
    "topology": "give it with --topology, or name it in the scenario under twin",
    "trace": "name it in a scenario: workload: {trace: PATH}",
}
_KEY: Final = re.compile(
    r'^([A-Za-z_]+)\s*:|^\{?\s*"([A-Za-z_]+)"\s*:|[{,]\s*"([A-Za-z_]+)"\s*:', re.MULTILINE
)


def refuse_other_kind(text: bytes, source: str, expected: str) -> None:
    """Raise `ConfigError` if a file is of another kind than `expected` ("scenario" or "rig")."""
    kind = _kind(text, expected)
    if kind is not None:
        raise ConfigError(Problem(source, f"is a {kind}, not a {expected}", _REMEDIES[kind]))


def _kind(text: bytes, expected: str) -> str | None:
    """Return the kind of a file that is certainly not `expected`; None otherwise."""
    if b"\0" in text[:_HEAD_BYTES]:
        return "trace"
    head = text.decode("utf-8", "replace")
    head = head[:_HEAD_BYTES] if head.lstrip().startswith("{") else head
    names = {name for groups in _KEY.findall(head) for name in groups if name}
    if not names.isdisjoint(_KEYS[expected]):
        return None
    return next((kind for kind, keys in _KEYS.items() if not names.isdisjoint(keys)), None)

"""`transport:` of a job or a load beside jobs: what it carries its messages by, where that is not the transport of the file.

Decides which keys go with a kind of transport, so that a job may have its own, and what of the rest holds for it. What the keys
mean and may be is decided by `transport`, which reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
from etloop.contract.base.value_parsers import one_of
from etloop.contract.base.yaml_reader import ConfigFile, Section
from etloop.contract.model.transport import TRANSPORT_KINDS
from etloop.controller.inputs.scenario.faults import kind_has
from etloop.controller.inputs.scenario.transport import Transport

OWN_KEYS: Final = frozenset(
    {
        "kind",
        "mrc",
        "uet",
        "cc",
        "window_packets",
        "ack_every",
        "lossless",
        "retransmission",
        "tail_probe",
        "out_of_order",
        "reorder_packets",
        "rnr_retry",
        "min_rnr_timer",
        "outstanding_reads",
        "cnp",
    }
)
"""Keys that mean one thing with one kind of transport and another, or nothing, with another kind."""
_OF_FAULTS: Final = "faults"
TOP: Final = 0
"""Number of the transport at the top of the file."""


class JobTransports:
    """Reads the transports of jobs; keeps each once, however many jobs have the same."""

    def __init__(self, section: Section, top: Transport, read: Callable[[Section], Transport]) -> None:
        """`section`: the `transport:` that `top` was read from; an empty one where that had mistakes."""
        self._section = section
        self._read = read
        self._found = [top]

    @property
    def path_mtu_bytes(self) -> int:
        """Return the path MTU, which is of all."""
        return self._found[TOP].path_mtu_bytes

    @property
    def others(self) -> tuple[Transport, ...]:
        """Return those that are not the one at the top, by their numbers from 1 on."""
        return tuple(self._found[1:])

    def number_of(self, entry: Section) -> int:
        """Return the number of the transport of one job, whose own keys stand in its `transport:`. Mistakes go to its file."""
        own, top = entry.section("transport"), self._found[TOP]
        if not entry.has("transport"):
            return TOP
        kind = own.again(ConfigFile("")).optional("kind", one_of(TRANSPORT_KINDS), top.kind)
        dropped = {_OF_FAULTS} if kind is top.kind else {_OF_FAULTS, *OWN_KEYS}
        read = _with_faults_of(top, self._read(own.over(self._section, OWN_KEYS, dropped)))
        for number, known in enumerate(self._found):
            if _are_alike(known, read):
                return number
        self._found.append(read)
        return len(self._found) - 1


def _with_faults_of(top: Transport, own: Transport) -> Transport:
    """Return the transport with those rules of the run that its kind has."""
    names = top.fault_communicators or ("",) * len(top.faults)
    kept = [(rule, name) for rule, name in zip(top.faults, names, strict=True) if kind_has(own, rule)]
    return replace(
        own,
        faults=tuple(rule for rule, _ in kept),
        fault_communicators=tuple(name for _, name in kept),
        pauses=top.pauses,
    )


def _are_alike(one: Transport, other: Transport) -> bool:
    if _values(one.congestion) != _values(other.congestion):
        return False
    return replace(one, congestion=other.congestion) == other


def _values(settings: Any) -> list[Any]:
    found = (getattr(settings, field.name) for field in fields(settings))
    return [value.tobytes() if isinstance(value, np.ndarray) else value for value in found]

"""`transport:` of a job or a background load, if it differs from the transport of the file.

Decides which keys depend on the kind of transport, so that a job may state its own, and which of the other keys it inherits.
The keys themselves are read by `transport`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np

from etloop.contract.base.value_parsers import one_of
from etloop.contract.base.yaml_reader import ConfigFile, Section
from etloop.contract.model.transport_kinds import TRANSPORT_KINDS
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
        "arbitration",
    }
)
"""Keys whose meaning depends on the kind of transport; a job may state them, and inherits them only for the same kind."""
_OF_FAULTS: Final = "faults"
TOP: Final = 0
"""Index of the transport at the top of the file."""


class JobTransports:
    """Reader of the transports of jobs; stores equal ones once."""

    def __init__(self, section: Section, top: Transport, read: Callable[[Section], Transport]) -> None:
        """Create the reader with the transport at the top of the file as number 0.

        `section` is the `transport:` that `top` was read from, or an empty section if it had mistakes.
        """
        self._section = section
        self._read = read
        self._found = [top]

    @property
    def path_mtu_bytes(self) -> int:
        """Return the path MTU, which all transports share."""
        return self._found[TOP].path_mtu_bytes

    @property
    def others(self) -> tuple[Transport, ...]:
        """Return the transports other than that at the top of the file, by their numbers from 1 on."""
        return tuple(self._found[1:])

    def number_of(self, entry: Section) -> int:
        """Return the number of the transport of one job, and read its `transport:` section. Mistakes are added to its file."""
        job_section, top = entry.section("transport"), self._found[TOP]
        if not entry.has("transport"):
            return TOP
        kind = job_section.again(ConfigFile("")).optional("kind", one_of(TRANSPORT_KINDS), top.kind)
        not_inherited = {_OF_FAULTS} if kind is top.kind else {_OF_FAULTS, *OWN_KEYS}
        transport = _with_faults_of(top, self._read(job_section.over(self._section, OWN_KEYS, not_inherited)))
        for number, existing in enumerate(self._found):
            if _are_equal(existing, transport):
                return number
        self._found.append(transport)
        return len(self._found) - 1


def _with_faults_of(top: Transport, own: Transport) -> Transport:
    """Return `own` with the pauses of `top` and with those of its fault rules that the kind of `own` can carry out."""
    names = top.fault_communicators or ("",) * len(top.faults)
    kept_rules = [(rule, name) for rule, name in zip(top.faults, names, strict=True) if kind_has(own, rule)]
    return replace(
        own,
        faults=tuple(rule for rule, _ in kept_rules),
        fault_communicators=tuple(name for _, name in kept_rules),
        pauses=top.pauses,
    )


def _are_equal(transport: Transport, other: Transport) -> bool:
    if _comparable_values(transport.congestion) != _comparable_values(other.congestion):
        return False
    return replace(transport, congestion=other.congestion) == other


def _comparable_values(settings: Any) -> list[Any]:
    values = (getattr(settings, field.name) for field in fields(settings))
    return [value.tobytes() if isinstance(value, np.ndarray) else value for value in values]

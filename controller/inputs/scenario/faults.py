"""`transport.faults` of a scenario: the errors that endpoints make on purpose, and the packets concerned.

Decides the keys of a rule and refuses those that contradict each other. Whether a rule matches any connection is known only
after placement: `refuse_idle_faults`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_duration,
    parse_duration_ns,
)
from etloop.contract.base.value_form import pattern_form, with_form
from etloop.contract.base.value_parsers import integer, one_of, with_bounds, words
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.assignment import ConnectionColumns, Path
from etloop.contract.model.fault_rules import (
    ANY_COMMUNICATOR,
    FaultAction,
    FaultDirection,
    FaultPackets,
    FaultRule,
)
from etloop.contract.model.transport import TransportSettings
from etloop.contract.model.transport_kinds import TransportKind
from etloop.controller.inputs.scenario.pauses import PortPause, read_pause

MOST_RULES: Final = 64
POINT_TO_POINT: Final = "p2p"
"""Name in rules of the connections of sends and receives, which have no communicator."""
_UNASKED: Final = (FaultAction.SEND_NAK, FaultAction.SEND_RNR, FaultAction.SEND_CNP)
_TRIMMED: Final = (FaultPackets.DATA, FaultPackets.CLEAR_TO_SEND, FaultPackets.REQUEST)
_ROCE: Final = TransportSettings()
_ACTIONS: Final = {action.name.lower(): action for action in FaultAction}
HaveRule = Callable[[FaultRule], NDArray[np.bool_]]
PAUSE: Final = "pause"
"""Action that changes no packet: the port sends pause frames."""
_WORDS: Final = {word: word for word in (*_ACTIONS, PAUSE)}
_SIDES: Final = {"sent": FaultDirection.SENT, "received": FaultDirection.RECEIVED}


@dataclass(frozen=True, slots=True)
class _Numbers:
    first: int
    last: int


_ALL: Final = _Numbers(1, 0)


@dataclass(frozen=True, slots=True)
class Faults:
    """The contents of a `faults:` list, before communicators and ports are resolved."""

    rules: tuple[FaultRule, ...] = ()
    communicators: tuple[str, ...] = ()
    """Name of the communicator of each rule, "p2p", or "" for any."""
    pauses: tuple[PortPause, ...] = ()


def read_faults(section: Section, seed: int, transport: TransportSettings = _ROCE) -> Faults:
    """Read `faults:` of a `transport:` section. Mistakes are added to its file.

    `seed` is the scenario's; `transport` decides which actions and packets exist.
    """
    rules: list[FaultRule] = []
    communicators: list[str] = []
    pauses: list[PortPause] = []
    for entry in section.up_to(
        MOST_RULES,
        "faults",
        "rules",
        "write rules such as - {do: drop, which: 3}",
        "Errors that endpoints make on purpose.",
    ):
        remedy = f"write one of {', '.join(_WORDS)}"
        meaning = "Change of the packets, or `pause` for pause frames of a port."
        word = entry.require("do", one_of(_WORDS), "drop", remedy, meaning)
        if word == PAUSE:
            pauses.append(read_pause(entry))
            continue
        communicators.append(
            entry.optional(
                "communicator", words, "", "Communicator of the connection, or `p2p` for sends and receives."
            )
        )
        rules.append(_read_rule(entry, _ACTIONS[word], seed, transport))
    return Faults(tuple(rules), tuple(communicators), tuple(pauses))


def _read_rule(section: Section, action: FaultAction, seed: int, transport: TransportSettings) -> FaultRule:
    numbers = section.optional("which", _numbers, _ALL, "Numbers of packets of a queue pair, from 1, or all.")
    selectors = [key for key in ("which", "chance", "every") if section.has(key)]
    if not selectors:
        section.mistake(
            "which", "the rule selects every packet", "write which, every or chance; which: all means it"
        )
    rule = FaultRule(
        action,
        _read_side(section, action),
        first=numbers.first,
        last=numbers.last,
        delay_ns=_read_delay(section, action),
        behind_packets=_read_behind(section, action),
        seed=seed,
    )
    rule = read_settings(FaultRule, section, rule)
    _check_kind(section, rule, transport)
    section.close()
    return rule


def _check_kind(section: Section, rule: FaultRule, transport: TransportSettings) -> None:
    """Report a rule that the transport cannot carry out: responses, ICRCs or trimmed packets that it does not have."""
    name = transport.kind_name.upper()
    if not transport.sprays:
        for key, is_used in (
            ("do", rule.action is FaultAction.TRIM),
            ("entropy_value", rule.entropy_value >= 0),
        ):
            if is_used:
                problem = "only multipath transports have trim rules and entropy values"
                section.mistake(key, problem, "write kind: mrc or uet, or leave it out")
        return
    if rule.action in _UNASKED:
        problem = f"{name} has no such reply"
        section.mistake("do", problem, "leave the rule out, or write kind: rocev2")
    if rule.action is FaultAction.CORRUPT_ICRC and transport.kind is TransportKind.UET:
        section.mistake("do", "UET has no ICRC", "write do: drop")
    if rule.packets is FaultPackets.CNP:
        section.mistake("packets", f"{name} has no CNPs", "write ack: its ACKs report marks")
    if rule.action is FaultAction.TRIM and rule.packets not in _TRIMMED:
        section.mistake("packets", "only trimmed requests are answered", "write data or clear_to_send")
    values = transport.multipath.entropy_values
    if rule.entropy_value >= values:
        section.mistake(
            "entropy_value", f"expected 0 to {values - 1}", f"write a value from 0 to {values - 1}"
        )
    if rule.entropy_value >= 0 and rule.direction is not FaultDirection.SENT:
        section.mistake(
            "entropy_value", "only the sender knows the entropy value", "write side: sent, or leave it out"
        )


def kind_has(transport: TransportSettings, rule: FaultRule) -> bool:
    """Return whether ends of a transport can carry out a rule that was written for another transport."""
    if not transport.sprays:
        return rule.action is not FaultAction.TRIM and rule.entropy_value < 0
    corrupts_icrc = rule.action is FaultAction.CORRUPT_ICRC and transport.kind is TransportKind.UET
    needs_rocev2 = rule.action in _UNASKED or rule.packets is FaultPackets.CNP
    return not (corrupts_icrc or needs_rocev2 or rule.entropy_value >= transport.multipath.entropy_values)


def _read_side(section: Section, action: FaultAction) -> FaultDirection:
    on_receive = action in _UNASKED or action is FaultAction.TRIM
    default_side = FaultDirection.RECEIVED if on_receive else FaultDirection.SENT
    side = section.optional(
        "side", one_of(_SIDES), default_side, "Whether packets are counted as they are sent or received."
    )
    name = action.name.lower()
    if action in _UNASKED and side is not FaultDirection.RECEIVED:
        section.mistake("side", f"{name} answers received packets", "write side: received, or leave it out")
    if action is FaultAction.TRIM and side is not FaultDirection.RECEIVED:
        section.mistake("side", "trim cuts received packets", "write side: received, or leave it out")
    if action is FaultAction.CORRUPT_ICRC and side is not FaultDirection.SENT:
        section.mistake("side", "only sent packets can get a wrong ICRC", "write side: sent, or do: drop")
    return side


def _read_delay(section: Section, action: FaultAction) -> int:
    limits = with_bounds(parse_duration_ns, 1, 60 * NS_PER_S, format_duration)
    meaning = "Time that `delay` holds a packet, or that `reorder` waits for packets to put it behind."
    if action is FaultAction.DELAY:
        return section.require("delay", limits, 1, "write how long, such as 50us", meaning)
    if action is not FaultAction.REORDER and section.has("delay"):
        section.mistake("delay", f"{action.name.lower()} has no delay", "write do: delay, or leave it out")
    # For REORDER: the longest time that a packet is held back if too few packets follow.
    return section.optional("delay", limits, 1_000_000, meaning) if action is FaultAction.REORDER else 0


def _read_behind(section: Section, action: FaultAction) -> int:
    if action is not FaultAction.REORDER and section.has("behind"):
        section.mistake(
            "behind", f"{action.name.lower()} does not reorder", "write do: reorder, or leave it out"
        )
    behind = section.optional("behind", integer(1, 10_000), 1, "Packets that `reorder` lets past.")
    return behind if action is FaultAction.REORDER else 0


@with_form(pattern_form("packet numbers", "all|[1-9][0-9]{0,14}(-([0-9]{1,15})?)?"))
def _numbers(text: str) -> _Numbers:
    if text == "all":
        return _ALL
    match = re.fullmatch(r"([0-9]{1,15})(-([0-9]{1,15})?)?", text)
    first, last = (int(match[1]), int(match[3] or 0) if match[2] else int(match[1])) if match else (0, 0)
    if match is None or first < 1 or (match[3] and last < first):
        raise QuantityError(
            f'"{text[:64]}" is not a packet number',
            "write a number from 1 such as 3, a range such as 3-10 or 3-, or all",
        )
    return _Numbers(first, last)


def resolve_communicators(
    rules: tuple[FaultRule, ...], names: tuple[str, ...], communicators: tuple[str, ...]
) -> tuple[FaultRule, ...]:
    """Return the rules with their communicators as row numbers.

    `names` has the communicator of each rule, `communicators` those of the job. Raises `PlanError` with every unknown name.
    """
    names = names or ("",) * len(rules)
    row_by_name = {"": ANY_COMMUNICATOR, POINT_TO_POINT: -1}
    row_by_name |= {name: row for row, name in enumerate(communicators)}
    problems = [
        Problem(
            f"transport.faults[{index}].communicator",
            f'the job has no communicator "{name[:64]}"',
            f"write one of {', '.join((*communicators[:8], POINT_TO_POINT))}",
        )
        for index, name in enumerate(names)
        if name not in row_by_name
    ]
    if problems:
        raise PlanError(*problems)
    return tuple(
        replace(rule, communicator=row_by_name[name]) for rule, name in zip(rules, names, strict=True)
    )


def refuse_idle_faults(
    rules: tuple[FaultRule, ...], connections: ConnectionColumns, have_rule: HaveRule | None = None
) -> None:
    """Raise `PlanError` with every rule that matches no queue pair of the plan, as it would silently do nothing.

    `have_rule` returns which connections use a transport that can carry out a rule; None means all.
    """
    on_wire = connections.path == Path.WIRE
    queue_pairs = np.diff(connections.qp_offsets)
    problems = []
    for index, rule in enumerate(rules):
        matches = on_wire & (queue_pairs > rule.queue_pair)
        if have_rule is not None:
            matches &= have_rule(rule)
        if rule.src_rank >= 0:
            matches &= connections.src_rank == rule.src_rank
        if rule.dst_rank >= 0:
            matches &= connections.dst_rank == rule.dst_rank
        if rule.communicator != ANY_COMMUNICATOR:
            matches &= connections.communicator == rule.communicator
        if rule.channel >= 0:
            matches &= connections.channel == rule.channel
        if not matches.any():
            problem = "the rule matches no connection through the device under test"
            remedy = "leave from, to, qp, communicator and channel out, or correct them: "
            problems.append(
                Problem(
                    f"transport.faults[{index}]",
                    problem,
                    remedy + _suggest_values(rule, connections, on_wire),
                )
            )
    if problems:
        raise PlanError(*problems)


def _suggest_values(rule: FaultRule, connections: ConnectionColumns, on_wire: NDArray[np.bool_]) -> str:
    """Return text that lists values that would match, going from the source rank to the destination, channel and queue pair."""
    src, dst = connections.src_rank, connections.dst_rank
    from_src = on_wire & (src == rule.src_rank) if rule.src_rank >= 0 else on_wire
    if not from_src.any():
        reason = "sends nothing through the device" if bool(np.isin(rule.src_rank, src)) else "sends nothing"
        return f"rank {rule.src_rank} {reason}; ranks {_list_numbers(src[on_wire])} do"
    matches = from_src & (dst == rule.dst_rank) if rule.dst_rank >= 0 else from_src
    if not matches.any():
        senders = f"rank {rule.src_rank} sends" if rule.src_rank >= 0 else "senders reach"
        reached_locally = bool(
            ((dst == rule.dst_rank) & ((src == rule.src_rank) | (rule.src_rank < 0))).any()
        )
        local_note = (
            f" (to rank {rule.dst_rank} by other ways: one host or one port)" if reached_locally else ""
        )
        return f"{senders} through the device to ranks {_list_numbers(dst[from_src])}{local_note}"
    qp_count = int(np.diff(connections.qp_offsets)[matches].max())
    return f"these ranks have channels {_list_numbers(connections.channel[matches])} and queue pairs 0 to {qp_count - 1}"


def _list_numbers(numbers: NDArray[np.integer[Any]]) -> str:
    distinct = np.unique(numbers).tolist()
    return ", ".join(str(number) for number in distinct[:8]) + (", ..." if len(distinct) > 8 else "")

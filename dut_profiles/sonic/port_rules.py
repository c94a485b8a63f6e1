"""Groups, queues and pauses of ports that differ from the other ports of a switch -> keys of `port_settings`. Pure."""

from __future__ import annotations

from fractions import Fraction

from etloop.contract.model.topology import Marking, PortRules, PriorityGroup, SwitchQueue
from etloop.dut_profiles.sonic.buffer_tables import Fragment, size_text


def rules_fragment(own: PortRules, usual: PortRules) -> Fragment:
    """Return the keys by which `own` differs from `usual`; empty if it does not."""
    groups = {
        number: _group(group)
        for number, (group, other) in enumerate(zip(own.groups, usual.groups, strict=True))
        if group != other
    }
    queues = {
        number: _queue(queue, other)
        for number, (queue, other) in enumerate(zip(own.queues, usual.queues, strict=True))
        if queue != other
    }
    keys: Fragment = {"groups": groups, "queues": queues}
    if own.pfc != usual.pfc:
        keys["pfc"] = own.pfc
    return {key: value for key, value in keys.items() if value != {}}


def _group(group: PriorityGroup) -> Fragment:
    keys: Fragment = {
        "lossless": group.lossless,
        "reserved": size_text(group.reserved_bytes),
        "alpha": _alpha(group.alpha_log2),
    }
    if group.lossless:
        keys |= {
            "headroom": size_text(group.headroom_bytes),
            "resume_offset": size_text(group.resume_offset_bytes),
        }
    return keys


def _queue(queue: SwitchQueue, usual: SwitchQueue) -> Fragment:
    keys: Fragment = {
        "strict": queue.strict,
        "alpha": _alpha(queue.alpha_log2),
        "reserved": size_text(queue.reserved_bytes),
    }
    if not queue.strict:
        keys["weight"] = queue.weight
    if queue.marking != usual.marking:
        keys["ecn"] = {"enabled": False} if queue.marking is None else _marking(queue.marking)
    return keys


def _marking(marking: Marking) -> Fragment:
    return {
        "kmin": size_text(marking.kmin_bytes),
        "kmax": size_text(marking.kmax_bytes),
        "pmax": f"{marking.pmax_per_million / 10_000:g}%",
        "at": "dequeue" if marking.at_dequeue else "enqueue",
    }


def _alpha(alpha_log2: int) -> str:
    return str(Fraction(2) ** alpha_log2)

"""Tables of queues by port: QUEUE with SCHEDULER and WRED_PROFILE, and BUFFER_QUEUE with BUFFER_PROFILE.

Decides the meaning of a WRED profile: RoCE is green, as no policer colours it, so yellow and red have no counterpart.
"""

from __future__ import annotations

from typing import Final

from etloop.dut_profiles.model.profile import MOST_QUEUES
from etloop.dut_profiles.sonic.buffer_tables import Fragment, alpha_of, size_of, size_text
from etloop.dut_profiles.sonic.config_db import ConfigDb, Row
from etloop.dut_profiles.sonic.port_tables import Port, rows_by_port

TRIMS: Final = "trims"
"""Key of a queue that no profile has: whether the queue trims; a topology has it."""
_SCHEDULERS: Final = {"DWRR": "dwrr", "WRR": "wrr", "STRICT": "strict"}
_MARKS_GREEN: Final = ("ecn_green", "ecn_green_yellow", "ecn_green_red", "ecn_all")


def queues_by_port(db: ConfigDb, ports: tuple[Port, ...]) -> dict[str, dict[int, Fragment]]:
    """Return the queues of every port, as entries of a profile without their numbers, and `TRIMS`."""
    scheduled = rows_by_port(db, "QUEUE", ports, MOST_QUEUES - 1)
    buffered = rows_by_port(db, "BUFFER_QUEUE", ports, MOST_QUEUES - 1)
    known: dict[tuple[int, int], Fragment] = {}
    by_port: dict[str, dict[int, Fragment]] = {}
    for port in scheduled:
        numbers = sorted(scheduled[port].keys() | buffered[port].keys())
        by_port[port] = {
            number: _known_queue(scheduled[port].get(number), buffered[port].get(number), known)
            for number in numbers
        }
    return by_port


def _known_queue(queue: Row | None, buffer: Row | None, known: dict[tuple[int, int], Fragment]) -> Fragment:
    rows = (id(queue), id(buffer))
    if rows not in known:
        known[rows] = {**(_scheduling(queue) if queue else {}), **(_memory(buffer) if buffer else {})}
    return known[rows]


def _scheduling(queue: Row) -> Fragment:
    fragment: Fragment = {}
    scheduler = queue.reference("scheduler", "SCHEDULER")
    if scheduler is not None:
        kind = (scheduler.text("type") or "").upper()
        if kind in _SCHEDULERS:
            fragment["scheduler"] = _SCHEDULERS[kind]
        else:
            scheduler.remark("type", "is none of DWRR, WRR and STRICT")
        weight = scheduler.number("weight", 0, 1_000_000)
        if weight:
            fragment["weight"] = weight
    has_wred = queue.text("wred_profile") is not None
    wred = queue.reference("wred_profile", "WRED_PROFILE")
    if not has_wred or wred is not None:
        fragment["ecn"] = {"enabled": False} if wred is None else _ecn(wred)
    return fragment


def _ecn(wred: Row) -> Fragment:
    mode = wred.text("ecn") or "ecn_none"
    thresholds = [size_of(wred, f"green_{name}_threshold") for name in ("min", "max")]
    drop = wred.number("green_drop_probability", 0, 100)
    is_on = wred.text("wred_green_enable") != "false"
    if mode not in _MARKS_GREEN:
        if is_on and any(thresholds):
            wred.remark("ecn", f"{mode} drops instead of marking; the model has no WRED drops")
        return {"enabled": False}
    fragment: Fragment = {"enabled": True}
    for name, threshold in zip(("kmin", "kmax"), thresholds, strict=True):
        if threshold is not None:
            fragment[name] = size_text(threshold)
    if drop is not None:
        fragment["pmax"] = f"{drop}%"
    return fragment


def _memory(buffer: Row) -> Fragment:
    fragment: Fragment = {}
    profile = buffer.reference("profile", "BUFFER_PROFILE")
    if profile is None:
        return fragment
    profile.reference("pool", "BUFFER_POOL")
    alpha, size = alpha_of(profile), size_of(profile, "size")
    if profile.text("static_th") is not None:
        profile.remark("static_th", "a queue has no fixed limit in a profile")
    if alpha is not None:
        fragment["alpha"] = alpha
    if size is not None:
        fragment["reserved"] = size_text(size)
    if profile.text("packet_discard_action") == "trim":
        fragment[TRIMS] = True
    return fragment

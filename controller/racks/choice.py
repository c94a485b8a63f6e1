"""Which of several racks takes a job: those that can, the one with the shortest wait first, and why the others cannot. Pure.

The wait is an estimate: so many jobs come before it, each as long as the rack's jobs usually are. What a rack's queue does with
the job is its own controller's to decide. Reservations are not looked at: a rack says itself what a job waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.printable import printable
from etloop.contract.base.units import approximate_duration, format_rate
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.mqtt.messages import JobStatus, PortStatus, RackStatus
from etloop.controller.racks.racks_file import RackPlace
from etloop.controller.racks.survey import RackAnswer, RackView

_SAMPLE: Final = 50
"""Ended jobs whose length says how long a job usually is."""
_UNKNOWN_NS: Final = 60 * NS_PER_S
"""How long a job is taken to be where no rack has ended any: it only orders the racks."""


@dataclass(frozen=True, slots=True)
class JobWish:
    """What a job asks of a rack."""

    ports: tuple[str, ...] = ()
    """By name; empty: `port_count` of any."""
    port_count: int = 0
    """0: every port that is fast enough."""
    least_link_bps: int = 0
    backend: str = ""
    dut: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rack that can take the job."""

    place: RackPlace
    jobs_before: int
    wait_ns: int
    """Estimated."""
    why: str
    """What its wait is made of, for people."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The racks that can take the job, the best first, and why the others cannot."""

    candidates: tuple[Candidate, ...]
    refused: tuple[tuple[str, str], ...]
    """Name of a rack, and its reason."""


def choose(answers: Sequence[RackAnswer[RackView]], wish: JobWish) -> Choice:
    """Order the racks for a job; of two with the same wait the one that comes first in `answers` wins."""
    refused: list[tuple[str, str]] = []
    candidates: list[Candidate] = []
    everywhere = [job for each in answers if each.value is not None for job in each.value.jobs]
    usual_ns = _usual_ns(everywhere) or _UNKNOWN_NS
    for each in answers:
        reason = each.trouble if each.value is None else _misfit(each.value, wish)
        if each.value is None or reason:
            refused.append((each.place.name, reason))
        else:
            candidates.append(_candidate(each.place, each.value, wish, usual_ns))
    return Choice(tuple(sorted(candidates, key=lambda one: one.wait_ns)), tuple(refused))


def _misfit(view: RackView, wish: JobWish) -> str:
    """Say why a rack cannot take the job now; "" if it can."""
    if view.controller.state is not RackStatus.READY:
        return f"its controller is {view.controller.state}"
    if view.controller.paused:
        return f"its queue is paused: {printable(view.controller.paused)}"
    dut = view.inventory.dut
    if wish.dut and wish.dut != dut:
        return f"its device under test is {printable(dut) or 'not named'}, and {wish.dut} is wanted"
    labels = {port.label for port in view.inventory.ports}
    if unknown := [label for label in wish.ports if label not in labels]:
        return f"it has no port {unknown[0]}"
    fast = _meant(view, wish)
    if wish.ports and (slow := [port for port in fast if port.link_bps < wish.least_link_bps]):
        return f"port {slow[0].label} has {format_rate(slow[0].link_bps)}"
    if wish.backend and (other := [port for port in fast if port.backend != wish.backend]):
        also = (
            f" (it might be given {other[0].label}: name ports of {wish.backend})" if not wish.ports else ""
        )
        return f"port {other[0].label} is of backend {other[0].backend or 'unknown'}{also}"
    usable = _usable(view, fast)
    wanted = len(wish.ports) or wish.port_count or len(fast)
    if len(usable) < max(wanted, 1):
        least = f" of at least {format_rate(wish.least_link_bps)}" if wish.least_link_bps else ""
        return f"{max(wanted, 1)} ports{least} are wanted, and {len(usable)} are in service with their agents"
    return ""


def _meant(view: RackView, wish: JobWish) -> list[PortStatus]:
    """Ports that the job might be given."""
    if wish.ports:
        return [port for port in view.inventory.ports if port.label in wish.ports]
    return [port for port in view.inventory.ports if port.link_bps >= wish.least_link_bps]


def _usable(view: RackView, ports: Sequence[PortStatus]) -> list[PortStatus]:
    present = {agent.name for agent in view.inventory.agents if agent.present}
    return [port for port in ports if not port.out_of_service and port.label.partition("/")[0] in present]


def _candidate(place: RackPlace, view: RackView, wish: JobWish, usual_ns: int) -> Candidate:
    meant = _meant(view, wish)
    usable = _usable(view, meant)
    wanted = len(wish.ports) or wish.port_count or len(meant)
    free = [port for port in usable if not port.job_id]
    waiting = sum(job.state is JobState.QUEUED and job.priority >= wish.priority for job in view.jobs)
    holders = len({port.job_id for port in usable if port.job_id}) if len(free) < wanted else 0
    before = waiting + holders
    each_ns = _usual_ns(view.jobs) or usual_ns
    if not before:
        return Candidate(place, 0, 0, f"{len(free)} of its ports are free and no job waits")
    why = f"{holders} jobs hold its ports and {waiting} come before, about {approximate_duration(before * each_ns)}"
    return Candidate(place, before, before * each_ns, why)


def _usual_ns(jobs: Sequence[JobStatus]) -> int:
    """Return how long jobs usually take: the median of those that ended last; 0 if none did."""
    lengths = [_length_ns(job) for job in jobs if job.state in ENDED and job.started_at and job.ended_at]
    known = [length for length in lengths if length > 0][:_SAMPLE]
    return int(median(known)) if known else 0


def _length_ns(job: JobStatus) -> int:
    """How long a job took; 0 where its times say nothing."""
    try:
        took = datetime.fromisoformat(job.ended_at) - datetime.fromisoformat(job.started_at)
    except (ValueError, TypeError):
        return 0
    return int(took.total_seconds() * NS_PER_S)

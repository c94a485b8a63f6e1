"""Which of several racks takes a job: those that can, the one with the shortest wait first, and why the others cannot. Pure.

The wait is an estimate: so many jobs come before it, each as long as the rack's jobs usually are. What a rack's queue does with
the job is its own controller's to decide. Reservations are not looked at: a rack says itself what a job waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.contract.base.units import approximate_duration, format_rate
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.mqtt.messages import JobStatus, PortStatus, RackStatus
from etloop.controller.racks.needs import Needs
from etloop.controller.racks.racks_file import RackPlace
from etloop.controller.racks.survey import RackAnswer, RackView

_SAMPLE: Final = 50
"""Ended jobs whose length says how long a job usually is."""
_UNKNOWN_NS: Final = 60 * NS_PER_S
"""How long a job is taken to be where no rack has ended any: it only orders the racks."""


@dataclass(frozen=True, slots=True)
class JobWish:
    """What a job asks of a rack."""

    needs: Needs = Needs()
    """Ports: by name, or `needs.port_count` of any, or where that is 0 every port that is fast enough."""
    shares: bool = False
    """Whether fewer ports than `needs.port_count` do: hosts share ports then."""
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
    ports: tuple[str, ...] = ()
    """The ports to ask for by name: those of the wish, or those that fit where the rack has others, too."""
    port_count: int = 0
    """Without `ports`: so many of any; 0: all that are fast enough."""
    shared: bool = False
    """Whether it has fewer ports than the job has hosts."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The racks that can take the job, the best first, and why the others cannot."""

    candidates: tuple[Candidate, ...]
    refused: tuple[tuple[str, str], ...]
    """Name of a rack, and its reason."""


def wish_of(stated: Needs, given: Needs, dut: str, priority: int) -> JobWish:
    """Return the wish of a job of which the scenario states something, and the command line the rest or something else.

    What the command line gives holds. A number of ports that only the scenario leads to is the most that are of use.
    """
    named = given.ports or (() if given.port_count else stated.ports)
    count, count_key = (
        (given.port_count, given.count_key) if given.port_count else (stated.port_count, stated.count_key)
    )
    link_bps, link_key = (
        (given.least_link_bps, given.link_key)
        if given.least_link_bps
        else (stated.least_link_bps, stated.link_key)
    )
    backends, backend_key = (
        (given.backends, given.backend_key) if given.backends else (stated.backends, stated.backend_key)
    )
    by_scenario = not given.ports and not given.port_count
    needs = Needs(
        ports=named,
        among=() if named else (stated.ports or stated.among),
        ports_key=given.ports_key if given.ports else stated.ports_key,
        least_ports=stated.least_ports if by_scenario else 1,
        port_count=0 if named else count,
        count_key=count_key,
        least_link_bps=link_bps,
        link_key=link_key,
        backends=backends,
        backend_key=backend_key,
    )
    return JobWish(needs, by_scenario, dut, priority)


def choose(answers: Sequence[RackAnswer[RackView]], wish: JobWish) -> Choice:
    """Order the racks for a job: those where each host has a port, then by the wait; of equals the first in `answers` wins."""
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
    order = sorted(candidates, key=lambda one: (one.shared, one.wait_ns))
    return Choice(tuple(order), tuple(refused))


def _misfit(view: RackView, wish: JobWish) -> str:
    """Say why a rack cannot take the job now; "" if it can."""
    if view.controller.state is not RackStatus.READY:
        return f"its controller is {view.controller.state}"
    if view.controller.paused:
        return f"its queue is paused: {printable(view.controller.paused)}"
    dut = view.inventory.dut
    if wish.dut and wish.dut != dut:
        return f"its device under test is {printable(dut) or 'not named'}, and {wish.dut} is wanted"
    return _ports_misfit(view, wish)


def _ports_misfit(view: RackView, wish: JobWish) -> str:
    needs = wish.needs
    labels = {port.label for port in view.inventory.ports}
    if unknown := [label for label in (*needs.ports, *needs.among) if label not in labels]:
        return f"it has no port {unknown[0]}{_by(needs.ports_key)}"
    named = [port for port in view.inventory.ports if port.label in needs.ports]
    for port in named:
        if port.link_bps < needs.least_link_bps:
            least = format_rate(needs.least_link_bps)
            return f"port {port.label} has {format_rate(port.link_bps)}, and {least} is wanted{_by(needs.link_key)}"
        if needs.backends and port.backend not in needs.backends:
            wanted = " or ".join(needs.backends)
            return f"port {port.label} is of backend {port.backend or 'unknown'}, and {wanted} is wanted{_by(needs.backend_key)}"
    fitting = _fitting(view, needs)
    usable = _usable(view, fitting)
    in_service = {port.label for port in usable}
    if missing := [label for label in needs.among if label not in in_service]:
        return f"port {missing[0]}{_by(needs.ports_key)} does not fit, or is not in service with its agent"
    wanted_count = _least_count(wish, len(fitting))
    if len(usable) >= wanted_count:
        return ""
    least = (
        f" of at least {format_rate(needs.least_link_bps)}{_by(needs.link_key)}"
        if needs.least_link_bps
        else ""
    )
    kind = f" of backend {' or '.join(needs.backends)}{_by(needs.backend_key)}" if needs.backends else ""
    others = len(view.inventory.ports) - len(fitting)
    lacking = f"; {others} others are no such" if others and not named else ""
    return f"{wanted_count} ports{least}{kind} are wanted, and {len(usable)} are in service with their agents{lacking}"


def _by(key: str) -> str:
    return f" ({key})" if key else ""


def _least_count(wish: JobWish, fitting: int) -> int:
    """The ports without which the job cannot start."""
    needs = wish.needs
    if needs.ports:
        return len(needs.ports)
    if wish.shares:
        return max(needs.least_ports, 1) if needs.port_count else max(needs.least_ports, fitting)
    return max(needs.port_count or fitting, 1)


def _fitting(view: RackView, needs: Needs) -> list[PortStatus]:
    """Ports that the job might be given, in the rack's order."""
    if needs.ports:
        return [port for port in view.inventory.ports if port.label in needs.ports]
    return [
        port
        for port in view.inventory.ports
        if port.link_bps >= needs.least_link_bps and (not needs.backends or port.backend in needs.backends)
    ]


def _usable(view: RackView, ports: Sequence[PortStatus]) -> list[PortStatus]:
    present = {agent.name for agent in view.inventory.agents if agent.present}
    return [port for port in ports if not port.out_of_service and port.label.partition("/")[0] in present]


def _candidate(place: RackPlace, view: RackView, wish: JobWish, usual_ns: int) -> Candidate:
    needs = wish.needs
    usable = _usable(view, _fitting(view, needs))
    wanted = len(needs.ports) or min(needs.port_count or len(usable), len(usable))
    shared = wanted < needs.port_count
    free = [port for port in usable if not port.job_id]
    waiting = sum(job.state is JobState.QUEUED and job.priority >= wish.priority for job in view.jobs)
    holders = len({port.job_id for port in usable if port.job_id}) if len(free) < wanted else 0
    before = waiting + holders
    each_ns = _usual_ns(view.jobs) or usual_ns
    why = f"{len(free)} of its ports are free and no job waits"
    if before:
        took = approximate_duration(before * each_ns)
        why = f"{holders} jobs hold its ports and {waiting} come before, about {took}"
    if shared:
        why += f"; {needs.port_count} hosts share its {wanted} ports"
    # The rack knows speeds and chooses by them, of backends it takes any: where it has others, too, ports are named.
    mixed = bool(needs.backends) and any(
        port.link_bps >= needs.least_link_bps and port.backend not in needs.backends
        for port in view.inventory.ports
    )
    pick = mixed or (bool(needs.among) and bool(needs.port_count))
    named = needs.ports or (_named(usable, wanted, needs.among) if pick else ())
    count = 0 if named or not needs.port_count else wanted
    return Candidate(place, before, before * each_ns if before else 0, why, named, count, shared)


def _named(usable: Sequence[PortStatus], wanted: int, among: Sequence[str]) -> tuple[str, ...]:
    """The first ports that fit, those among them that have to be; in the rack's order, so that the same job asks for the same."""
    first = [port.label for port in usable if port.label in among]
    rest = [port.label for port in usable if port.label not in among]
    chosen = {*first, *rest[: max(wanted - len(first), 0)]}
    return tuple(port.label for port in usable if port.label in chosen)


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

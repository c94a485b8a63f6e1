"""Decides which of several racks takes a job: of those that can, the one with the shortest estimated wait. Pure.

Also returns why the other racks cannot. The estimate multiplies the number of jobs that come before it by the usual
duration of the rack's jobs. The rack's own controller decides about its queue. Reservations are ignored: a rack itself
publishes what a job waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.contract.base.units import approximate_duration, format_rate
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.job_words import duration_ns
from etloop.controller.rack.mqtt.messages import JobStatus, PortStatus, RackStatus
from etloop.controller.racks.needs import Needs
from etloop.controller.racks.racks_file import RackPlace
from etloop.controller.racks.survey import RackAnswer, RackView

_SAMPLE: Final = 50
"""Most ended jobs from which the usual duration is computed."""
_UNKNOWN_NS: Final = 60 * NS_PER_S
"""Assumed duration if no rack has ended any job: it only orders the racks."""


@dataclass(frozen=True, slots=True)
class JobWish:
    """Requirements of a job on a rack."""

    needs: Needs = Needs()
    """Ports: by name, or `needs.port_count` of any; if that is 0, every port that is fast enough."""
    shares: bool = False
    """Whether fewer ports than `needs.port_count` are enough: hosts then share ports."""
    dut: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rack that can take the job."""

    place: RackPlace
    jobs_before: int
    wait_ns: int
    """Estimated wait."""
    why: str
    """How the wait was estimated, for people."""
    ports: tuple[str, ...] = ()
    """Ports to request by name: those of the wish, or the fitting ones if the rack has other ports too; () for any."""
    port_count: int = 0
    """Number of ports to request if `ports` is empty; 0: all that are fast enough."""
    shared: bool = False
    """Whether it has fewer ports than the job has hosts."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The racks that can take the job, the best first, and why the remaining ones cannot."""

    candidates: tuple[Candidate, ...]
    refused: tuple[tuple[str, str], ...]
    """(name of a rack, reason) for each other rack."""


def wish_of(stated: Needs, requested: Needs, dut: str, priority: int) -> JobWish:
    """Return the wish of a job from its scenario (`stated`) and the command line (`requested`), which takes precedence.

    A number of ports that follows from the scenario only is the most that are useful.
    """
    ports = requested.ports or (() if requested.port_count else stated.ports)
    port_count, count_key = (
        (requested.port_count, requested.count_key)
        if requested.port_count
        else (stated.port_count, stated.count_key)
    )
    link_bps, link_key = (
        (requested.least_link_bps, requested.link_key)
        if requested.least_link_bps
        else (stated.least_link_bps, stated.link_key)
    )
    backends, backend_key = (
        (requested.backends, requested.backend_key)
        if requested.backends
        else (stated.backends, stated.backend_key)
    )
    by_scenario = not requested.ports and not requested.port_count
    needs = Needs(
        ports=ports,
        among=() if ports else (stated.ports or stated.among),
        ports_key=requested.ports_key if requested.ports else stated.ports_key,
        least_ports=stated.least_ports if by_scenario else 1,
        port_count=0 if ports else port_count,
        count_key=count_key,
        least_link_bps=link_bps,
        link_key=link_key,
        backends=backends,
        backend_key=backend_key,
    )
    return JobWish(needs, by_scenario, dut, priority)


def choose(answers: Sequence[RackAnswer[RackView]], wish: JobWish) -> Choice:
    """Order the racks for a job: first those with a port for each host, then by wait; equal ones as in `answers`."""
    refused: list[tuple[str, str]] = []
    candidates: list[Candidate] = []
    all_jobs = [job for answer in answers if answer.value is not None for job in answer.value.jobs]
    usual_ns = _usual_ns(all_jobs) or _UNKNOWN_NS
    for answer in answers:
        reason = answer.trouble if answer.value is None else _misfit(answer.value, wish)
        if answer.value is None or reason:
            refused.append((answer.place.name, reason))
        else:
            candidates.append(_candidate(answer.place, answer.value, wish, usual_ns))
    order = sorted(candidates, key=lambda candidate: (candidate.shared, candidate.wait_ns))
    return Choice(tuple(order), tuple(refused))


def _misfit(view: RackView, wish: JobWish) -> str:
    """Return why a rack cannot take the job now; "" if it can."""
    if view.controller.state is not RackStatus.READY:
        return f"its controller is {view.controller.state}"
    if view.controller.paused:
        return f"its queue is paused: {printable(view.controller.paused)}"
    dut = view.inventory.dut
    if wish.dut and wish.dut != dut:
        return f"its device under test is {printable(dut) or 'not named'}; needs {wish.dut}"
    return _ports_misfit(view, wish)


def _ports_misfit(view: RackView, wish: JobWish) -> str:
    needs = wish.needs
    labels = {port.label for port in view.inventory.ports}
    if unknown := [label for label in (*needs.ports, *needs.among) if label not in labels]:
        return f"it has no port {unknown[0]}{_by(needs.ports_key)}"
    named_ports = [port for port in view.inventory.ports if port.label in needs.ports]
    for port in named_ports:
        if port.link_bps < needs.least_link_bps:
            speed = format_rate(needs.least_link_bps)
            return f"port {port.label} has {format_rate(port.link_bps)}; needs {speed}{_by(needs.link_key)}"
        if needs.backends and port.backend not in needs.backends:
            kinds = " or ".join(needs.backends)
            return f"port {port.label} has backend {port.backend or 'unknown'}; needs {kinds}{_by(needs.backend_key)}"
    fitting_ports = _fitting(view, needs)
    usable = _usable(view, fitting_ports)
    in_service = {port.label for port in usable}
    if missing := [label for label in needs.among if label not in in_service]:
        return (
            f"port {missing[0]}{_by(needs.ports_key)} does not fit, is out of service, or its agent is absent"
        )
    wanted_count = _least_count(wish, len(fitting_ports))
    if len(usable) >= wanted_count:
        return ""
    speed = (
        f" of at least {format_rate(needs.least_link_bps)}{_by(needs.link_key)}"
        if needs.least_link_bps
        else ""
    )
    backend = f" of backend {' or '.join(needs.backends)}{_by(needs.backend_key)}" if needs.backends else ""
    other_ports = len(view.inventory.ports) - len(fitting_ports)
    surplus = f"; {other_ports} other ports do not match" if other_ports and not named_ports else ""
    return (
        f"needs {wanted_count} ports{speed}{backend}; {len(usable)} are in service with their agents{surplus}"
    )


def _by(key: str) -> str:
    return f" ({key})" if key else ""


def _least_count(wish: JobWish, fitting: int) -> int:
    """Return the least number of ports with which the job can start."""
    needs = wish.needs
    if needs.ports:
        return len(needs.ports)
    if wish.shares:
        return max(needs.least_ports, 1) if needs.port_count else max(needs.least_ports, fitting)
    return max(needs.port_count or fitting, 1)


def _fitting(view: RackView, needs: Needs) -> list[PortStatus]:
    """Return the ports that the job might be given, in the rack's order."""
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
    usable_ports = _usable(view, _fitting(view, needs))
    wanted_count = len(needs.ports) or min(needs.port_count or len(usable_ports), len(usable_ports))
    shared = wanted_count < needs.port_count
    free_ports = [port for port in usable_ports if not port.job_id]
    waiting = sum(job.state is JobState.QUEUED and job.priority >= wish.priority for job in view.jobs)
    holders = (
        len({port.job_id for port in usable_ports if port.job_id}) if len(free_ports) < wanted_count else 0
    )
    jobs_before = waiting + holders
    each_ns = _usual_ns(view.jobs) or usual_ns
    why = f"{len(free_ports)} of its ports are free and no job waits"
    if jobs_before:
        wait_text = approximate_duration(jobs_before * each_ns)
        why = f"{holders} jobs hold its ports and {waiting} are ahead in the queue, about {wait_text}"
    if shared:
        why += f"; {needs.port_count} hosts share its {wanted_count} ports"
    # The rack selects ports by speed but not by backend: if it has other backends too, request ports by name.
    has_other_backends = bool(needs.backends) and any(
        port.link_bps >= needs.least_link_bps and port.backend not in needs.backends
        for port in view.inventory.ports
    )
    must_name_ports = has_other_backends or (bool(needs.among) and bool(needs.port_count))
    port_names = needs.ports or (
        _choose_ports(usable_ports, wanted_count, needs.among) if must_name_ports else ()
    )
    port_count = 0 if port_names or not needs.port_count else wanted_count
    return Candidate(
        place, jobs_before, jobs_before * each_ns if jobs_before else 0, why, port_names, port_count, shared
    )


def _choose_ports(usable: Sequence[PortStatus], wanted: int, among: Sequence[str]) -> tuple[str, ...]:
    """Return the first `wanted` fitting ports, including all of `among`, in the rack's order.

    The order is fixed so that the same job always requests the same ports.
    """
    required = [port.label for port in usable if port.label in among]
    optional = [port.label for port in usable if port.label not in among]
    chosen = {*required, *optional[: max(wanted - len(required), 0)]}
    return tuple(port.label for port in usable if port.label in chosen)


def _usual_ns(jobs: Sequence[JobStatus]) -> int:
    """Return the median duration of the most recently ended jobs; 0 if none has ended."""
    lengths = [duration_ns(job.started_at, job.ended_at) for job in jobs if job.state in ENDED]
    positive_lengths = [length for length in lengths if length > 0][:_SAMPLE]
    return int(median(positive_lengths)) if positive_lengths else 0

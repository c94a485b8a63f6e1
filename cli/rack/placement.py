"""`etloop submit --any`: submits a job to the rack of `racks.yaml` that can take it and lets it wait least. A shell: the
terminal.

One job stays one job. A key that may have been used is looked up in every rack first, and a rack to which a submission was sent
is asked again before any other; if the result of either is unknown, the job is not submitted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.rack.named_rack import chosen_places
from etloop.contract.base.errors import ConfigError, Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.controller.rack.client.client import RackClient, RackUnreachable, RequestRefused
from etloop.controller.rack.mqtt.messages import MOST_LISTED, JobStatus
from etloop.controller.racks.choice import Candidate, JobWish, choose, wish_of
from etloop.controller.racks.needs import Needs
from etloop.controller.racks.racks_file import RackPlace
from etloop.controller.racks.survey import ask_racks, view_with
from etloop.runtime.text_file import read_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from etloop.controller.inputs.scenario.congestion import Plugin

_DEADLINE_S: Final = 10.0
_RANK_FILE: Final = re.compile(r"\.\d+\.et(\.gz|\.zst)?$")


@dataclass(frozen=True, slots=True)
class PortRequest:
    """The ports to request from one rack."""

    ports: tuple[str, ...]
    port_count: int
    least_link_bps: int


@dataclass(slots=True)
class Placing:
    """A job on its way to one of several racks; kept from one attempt to the next."""

    key_is_new: bool
    """Whether the key is new, so that no job with it can have been submitted."""
    token_file: Path | None = None
    """Token file from the command line, for every rack; a rack's own is never sent to another."""
    sent_to: RackPlace | None = None
    """The rack that has the job, or may have it."""
    ports: PortRequest | None = None
    """Ports requested from that rack."""
    why: str = ""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Racks that do not take it, and the reasons."""


def job_wish(parsed: argparse.Namespace, ports: Sequence[str]) -> JobWish:
    """Return what a command line and its scenario require of a rack, and print the requirements.

    Raise `ConfigError` for an invalid scenario.
    """
    option_needs = Needs(
        ports=tuple(ports),
        ports_key="--ports",
        port_count=parsed.port_count,
        count_key="--port-count",
        least_link_bps=parsed.least_link,
        link_key="--least-link",
        backends=(parsed.backend,) if parsed.backend else (),
        backend_key="--backend",
    )
    wish = wish_of(_scenario_needs(parsed.scenario), option_needs, parsed.dut, parsed.priority)
    if needs_text := "; ".join(map(str, wish.needs.requirements())):
        sys.stderr.write(printable(f"requires {needs_text}") + "\n")
    return wish


class _HasPlugin(Exception):
    """A scenario has a congestion control of its own, whose keys are known only to its compiled form."""


def _scenario_needs(path: Path) -> Needs:
    # Imported here, because few jobs use --any, and a client starts faster without the scenario reader.
    from etloop.controller.inputs.scenario.scenario import parse_scenario
    from etloop.controller.racks.scenario_needs import needs_of

    def refuse_code(_: Path) -> Plugin:
        raise _HasPlugin

    try:
        scenario = parse_scenario(read_text(path).encode(), str(path), path.parent, refuse_code)
    except _HasPlugin:
        sys.stderr.write(
            f"{path} has a congestion control plugin: its requirements is not evaluated; state it by options\n"
        )
        return Needs()
    return needs_of(scenario, _ranks_of_trace)


def _ranks_of_trace(trace: Path) -> int:
    """Return the number of ranks of a local trace by its file names; 0 if it lies elsewhere or the names do not give it."""
    # Imported here, because few jobs use --any.
    from etloop.workload.readers.files import files_of_trace

    try:
        trace_files = files_of_trace(trace, group_file_too=False)
    except (TraceError, OSError):
        return 0
    names = [name for files in trace_files for name in files.names]
    return len(names) if all(_RANK_FILE.search(name) for name in names) else 0


async def place_job(
    parsed: argparse.Namespace,
    wish: JobWish,
    placing: Placing,
    submit: Callable[[RackPlace, PortRequest], Awaitable[JobStatus]],
) -> tuple[RackPlace, JobStatus]:
    """Submit a job to the best rack; return the rack and the job.

    Raise `ConfigError` with the reason of every rack if none takes it, `RackUnreachable` if it is unknown whether one has taken
    it.
    """
    places = chosen_places(parsed, ())
    if placing.sent_to is None and not placing.key_is_new:
        placing.sent_to = await _holder(places, parsed.key)
        placing.why = f"it has a job with key {printable(parsed.key)}" if placing.sent_to else ""
    if placing.sent_to is not None:
        if placing.ports is None:
            placing.ports = await _ports_at(placing.sent_to, wish)
        job = await submit(placing.sent_to, placing.ports)
        _report(placing, placing.sent_to.name)
        return placing.sent_to, job
    choice = choose(await ask_racks(places, view_with(MOST_LISTED), _DEADLINE_S, _DEADLINE_S), wish)
    placing.refused = list(choice.refused)
    for rank, candidate in enumerate(choice.candidates):
        placing.sent_to, placing.why = candidate.place, candidate.why
        placing.ports = _request(candidate, wish)
        try:
            job = await submit(candidate.place, placing.ports)
        except (RequestRefused, ConfigError) as error:
            # The rack refused it, so it has no such job.
            placing.sent_to = placing.ports = None
            placing.refused.append((candidate.place.name, " ".join(str(error).split())))
            continue
        placing.refused += [
            (later_candidate.place.name, _later_reason(later_candidate))
            for later_candidate in choice.candidates[rank + 1 :]
        ]
        _report(placing, candidate.place.name)
        return candidate.place, job
    remedy = "require less, or see etloop racks status"
    raise ConfigError(
        *(Problem(f"rack {name}", f"not taken: {reason}", remedy) for name, reason in placing.refused)
    )


def _request(candidate: Candidate, wish: JobWish) -> PortRequest:
    link_bps = 0 if candidate.ports else wish.needs.least_link_bps
    return PortRequest(candidate.ports, candidate.port_count, link_bps)


async def _ports_at(place: RackPlace, wish: JobWish) -> PortRequest:
    """Return the ports to request from a rack that already has a job of the key.

    A new submission would request the same ports now, so that it counts as the same job.
    """
    choice = choose(await ask_racks((place,), view_with(MOST_LISTED), _DEADLINE_S, _DEADLINE_S), wish)
    needs = wish.needs
    if choice.candidates:
        return _request(choice.candidates[0], wish)
    return PortRequest(needs.ports, needs.port_count, 0 if needs.ports else needs.least_link_bps)


def _later_reason(candidate: Candidate) -> str:
    return candidate.why if candidate.jobs_before else f"it comes later in the file; {candidate.why}"


def _report(placing: Placing, name: str) -> None:
    sys.stderr.write(printable(f"rack {name}: {placing.why}") + "\n")
    for rack_name, reason in placing.refused:
        sys.stderr.write(printable(f"not {rack_name}: {reason}") + "\n")


async def _holder(places: Sequence[RackPlace], key: str) -> RackPlace | None:
    """Return the rack that has a job of that key. Raise `RackUnreachable` if one does not answer and no other has it."""
    answers = await ask_racks(places, lambda client: _jobs_of_key(client, key), _DEADLINE_S, _DEADLINE_S)
    for answer in answers:
        if answer.value:
            return answer.place
    if unanswered := [answer for answer in answers if answer.value is None]:
        names = ", ".join(answer.place.name for answer in unanswered)
        reason = f"unknown whether {names} has a job with key {printable(key)}: {unanswered[0].trouble}"
        raise RackUnreachable(f"{reason}; submit again when it answers, or name a rack with --rack")
    return None


async def _jobs_of_key(client: RackClient, key: str) -> tuple[JobStatus, ...]:
    job = await client.job_of_key(key)
    return () if job is None else (job,)

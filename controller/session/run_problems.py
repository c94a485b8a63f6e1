"""What was not ready, went away or failed, as problems a user can act on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from etloop.contract.base.clock import seconds_text
from etloop.contract.base.errors import Problem, ProtocolError
from etloop.contract.protocol.form_digest import MESSAGES, messages_digest
from etloop.contract.protocol.machine import RunState
from etloop.contract.protocol.messages import Faulted, Hello, LoadFailed, Probed, Progress, Started
from etloop.controller.session.settings import SessionSettings

_NAMED_AGENTS: Final = 8
_NAMED_PAIRS: Final = 4
"""Pairs of ranks of an agent that are named for one and the same problem."""
_UNDONE: Final = {
    RunState.ASSIGN: "did not load its assignment",
    RunState.PAIR: "did not join its queue pairs with those of network cards",
    RunState.CONNECT: "did not end its probes",
    RunState.ARM: "did not get ready to start",
}


def breach(name: str, error: ProtocolError) -> Problem:
    """An agent that says what the protocol does not allow."""
    remedy = "run the same etloop on controller and agents"
    return Problem(f"agent '{name}'", f"broke the protocol: {error}", remedy)


def absent(name: str, settings: SessionSettings) -> Problem:
    """An agent of the rig that nobody started, or that cannot reach the controller."""
    address = settings.bind.replace("//*:", "//CONTROLLER_HOST:")
    start = f"start it on its host: etloop-agent run --controller {address} --name {name}"
    lab = (
        f"bring the lab up with its agents: etloop lab up TOPOLOGY --agents --name {settings.lab}; or "
        if settings.lab
        else ""
    )
    return Problem(
        f"agent '{name}'",
        f"did not join at {settings.bind} within {seconds_text(settings.gather_timeout_ns)}",
        f"{lab}{start}",
    )


def named(names: tuple[str, ...]) -> str:
    """Agents for a sentence; of many the first ones."""
    quoted = ", ".join(f"'{name}'" for name in names[:_NAMED_AGENTS])
    more = f" and {len(names) - _NAMED_AGENTS} more" if len(names) > _NAMED_AGENTS else ""
    return f"agent {quoted}" if len(names) == 1 else f"agents {quoted}{more}"


def gone(hello: Hello, why: str, state: RunState, progress: Progress | None) -> Problem:
    """An agent that was there and is no more."""
    done = f" after {progress.ops_done} of {progress.ops_total} operations" if progress is not None else ""
    remedy = _other_build(hello) or "see whether its process and its host are alive, and its log"
    return Problem(f"agent '{hello.name}'", f"{why}, in {state.name}{done}", remedy)


def _other_build(hello: Hello) -> str:
    """What to do about an agent whose messages have another form than ours, within one version of the protocol."""
    theirs, ours = hello.versions.get(MESSAGES, "unknown"), messages_digest()
    if theirs == ours:
        return ""
    what = f"its etloop {hello.versions.get('etloop', 'unknown')} is of another build than the controller's"
    return f"{what} (messages {theirs}, here {ours}): install the same on both"


def overdue_start(name: str, started: Started) -> Problem:
    """An agent whose ranks would have begun late, which would look like a slow network."""
    what = f"got the start order {-started.margin_ns} ns after the start"
    return Problem(f"agent '{name}'", what, "look for load on its host or delay on the control network")


def failed_engine(name: str, faulted: Faulted, overdue: Iterable[tuple[str, int]]) -> Problem:
    """An engine that gave up; agents that have gone quiet (name, nanoseconds) may be why."""
    suspects = "".join(
        f"; agent '{other}' has not been heard for {seconds_text(silent_ns)}"
        for other, silent_ns in overdue
        if other != name
    )
    remedy = "see the flows and ports of the run for what was lost on the way"
    return Problem(f"agent '{name}'", f"{faulted.reason}{suspects}", remedy)


def unloadable(hello: Hello, failed: LoadFailed) -> tuple[Problem, ...]:
    """Everything that kept an agent from opening its engine."""
    unspecified = Problem("engine", "could not be opened", "see the agent's log")
    other = _other_build(hello)
    return tuple(
        replace(
            each,
            where=f"agent '{hello.name}': {each.where}",
            remedy=f"{each.remedy}; {other}" if other else each.remedy,
        )
        for each in failed.problems or (unspecified,)
    )


def stalled(quiet: str, chain: str) -> Problem:
    """Nothing moves; `chain` says what waits for what."""
    return Problem("run", f"{quiet}:\n{chain}", "look at the last link or rank named")


def late(names: Iterable[str], what: str) -> tuple[Problem, ...]:
    """Agents that are there and do not answer."""
    remedy = "see its log; its host may be overloaded"
    return tuple(Problem(f"agent '{name}'", f"{what} in time", remedy) for name in sorted(names))


def out_of_time(state: RunState, pending: Iterable[str]) -> tuple[Problem, ...]:
    """A phase of the preparation that took too long, for the agents whose answer is missing or, without any, for the clocks."""
    clocks = Problem("clocks", "pings stay unanswered", "look for load on the control network")
    return late(pending, _UNDONE[state]) or (clocks,)


def unreachable(name: str, probed: Probed) -> tuple[Problem, ...]:
    """Connections of one agent that did not get through the device under test."""
    # Every channel and queue pair of two ranks fails alike: once is enough, with how many.
    alike = Counter(
        (
            f"rank {failure.src_rank} ({failure.src_address}) -> rank {failure.dst_rank} ({failure.dst_address})",
            failure.problem,
        )
        for failure in probed.failures
    )
    remedy = "check link, addresses, path MTU and traffic class between the two ports"
    problems = []
    pairs_of: Counter[str] = Counter()
    more: Counter[str] = Counter()
    for (where, what), count in alike.items():
        pairs_of[what] += 1
        if pairs_of[what] <= _NAMED_PAIRS:
            problems.append(Problem(where, what if count == 1 else f"{what} ({count} queue pairs)", remedy))
        else:
            more[what] += count
    for what, count in more.items():
        pairs = pairs_of[what] - _NAMED_PAIRS
        text = f"{pairs} more pair{'s' if pairs > 1 else ''} of ranks: {what} ({count} queue pairs)"
        problems.append(Problem(f"agent '{name}'", text, "fix those named first"))
    unnamed = probed.failed - len(probed.failures)
    if unnamed > 0:
        what = f"{unnamed} more queue pairs failed their probe"
        problems.append(Problem(f"agent '{name}'", what, "fix those named first"))
    return tuple(problems)

"""Problems of a run's agents, connections and phases, worded so that a user can act on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
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
"""Rank pairs of an agent that are named for one problem."""
_AGENT: Final = re.compile(r"agent '(?P<name>[^']+)'(?P<rest>.*)", re.DOTALL)
_UNDONE: Final = {
    RunState.ASSIGN: "did not load its assignment",
    RunState.PAIR: "did not join its queue pairs with those of network cards",
    RunState.CONNECT: "did not finish its probes",
    RunState.ARM: "did not get ready to start",
}


def breach(name: str, error: ProtocolError) -> Problem:
    """Return the problem of an agent that violated the protocol."""
    remedy = "run the same etloop on controller and agents"
    return Problem(f"agent '{name}'", f"violated the protocol: {error}", remedy)


def absent(name: str, settings: SessionSettings) -> Problem:
    """Return the problem of an agent of the rig that is not running or cannot reach the controller."""
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


def agent_names(names: tuple[str, ...]) -> str:
    """Return agents' names for a sentence: the first eight, and how many more."""
    quoted = ", ".join(f"'{name}'" for name in names[:_NAMED_AGENTS])
    more_text = f" and {len(names) - _NAMED_AGENTS} more" if len(names) > _NAMED_AGENTS else ""
    return f"agent {quoted}" if len(names) == 1 else f"agents {quoted}{more_text}"


def agent_loss(hello: Hello, why: str, state: RunState, progress: Progress | None) -> Problem:
    """Return the problem of an agent that was lost during a run."""
    progress_text = (
        f" after {progress.ops_done} of {progress.ops_total} operations" if progress is not None else ""
    )
    remedy = _other_build(hello) or "check its process, its host and its log"
    return Problem(f"agent '{hello.name}'", f"{why}, in {state.name}{progress_text}", remedy)


def _other_build(hello: Hello) -> str:
    """Return what to do about an agent with another message form than this controller's, within one protocol version.

    "" if the forms are the same.
    """
    agent_digest, own_digest = hello.versions.get(MESSAGES, "unknown"), messages_digest()
    if agent_digest == own_digest:
        return ""
    mismatch = (
        f"its etloop {hello.versions.get('etloop', 'unknown')} is of another build than the controller's"
    )
    return f"{mismatch} (messages {agent_digest}, here {own_digest}): install the same on both"


def overdue_start(name: str, started: Started) -> Problem:
    """Return the problem of an agent whose ranks would have begun late, which would look like a slow network."""
    problem = f"got the start order {-started.margin_ns} ns after the start"
    return Problem(f"agent '{name}'", problem, "check for load on its host or delay on the control network")


def failed_engine(name: str, faulted: Faulted, silences: Sequence[tuple[str, str]], agents: int) -> Problem:
    """Return the problem of an engine that gave up.

    `silences`: agents (name, silence in words) that are silent, or were shortly before. An engine gives up on peers that
    do not answer: if only some of the `agents` are silent, they are the cause. If all are, it is the control network.
    """
    if len(silences) == agents > 1:
        failure = f"{faulted.reason}; no agent was heard shortly before, so the control network failed too"
        return Problem(f"agent '{name}'", failure, "check the network of the controller and of the agents")
    if silences:
        return _silent(silences, f"the engine of agent '{name}' failed: {faulted.reason}")
    remedy = "see the flows and ports of the run for lost packets"
    return Problem(f"agent '{name}'", faulted.reason, remedy)


def _silent(silences: Sequence[tuple[str, str]], effect: str) -> Problem:
    names = tuple(silent for silent, _ in silences)
    suspects = "; ".join(text if len(names) == 1 else f"'{silent}' {text}" for silent, text in silences)
    return Problem(agent_names(names), f"{suspects}; {effect}", "check its process, its host and its links")


def explain_probes(
    problems: Sequence[Problem], silences: Sequence[tuple[str, str]], agents: int
) -> tuple[Problem, ...]:
    """Return the problems of probes without a reply, after that of the agents that were silent meanwhile, if only some were.

    `silences` as in `failed_engine`: a process that does not run answers no probe, and its network is not the cause.
    """
    if not silences or len(silences) == agents:
        return tuple(problems)
    return (_silent(silences, "probes had no reply"), *problems)


def silent_link(why: str, state: RunState) -> Problem:
    """Return the problem that all agents have fallen silent together."""
    problem = f"all agents have fallen silent together: {why}, in {state.name}"
    return Problem("the controller", problem, "check its host and its link to the control network")


def unloadable(hello: Hello, failed: LoadFailed) -> tuple[Problem, ...]:
    """Return everything that kept an agent from opening its engine."""
    unspecified = Problem("engine", "could not be opened", "see the agent's log")
    build_remedy = _other_build(hello)
    return tuple(
        replace(
            problem,
            where=f"agent '{hello.name}': {problem.where}",
            remedy=f"{problem.remedy}; {build_remedy}" if build_remedy else problem.remedy,
        )
        for problem in failed.problems or (unspecified,)
    )


def merge(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems with those of several agents that are otherwise equal as one, which names the agents."""
    agents: dict[Problem, list[str]] = {}
    for problem in problems:
        match = _AGENT.fullmatch(problem.where)
        key = problem if match is None else replace(problem, where=match["rest"])
        agents.setdefault(key, []).extend([match["name"]] if match is not None else [])
    return tuple(
        replace(problem, where=f"{agent_names(tuple(dict.fromkeys(names)))}{problem.where}")
        if names
        else problem
        for problem, names in agents.items()
    )


def stall_problem(quiet: str, chain: str) -> Problem:
    """Return the problem of a run without progress; `chain` is the wait-for chain as text."""
    return Problem("run", f"{quiet}:\n{chain}", "check the last link or rank in this list")


def late_answers(names: Iterable[str], missing: str) -> tuple[Problem, ...]:
    """Return the problems of agents that are connected but did not answer; `missing` is the answer in words."""
    remedy = "see its log; its host may be overloaded"
    return tuple(Problem(f"agent '{name}'", f"{missing} in time", remedy) for name in sorted(names))


def out_of_time(state: RunState, pending: Iterable[str]) -> tuple[Problem, ...]:
    """Return the problems of a preparation phase that took too long.

    One for each agent whose answer is missing; if there is none, one about the clocks.
    """
    clocks = Problem("clocks", "pings are not answered", "check for load on the control network")
    return late_answers(pending, _UNDONE[state]) or (clocks,)


def unreachable(name: str, probed: Probed) -> tuple[Problem, ...]:
    """Return the connections of one agent whose probes did not get through the device under test."""
    # All channels and queue pairs of two ranks usually fail alike: name the pair once, with the count.
    queue_pairs_of = Counter(
        (
            f"rank {failure.src_rank} ({failure.src_address}) -> rank {failure.dst_rank} ({failure.dst_address})",
            failure.problem,
        )
        for failure in probed.failures
    )
    remedy = "check link, addresses, path MTU and traffic class between the two ports"
    problems = []
    pairs_of: Counter[str] = Counter()
    unnamed_queue_pairs: Counter[str] = Counter()
    for (pair, problem), count in queue_pairs_of.items():
        pairs_of[problem] += 1
        if pairs_of[problem] <= _NAMED_PAIRS:
            problems.append(
                Problem(pair, problem if count == 1 else f"{problem} ({count} queue pairs)", remedy)
            )
        else:
            unnamed_queue_pairs[problem] += count
    for problem, count in unnamed_queue_pairs.items():
        pairs = pairs_of[problem] - _NAMED_PAIRS
        text = f"{pairs} more pair{'s' if pairs > 1 else ''} of ranks: {problem} ({count} queue pairs)"
        problems.append(Problem(f"agent '{name}'", text, "fix the listed ones first"))
    unreported = probed.failed - len(probed.failures)
    if unreported > 0:
        problem = f"{unreported} more queue pairs failed their probe"
        problems.append(Problem(f"agent '{name}'", problem, "fix the listed ones first"))
    return tuple(problems)

"""What was not ready when a run was prepared, as problems a user can act on."""

from __future__ import annotations

from collections.abc import Iterable

from contract.clock import seconds_text
from contract.errors import Problem
from contract.messages import Probed
from controller.session_settings import SessionSettings


def absent(name: str, settings: SessionSettings) -> Problem:
    """An agent of the rig that nobody started, or that cannot reach the controller."""
    return Problem(
        f"agent '{name}'",
        f"did not join at {settings.bind} within {seconds_text(settings.gather_timeout_ns)}",
        f"start it on its host: etloop-agent run --controller {settings.bind} --name {name}",
    )


def late(names: Iterable[str], what: str) -> tuple[Problem, ...]:
    """Agents that are there and do not answer."""
    remedy = "see its log; its host may be overloaded"
    return tuple(Problem(f"agent '{name}'", f"{what} in time", remedy) for name in sorted(names))


def unreachable(name: str, probed: Probed) -> tuple[Problem, ...]:
    """Connections of one agent that did not get through the device under test."""
    problems = [
        Problem(
            f"rank {failure.src_rank} ({failure.src_address}) -> rank {failure.dst_rank} ({failure.dst_address})",
            failure.problem,
            "check link, addresses, path MTU and traffic class between the two ports",
        )
        for failure in probed.failures
    ]
    unnamed = probed.failed - len(probed.failures)
    if unnamed > 0:
        what = f"{unnamed} more queue pairs failed their probe"
        problems.append(Problem(f"agent '{name}'", what, "mend those named first"))
    return tuple(problems)

"""The runs of `etloop bisect` on a rack, whose ports stay reserved between them. A shell: a client of the rack API."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, EtloopError, Problem
from etloop.controller.rack.client.blocking import BlockingRack
from etloop.controller.rack.client.web import RackWeb
from etloop.controller.rack.users.reservations import time_text
from etloop.runtime.clock import monotonic_ns, wall_ns
from etloop.runtime.text_file import read_text

if TYPE_CHECKING:
    from etloop.runtime.broker_settings import BrokerSettings

_LOOK_S: Final = 2.0


class NoResults(EtloopError):
    """A job of the rack left no results."""


@dataclass(frozen=True, slots=True)
class RackRunner:
    """Runs as jobs of a rack. See `experiments.bisect.run.Runner`."""

    rack: BlockingRack
    web: RackWeb
    scenario: Path
    ports: tuple[str, ...]

    def run(self, run_dir: Path, _: int) -> None:
        """Submit a job, wait for it and fetch its run directory. Raise `NoResults`, or as `BlockingRack.run`."""
        labels = {"bisect": run_dir.parent.name}
        result = self.rack.run(
            read_text(self.scenario), ports=self.ports, labels=labels, scenario_name=self.scenario.name
        )
        if not result.results_url:
            reason = result.reason or "the rack has no HTTP server to fetch them from"
            raise NoResults(f"job {result.job_id} left no results: {reason}")
        fetched = self.web.fetch(result.job_id, result.results_url, result.log_url, run_dir.parent)
        assert fetched.run_directory is not None
        fetched.run_directory.rename(run_dir)


@contextmanager
def reserved_rack(
    settings: BrokerSettings, rack_name: str, ports: Sequence[str], duration_ns: int, wait_ns: int
) -> Iterator[BlockingRack]:
    """Connect to a rack and reserve the ports for the account until the block ends; wait for jobs that still hold them.

    Raise `ConfigError` without an account or if jobs hold the ports longer than `wait_ns`, `RequestRefused` if the ports are
    reserved for others.
    """
    if not settings.username:
        remedy = "add --username and --password-file: ports are reserved for the jobs of an account"
        raise ConfigError(Problem("etloop bisect", "needs an account of the broker", remedy))
    with BlockingRack(settings, rack_name) as rack:
        ends_at = time_text(wall_ns() + duration_ns)
        reservation = rack.reserve(ports, ends_at, user=settings.username, reason="etloop bisect")
        try:
            _await_free_ports(rack, ports, wait_ns)
            yield rack
        finally:
            rack.unreserve(reservation.reservation_id, reason="etloop bisect ended")


def _await_free_ports(rack: BlockingRack, ports: Sequence[str], wait_ns: int) -> None:
    """Wait until no job holds one of the ports: an install command would disturb it."""
    deadline_ns = monotonic_ns() + wait_ns
    named = False
    while held := [port for port in rack.inventory().ports if port.label in ports and port.job_id]:
        if monotonic_ns() >= deadline_ns:
            problem = f"is held by job {held[0].job_id} after {wait_ns // NS_PER_S} s"
            raise ConfigError(Problem(held[0].label, problem, "wait for the job, or cancel it"))
        if not named:
            sys.stderr.write(f"waiting for job {held[0].job_id} on {held[0].label}\n")
            named = True
        time.sleep(_LOOK_S)

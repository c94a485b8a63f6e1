"""One run of an OTG test over the rig's agents: started, watched and stopped from outside, on the server's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.model.run import AgentRecords, RunEnd, RunOutcome
from etloop.contract.protocol.machine import RunState
from etloop.controller.inputs.rig import Rig
from etloop.controller.otg.collective_counts import StepCounts
from etloop.controller.otg.counts import RunCounts
from etloop.controller.otg.plan import RunPlan
from etloop.controller.otg.raw_counts import RawCounts
from etloop.controller.session.actions import RunProgress
from etloop.controller.session.router import open_router
from etloop.controller.session.service import Link, run
from etloop.controller.session.session import Session
from etloop.controller.session.settings import CurveServer, SessionSettings, check_exposure
from etloop.runtime.clock import monotonic_ns

_REPORT_S: Final = 0.1
GATHER_TIMEOUT_NS: Final = 20 * NS_PER_S
"""How long agents may take to join: a client waits for the answer meanwhile."""


class OtgRun:
    """A run in a task of its own; also the watcher of its session."""

    def __init__(
        self, plan: RunPlan, rig: Rig, report: Callable[[str], None], step: StepCounts | None = None
    ) -> None:
        """Begin the run. One of collectives is counted by `step`, others by `counts`."""
        raw = RawCounts(plan.raw_flows, plan.plan.port_names, plan.labels)
        raw.is_running = bool(plan.raw_flows)
        self.counts = RunCounts(plan.flows, plan.messages, plan.path_mtu_bytes, raw)
        self.report = report
        self._step = step
        self._plan = plan
        self._rig = rig
        self._stops: list[str] = []
        self._agents: tuple[AgentRecords, ...] = ()
        self._sends = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def wait_for_start(self) -> None:
        """Return once traffic flows. Raise the `RigError` of a run that could not begin."""
        waiting = asyncio.create_task(self._sends.wait())
        await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._sends.is_set():
            await self.wait_for_end()

    async def wait_for_end(self) -> RunOutcome:
        """Return the outcome once the run is over. Raise the `RigError` of a run that could not begin."""
        return await asyncio.shield(self._task)

    async def stop(self) -> RunOutcome:
        """Stop the run, if it goes on, and return its outcome."""
        if not self._task.done():
            self._stops.append("stopped by the OTG client")
        return await self.wait_for_end()

    async def _follow_frames(self, session: Session) -> None:
        """Count the frames of raw flows as agents report them, until cancelled."""
        while self.counts.raw.flows:
            self.counts.raw.take(session.frame_counts(), monotonic_ns())
            await asyncio.sleep(_REPORT_S)

    def captures(self) -> dict[str, bytes]:
        """Return the frames that captured ports received, as records of a pcap file by OTG port; empty before the end."""
        port_names = self._plan.plan.port_names
        by_label = {
            f"{agent.agent}/{port_names[agent.agent][port]}": records
            for agent in self._agents
            for port, records in agent.captured.items()
        }
        labels = self._plan.labels.items()
        return {port: by_label[label] for port, label in labels if label in by_label}

    async def _run(self) -> RunOutcome:
        plan = self._plan.plan
        try:
            outcome = await run(
                self._settings(),
                plan.assignments,
                plan.tables,
                self,
                companion=self._follow_frames,
                open_link=self._open_link,
            )
            self._agents = outcome.agents
            src_rank = plan.tables.connections.src_rank
            if self._step is not None:
                self._step.finish(outcome)
            else:
                self.counts.finish(outcome, plan.connection_rows, src_rank, plan.port_names)
        finally:
            self.counts.is_over = True
            self.counts.raw.is_running = False
        if outcome.state is RunEnd.ABORTED:
            self.report(f"run {outcome.run_id}: {outcome.reason}")
        return outcome

    @contextlib.asynccontextmanager
    async def _open_link(
        self, settings: SessionSettings, _: tuple[str, ...]
    ) -> AsyncIterator[tuple[Link, list[str]]]:
        """Listen at the rig's address. Signals stop the server, which stops the run."""
        check_exposure(settings)
        async with open_router(settings.bind, settings.curve) as link:
            yield link, self._stops

    def _settings(self) -> SessionSettings:
        rig, plan = self._rig, self._plan.plan
        return SessionSettings(
            run_id=plan.parts.run_id,
            bind=rig.bind,
            curve=CurveServer.of(rig.security),
            lab=rig.lab,
            insecure=rig.security.insecure,
            gather_timeout_ns=GATHER_TIMEOUT_NS,
            stall_timeout_ns=self._plan.stall_timeout_ns,
            standing_by=tuple(agent.name for agent in rig.agents if agent.name not in plan.assignments),
        )

    def progress(self, progress: RunProgress) -> None:
        """See `SessionWatcher`."""
        if progress.state in (RunState.RUN, RunState.COLLECT, RunState.DONE):
            self._sends.set()

    def take_records(self, records: NDArray[np.void]) -> None:
        """See `SessionWatcher`."""
        if self._step is not None:
            self._step.take(records)
        else:
            self.counts.take(records, monotonic_ns())

"""The runs of a job of collectives, one step after the other, on the server's event loop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from enum import Enum, auto

from etloop.contract.base.errors import InputError
from etloop.contract.model.run import RunEnd
from etloop.controller.inputs.rig import Rig
from etloop.controller.otg.collective_counts import StepCounts
from etloop.controller.otg.collective_model import CollectiveJob
from etloop.controller.otg.collective_plan import plan_step
from etloop.controller.otg.model import OtgTest
from etloop.controller.otg_server.runs import OtgRun
from etloop.controller.run.prepare import new_run_id


class JobState(Enum):
    """State of a job, as `collective_communications` has them."""

    UNRUN = auto()
    RUNNING = auto()
    SUCCESS = auto()
    MANUAL = auto()
    """Stopped by the client."""
    FAILURE = auto()


class CollectiveRuns:
    """The job of a configuration."""

    def __init__(self, job: CollectiveJob, test: OtgTest, rig: Rig, report: Callable[[str], None]) -> None:
        self.job = job
        self.state = JobState.UNRUN
        self.failure = ""
        """Why the job failed; empty if it did not."""
        self.counts: list[StepCounts] = []
        """Counts of the steps that have begun since the last start."""
        self._test = test
        self._rig = rig
        self._report = report
        self._run: OtgRun | None = None
        self._stops = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the first step. Raise the `InputError` of a step that could not begin."""
        assert self.state is not JobState.RUNNING, "the caller checks it"
        self.state, self.failure, self.counts, self._stops = JobState.RUNNING, "", [], False
        sends = asyncio.Event()
        self._task = asyncio.create_task(self._run_steps(sends))
        waiting = asyncio.create_task(sends.wait())
        await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not sends.is_set():
            await self._task

    async def stop(self) -> None:
        """Stop the step that goes on, if there is one, and begin no more."""
        self._stops = True
        if self._task is None or self.state is not JobState.RUNNING:
            return
        if self._run is not None:
            await self._run.stop()
        await asyncio.wait((self._task,))

    async def _run_steps(self, sends: asyncio.Event) -> None:
        """Run all steps. Raise the `InputError` of the first one alone; later ones end the job."""
        try:
            for step in self.job.steps:
                plan = await asyncio.to_thread(
                    plan_step,
                    self._test,
                    self.job,
                    step,
                    self._rig,
                    new_run_id(),
                    nonce=secrets.randbits(32),
                )
                if self._stops:
                    self.state = JobState.MANUAL
                    return
                self.counts.append(StepCounts(step))
                self._run = OtgRun(plan, self._rig, self._report, self.counts[-1])
                await self._run.wait_for_start()
                sends.set()
                outcome = await self._run.wait_for_end()
                if outcome.state is not RunEnd.DONE:
                    self.failure = outcome.reason if outcome.state is RunEnd.ABORTED else ""
                    self.state = JobState.FAILURE if self.failure else JobState.MANUAL
                    return
            self.state = JobState.SUCCESS
        except InputError as error:
            self.state, self.failure = JobState.FAILURE, str(error)
            if not sends.is_set():
                raise
        finally:
            if self.state is JobState.RUNNING:
                self.state, self.failure = JobState.FAILURE, "the run ended with an error of the server"
            self._run = None

"""The test that an OTG server holds: its configuration, its state and its last run. Requests change it one after the other."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from etloop.contract.base.errors import ConfigError, InputError, Problem, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.run import RunEnd
from etloop.controller.inputs.rig import Rig
from etloop.controller.otg.answers import Row, metrics_answer
from etloop.controller.otg.collective_counts import ccl_rows, slowest_link_bps, summary_rows
from etloop.controller.otg.collective_model import Proposal
from etloop.controller.otg.collective_plan import plan_step
from etloop.controller.otg.counts import idle_counts
from etloop.controller.otg.mapping import map_config
from etloop.controller.otg.model import OtgTest
from etloop.controller.otg.plan import (
    AS_CONFIGURED,
    MOST_MESSAGES,
    Carriage,
    check_runnable,
    connecting,
    flow_runs,
    plan_run,
)
from etloop.controller.otg.requests import ControlRequest, MetricsRequest, Order
from etloop.controller.otg.states import TestEvent, TestState, after
from etloop.controller.otg_server.collective_runs import CollectiveRuns, JobState
from etloop.controller.otg_server.runs import OtgRun
from etloop.controller.run.prepare import new_run_id
from etloop.runtime.clock import monotonic_ns

PACING_WARNING: Final = "pacing is done in software; rates are as exact as the agents' hosts allow"
RAW_WARNINGS: Final = (
    "raw flows carry a signature of 18 bytes behind their headers",
    "latency of raw flows is between system calls and the kernel's stamps, by the clocks of the hosts",
)
COLLECTIVE_WARNINGS: Final = (
    "collectives are experimental: their part of the API is a proposal that is not merged",
    "only HTTPS carries collectives; snappi has no messages for them",
)
ROCE_WARNINGS: Final = (
    "each flow has a queue pair of its own, whose numbers and first PSN ETLoop assigns",
    "receivers grant messages by 64-byte writes (clear to send), which the switch counts too",
    "latency of RoCEv2 frames is not measured",
)


PCAP_HEADER: Final = bytes.fromhex("d4c3b2a1 02000400 00000000 00000000 00000400 01000000")
"""Header of a pcap file: microseconds, little-endian, Ethernet, frames up to 256 KiB."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Permissions and limits that the operator of a server sets."""

    messages: int = 0
    """Messages of each flow from start on; 0: as many as the server can count."""
    carriage: Carriage = AS_CONFIGURED


class HeldTest:
    """The one test of a server."""

    def __init__(self, rig: Rig, options: ServeOptions, report: Callable[[str], None]) -> None:
        self.config: Any = {}
        """The last configuration that was accepted, as the client sent it."""
        self.state = TestState.EMPTY
        self._rig = rig
        self._options = options
        self._report = report
        self._test = OtgTest({}, {}, {}, (), {}, (), (), ())
        self._capturing: tuple[str, ...] = ()
        self._captured: dict[str, bytes] = {}
        """Records of a pcap file of the last run, by OTG port."""
        self._run: OtgRun | None = None
        self._collectives: CollectiveRuns | None = None
        self._counts = idle_counts(())
        self._turn = asyncio.Lock()

    async def configure(self, config: Any) -> tuple[str, ...]:
        """Replace the configuration and stop the traffic; return the warnings. Raise `ConfigError` and change nothing."""
        async with self._turn:
            test, warnings = await asyncio.to_thread(self._check, config)
            await self._stop_run()
            if self._collectives is not None:
                await self._collectives.stop()
            self.state = after(self.state, TestEvent.CONFIGURED)
            self.config, self._test = config, test
            self._counts = idle_counts(flow_runs(test), test.raw_flows)
            self._capturing, self._captured = (), {}
            job = test.collectives
            self._collectives = (
                CollectiveRuns(job, test, self._rig, self._report) if job is not None else None
            )
            return warnings

    def _check(self, config: Any) -> tuple[OtgTest, tuple[str, ...]]:
        test = map_config(config, self._rig.ports)
        replaced = check_runnable(test, self._rig, self._options.carriage)
        names = test.flow_names
        if test.collectives is not None:
            for step in test.collectives.steps:
                plan_step(test, test.collectives, step, self._rig, new_run_id(), nonce=1)
            replaced = (*COLLECTIVE_WARNINGS, *replaced)
        if not names:
            return test, (*replaced, *test.warnings)
        plan_run(test, self._rig, names, 1, new_run_id(), nonce=1)
        general = [PACING_WARNING]
        if test.raw_flows:
            general += RAW_WARNINGS
        if test.flows:
            ends = f"a stateful flow ends by itself after {self._messages(len(test.flows))} messages"
            general += [*ROCE_WARNINGS, ends]
        return test, (*general, *replaced, *test.warnings)

    def _messages(self, flows: int) -> int:
        """Return the messages of each of these flows. Raise `ConfigError` if they are too many to count."""
        most = MOST_MESSAGES // flows
        if self._options.messages > most:
            problem = f"{self._options.messages} messages of {flows} flows are more than {MOST_MESSAGES}"
            raise ConfigError(Problem("--messages", problem, f"start the server with at most {most}"))
        return self._options.messages or most

    async def control(self, request: ControlRequest) -> tuple[str, ...]:
        """Carry out an order and return its warnings.

        Raise `ConfigError` for an order that the test does not allow, and `RigError` if the rig cannot carry it out.
        """
        async with self._turn:
            match request.order:
                case Order.CONNECT:
                    return await self._connect()
                case Order.DISCONNECT:
                    warnings = await self._stop_run()
                    self.state = after(self.state, TestEvent.DISCONNECTED)
                    return warnings
                case Order.START:
                    return await self._start(request.flow_names)
                case Order.STOP:
                    return await self._stop(request.flow_names)
                case Order.START_JOB:
                    return await self._start_job(request.proposal)
                case Order.STOP_JOB:
                    await self._job(request.proposal).stop()
                    return ()
                case Order.CAPTURE:
                    return self._begin_capture(request.port_names)
                case Order.END_CAPTURE:
                    return self._end_capture(request.port_names)

    def _job(self, proposal: Proposal) -> CollectiveRuns:
        """Return the job of collectives. Raise `ConfigError` if the configuration has none in this proposal."""
        job = self._collectives
        if job is None or job.job.proposal is not proposal:
            problem = "the configuration does not have it"
            raise ConfigError(Problem(f"$.{proposal.value}", problem, "POST a configuration with it first"))
        return job

    async def _start_job(self, proposal: Proposal) -> tuple[str, ...]:
        job = self._job(proposal)
        self._refuse_second_run()
        await job.start()
        return ()

    def _refuse_second_run(self) -> None:
        """Raise `ConfigError` while flows or collectives are being sent."""
        job = self._collectives
        if self._is_running() or (job is not None and job.state is JobState.RUNNING):
            problem = "flows or collectives are being sent"
            raise ConfigError(Problem("the test", problem, "stop them all first"))

    def _begin_capture(self, names: tuple[str, ...]) -> tuple[str, ...]:
        ports = self._captured_ports(names)
        if self._is_running():
            remedy = "stop the traffic, or start captures before it"
            raise ConfigError(Problem("$.port.capture.state", "flows are being sent", remedy))
        self._capturing = tuple(port for port in self._test.captures if port in {*self._capturing, *ports})
        self._captured = {port: body for port, body in self._captured.items() if port not in ports}
        return ()

    def _end_capture(self, names: tuple[str, ...]) -> tuple[str, ...]:
        ports = self._captured_ports(names)
        self._capturing = tuple(port for port in self._capturing if port not in ports)
        return ("captures last until the traffic is stopped",) if self._is_running() else ()

    def _captured_ports(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the named ports of captures, all without names. Raise `ConfigError` for others."""
        unknown = [name for name in names if name not in self._test.captures]
        if unknown or not self._test.captures:
            problem = f'no capture has port "{unknown[0][:64]}"' if unknown else "there are no captures"
            remedy = "list the port in $.captures of the configuration"
            raise ConfigError(Problem("$.port.capture.port_names", problem, remedy))
        return names or self._test.captures

    async def capture(self, port: str) -> bytes:
        """Return the frames of the last run that a port received, as a pcap file. Raise `ConfigError` while flows are sent."""
        async with self._turn:
            run = self._run
            if run is not None and self._is_running():
                if not (run.counts.raw.flows and run.counts.raw.are_all_sent() and not run.counts.flows):
                    problem = "flows are being sent"
                    raise ConfigError(Problem("$.port_name", problem, "stop the traffic first"))
                await run.wait_for_end()
            self._check_frames()
            if run is not None:
                self._captured |= run.captures()
            if port not in self._captured:
                problem = f'"{port[:64]}" has no capture'
                remedy = "start a capture of it, then the traffic"
                raise ConfigError(Problem("$.port_name", problem, remedy))
            return PCAP_HEADER + self._captured[port]

    async def _connect(self) -> tuple[str, ...]:
        """Connect the queue pairs of all flows by a run of one message each."""
        if self.state is TestState.SENDING:
            return ()
        state = after(self.state, TestEvent.CONNECTED)
        names = tuple(flow.name for flow in self._test.flows)
        try:
            outcome = await (await self._begin(names, 1, connects=True)).wait_for_end() if names else None
        except InputError:
            self._forget_run()
            raise
        if outcome is not None and outcome.state is not RunEnd.DONE:
            self._forget_run()
            raise RigError(Problem("queue pairs", outcome.reason, "see the server's log"))
        self._run, self.state = None, state
        return ()

    def _forget_run(self) -> None:
        """Forget a run that could not begin."""
        self._run, self.state = None, after(self.state, TestEvent.FAILED)

    async def _start(self, names: tuple[str, ...]) -> tuple[str, ...]:
        state = after(self.state, TestEvent.STARTED)
        flow_names = self._select_flows(names)
        self._refuse_second_run()
        if not flow_names:
            return ("the configuration has no flows",)
        stateful = [flow for flow in self._test.flows if flow.name in flow_names]
        messages = self._messages(len(stateful)) if stateful else 1
        run = await self._begin(flow_names, messages, self._capturing)
        self._counts = run.counts
        try:
            await run.wait_for_start()
        except InputError:
            self._forget_run()
            raise
        self.state = state
        return ()

    async def _stop(self, names: tuple[str, ...]) -> tuple[str, ...]:
        state = after(self.state, TestEvent.STOPPED)
        running = {run.flow.name for run in self._counts.flows}
        running |= {flow.name for flow in self._counts.raw.flows}
        if self._is_running() and names and running - set(self._select_flows(names)):
            problem = "some of the flows that are being sent are not named"
            raise ConfigError(
                Problem("$.traffic.flow_transmit.flow_names", problem, "stop all flows together")
            )
        warnings = await self._stop_run()
        self.state = state
        return warnings

    def _select_flows(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the named flows, all without names. Raise `ConfigError` for others."""
        known = self._test.flow_names
        unknown = [name for name in names if name not in known]
        if unknown:
            problem = f'no flow is named "{unknown[0][:64]}"'
            raise ConfigError(
                Problem("$.traffic.flow_transmit.flow_names", problem, "write names of stateful flows")
            )
        return tuple(name for name in known if name in names) if names else known

    async def _begin(
        self,
        names: tuple[str, ...],
        messages: int,
        captured_ports: tuple[str, ...] = (),
        *,
        connects: bool = False,
    ) -> OtgRun:
        """Return a run of the named flows. One that connects probes with the marks of data, which shows whether they arrive.

        Raise `ConfigError` while another run goes on.
        """
        self._refuse_second_run()
        run_id, nonce = new_run_id(), secrets.randbits(32)
        plan = await asyncio.to_thread(
            plan_run,
            replace(self._test, captures=captured_ports),
            self._rig,
            names,
            messages,
            run_id,
            nonce=nonce,
            carriage=self._options.carriage,
        )
        self._run = OtgRun(connecting(plan) if connects else plan, self._rig, self._report)
        return self._run

    def _is_running(self) -> bool:
        """Return whether a run goes on. One that has ended by itself needs no stop."""
        return self._run is not None and not self._run.counts.is_over

    async def _stop_run(self) -> tuple[str, ...]:
        """Stop the run, if there is one, and return a warning if it did not end by itself."""
        run, self._run = self._run, None
        if run is None:
            return ()
        outcome = await run.stop()
        self._captured |= run.captures()
        notes = run.counts.raw.notes()
        match outcome.state:
            case RunEnd.STOPPED:
                return (
                    "flows were stopped with messages under way: their last frames may differ at both ends",
                    *notes,
                )
            case RunEnd.ABORTED:
                return (f"the run failed: {outcome.reason[:1000]}", *notes)
            case RunEnd.DONE:
                return notes

    def _check_frames(self) -> None:
        """Raise `RigError` if the last run was aborted with raw flows, whose missing frames would look like loss."""
        if self._counts.raw.flows and self._counts.failure:
            remedy = "see the server's log, and start the flows again"
            raise RigError(Problem("raw flows", self._counts.failure[:1000], remedy))

    def metrics(self, request: MetricsRequest) -> Row:
        """Return the answer to a metrics request. Raise `RigError` if raw flows failed, `ConfigError` without collectives."""
        if request.choice in tuple(Proposal):
            return self._collective_metrics(request)
        if request.choice in ("port", "flow"):
            self._check_frames()
        is_connected = self.state in (TestState.CONNECTED, TestState.SENDING)
        return metrics_answer(
            request,
            self._test,
            self._counts,
            is_connected=is_connected,
            now_ns=monotonic_ns(),
            capturing=self._capturing,
        )

    def _collective_metrics(self, request: MetricsRequest) -> Row:
        """Return the answer to a request for metrics of collectives, those of a failed run included."""
        job = self._job(Proposal(request.choice))
        link_bps = slowest_link_bps(
            job.job, {port: self._rig.ports[label].link_bps for port, label in self._test.ports.items()}
        )
        if job.job.proposal is Proposal.CCL:
            rows = ccl_rows(job.counts, link_bps, request.names, request.stages)
            return {"choice": "ccl_metrics", "ccl_metrics": rows}
        rows = summary_rows(job.counts, link_bps, request.names)
        single = {"choice": "summary", "summary": rows}
        answer = {"choice": "single_collective", "single_collective": single}
        return {"choice": request.choice, request.choice: answer}

    def collective_state(self) -> Row:
        """Return the state of `collective_communications`. Raise `ConfigError` if the configuration has none."""
        job = self._job(Proposal.COMMUNICATIONS)
        if job.state is JobState.RUNNING:
            execution: Row = {"choice": "started"}
        else:
            stopped: Row = {"choice": job.state.name.lower()}
            if job.state is JobState.FAILURE:
                stopped["failure"] = {"code": 500, "kind": "internal", "errors": [job.failure[:1000]]}
            execution = {"choice": "stopped", "stopped": stopped}
        return {"choice": "execution", "execution": execution}

    async def close(self) -> None:
        """Stop the traffic."""
        async with self._turn:
            await self._stop_run()
            if self._collectives is not None:
                await self._collectives.stop()

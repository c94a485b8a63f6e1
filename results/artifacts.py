"""From a run directory as read back to the files that judge it.

Decides which files there are and in which order they are made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.results.export.perfetto import perfetto_json
from etloop.results.html.report import report_html
from etloop.results.kpis.all import key_figures, results_of, vocabulary
from etloop.results.kpis.input import KpiInput
from etloop.results.kpis.job_frames import of_jobs
from etloop.results.schema.kpis import KPI_FILE
from etloop.results.schema.typed_json import to_json
from etloop.results.verdict.junit import junit_xml
from etloop.results.verdict.verdict import decide_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etloop.contract.model.run import PlanTables
    from etloop.results.schema.kpis import KpiBasis
    from etloop.results.schema.summary import Summary
    from etloop.results.schema.verdict import RequestedCheck
    from etloop.results.store.run_dir import Run
    from etloop.results.verdict.evaluation import Frame
    from etloop.results.verdict.verdict import EmulatorLimits

JUNIT_FILE: Final = "junit.xml"
REPORT_FILE: Final = "report.html"
PERFETTO_FILE: Final = "trace.perfetto.json"


def kpi_input(summary: Summary, plan: PlanTables, frames: Mapping[str, Frame], basis: KpiBasis) -> KpiInput:
    """A run with what the rig said of it."""
    speeds = {}
    for agent, port in zip(plan.rank_agent, plan.rank_port, strict=True):
        name = port if "/" in port else f"{agent}/{port}"
        if name in basis.port_bps:
            speeds[agent, port] = basis.port_bps[name]
    compute = None if basis.compute_ns is None else np.array(basis.compute_ns, np.int64)
    return KpiInput(summary, plan, of_jobs(frames, plan), speeds, compute, basis.mtu_bytes, frames["ops"])


def overload_of(summary: Summary) -> tuple[str, ...]:
    """In which respects a soft switch was itself the limit."""
    lost = summary.dut.counters.get("port_overload_frames", 0) if summary.dut is not None else 0
    if not lost:
        return ()
    return (f"the soft switch lost {lost} frames because its host could not keep up (overload_frames)",)


def verdict_files(
    run: Run,
    stored: tuple[PlanTables, Mapping[str, Frame]],
    basis: KpiBasis,
    checks: Sequence[RequestedCheck],
    limits: EmulatorLimits,
    device: str = "",
    unreadable: str = "",
    input_texts: tuple[str, str] = ("", ""),
    *,
    pages: bool = True,
    overload: tuple[str, ...] = (),
) -> tuple[Summary, dict[str, str]]:
    """The summary with its verdict, and the texts of the files beside it.

    `unreadable`: why the device's profile could not be read, which leaves the verdict open; `input_texts`: the scenario and
    the rig. Without `pages` only what programs read is made. `overload`: in which respects a soft switch was itself the limit.
    """
    plan, frames = stored
    degraded = tuple(dict.fromkeys((*run.summary.degraded, *overload)))
    given = kpi_input(replace(run.summary, degraded=degraded), plan, frames, basis)
    kpis = key_figures(given, basis)
    verdict = None
    if checks or unreadable:
        overloads = (*overload, *overload_of(run.summary))
        results = results_of(given, kpis)
        verdict = decide_verdict(
            checks, results, vocabulary(), given.summary, limits, device, unreadable, overloads
        )
    summary = replace(given.summary, verdict=verdict)
    texts = {KPI_FILE: to_json(kpis), JUNIT_FILE: junit_xml(summary, verdict)}
    if not pages:
        return summary, texts
    return summary, texts | {
        PERFETTO_FILE: perfetto_json(given),
        REPORT_FILE: report_html(given, kpis, summary, *input_texts),
    }

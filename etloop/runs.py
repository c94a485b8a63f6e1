"""A run from Python: its figures, its tables as Arrow and pandas, its plots, and its display in a notebook."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.findings import Finding
    from etloop.results.schema.summary import Summary

PLOTS: Final = ("completion", "control", "matrix", "ports", "queues", "timeline")
_TABLE_OF: Final = {"queues": "queues", "control": "cc"}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Run:
    """A run read from its directory. Tables are `pyarrow.Table`s with units in their fields' metadata (docs/metrics.md)."""

    path: Path
    summary: Summary
    ops: Any
    """A row for each op: a collective, a send or a receive on one rank."""
    collectives: Any
    """A row for each collective."""
    flows: Any
    """A row for each queue pair and end, with its counters."""
    ports: Any
    """A row for each port of an agent, with its counters."""

    def __repr__(self) -> str:
        """Return the directory, the result and the number of findings."""
        result = f"{self.summary.result}, {len(self.findings)} findings"
        return f"<Run {str(self.path)!r}: {result}, {self.summary.workload.ranks} ranks>"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the named causes of faults and slowness, causes first (docs/diagnosis.md)."""
        return self.summary.diagnosis.findings

    @property
    def kpis(self) -> dict[str, float | None]:
        """Return the key figures by name, such as "jct_p99_ns"; None for one that this run does not have
        (docs/metrics.md, section 9).
        """
        from etloop.results.store.run_dir import read_kpis

        return {kpi.name: kpi.value for kpi in read_kpis(self.path).figures}

    @property
    def report(self) -> Path:
        """Return the path of the page of the run, which any browser opens."""
        from etloop.results.artifacts import REPORT_FILE

        return self.path / REPORT_FILE

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables in the directory."""
        from etloop.results.store.run_dir import table_names

        return table_names(self.path)

    def table(self, name: str) -> Any:
        """Return a table by name. Raise `InputError`, which lists the tables of this run, for one that it does not have."""
        from etloop.results.store.run_dir import read_table_of

        return read_table_of(self.path, name)

    def frame(self, name: str) -> Any:
        """Return a table as a `pandas.DataFrame`. Raise as `table`, and `ConfigError` without pandas."""
        try:
            import pandas as pd  # noqa: F401  # pyarrow's own message does not name the package to install
        except ImportError:
            raise ConfigError(Problem("pandas", "is not installed", "pip install pandas")) from None
        return self.table(name).to_pandas()

    def plot(self, name: str) -> Any:
        """Return a `plotly.graph_objects.Figure`, which a notebook shows and `write_html` or `to_image` save.

        "completion": distributions of the times of collectives and ops; "ports": rates of the device's ports with
        marks, drops and pauses; "queues": bytes in the fullest queues; "control": rate, window and RTT of queue pairs;
        "timeline": ops of ranks as bars; "matrix": bytes between ranks. Raise `InputError`, with the reason, if the
        run has no data for the plot.
        """
        if name not in PLOTS:
            raise ConfigError(
                Problem("plot", f'there is none called "{name[:64]}"', f"name one of {', '.join(PLOTS)}")
            )
        figure = _figure(self, name)
        if figure is None:
            problem = f"has nothing to plot as {name}"
            raise ConfigError(Problem(str(self.path), problem, "did anything cross the device in it?"))
        return figure

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows for the run: its job, its verdict, its first figures."""
        summary = self.summary
        rows = [
            ("verdict", str(summary.result)),
            (
                "job",
                f"{summary.workload.ranks} ranks, {summary.workload.iterations} iterations of {summary.workload.source}",
            ),
        ]
        rows += [("finding", finding.sentence) for finding in summary.diagnosis.causes]
        if summary.job.iteration_jct_avg_ns is not None:
            from etloop.results.report.values import time_words

            rows.append(("iteration, mean", time_words(summary.job.iteration_jct_avg_ns)))
        rows += [
            ("ops", str(self.ops.num_rows)),
            ("tables", ", ".join(self.tables)),
            ("directory", str(self.path)),
        ]
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        return f"<table><caption>ETLoop run {escape(summary.run_id)}</caption>{cells}</table>"


def open_run(run_dir: Path) -> Run:
    """Return the run of a directory. Raise `RunDirError` for one without a complete run, or of another version."""
    import pyarrow as pa  # noqa: F401 - its absence is reported before any file is read

    from etloop.results.store.run_dir import read_run

    stored = read_run(run_dir)
    return Run(run_dir, stored.summary, stored.ops, stored.collectives, stored.flows, stored.ports)


def _figure(run: Run, name: str) -> Any:
    from etloop.results.html import curves
    from etloop.results.html.plots import completion_figure, matrix_figure, port_figure
    from etloop.results.store.run_dir import read_kpis
    from etloop.results.tables.frames import frame_of

    if name == "timeline":
        return curves.timeline_figure(frame_of("ops", run.ops)) if run.ops.num_rows else None
    if name in _TABLE_OF:
        frame = frame_of(_TABLE_OF[name], _sampled_table(run, name))
        return curves.queue_figure(frame) if name == "queues" else curves.control_figure(frame)
    if name == "completion":
        return completion_figure(read_kpis(run.path))
    page_inputs = _page_inputs(run.path)
    return port_figure(page_inputs) if name == "ports" else matrix_figure(page_inputs)


def _sampled_table(run: Run, plot: str) -> Any:
    """Return a table that only some runs have, with a remedy in the error if this run does not."""
    name = _TABLE_OF[plot]
    if name in run.tables:
        return run.table(name)
    remedy = {
        "queues": "run a twin that is kept, or a rig that says where its device's counters are read",
        "cc": "write transport: {cc: {series: {interval: 100us}}} in the scenario",
    }[name]
    raise ConfigError(Problem(str(run.path), f"has no table {name}, which the plot is made of", remedy))


def _page_inputs(run_dir: Path) -> KpiInput:
    from etloop.results.artifacts import kpi_input
    from etloop.results.store.run_dir import read_artifacts, read_kpis

    return kpi_input(read_artifacts(run_dir), read_kpis(run_dir).basis)

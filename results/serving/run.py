"""A serving run with its figures and verdict."""

from __future__ import annotations

from collections.abc import Sequence

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.serving import ServingFigures
from etloop.results.schema.verdict import RequestedCondition, RunResult, Verdict
from etloop.results.serving.figures import ServingRecords, serving_figures
from etloop.results.serving.verdict import serving_verdict


@dataclass(frozen=True, slots=True, eq=False)
class ServingRun:
    """A finished run, or one that broke off."""

    records: ServingRecords
    figures: ServingFigures
    verdict: Verdict | None
    failure: str
    """"" if every request was finished or refused."""
    level: str
    """packet or flow in virtual time, rig by agents."""

    def __repr__(self) -> str:
        """Return the result and its level."""
        return f"<ServingRun: {self.result}, by {self.level}>"

    @property
    def result(self) -> RunResult:
        """Return the result of the run, whose exit code a command has."""
        if self.failure:
            return RunResult.BROKEN
        return RunResult.NO_VERDICT if self.verdict is None else RunResult(self.verdict.result)


def serving_run(
    records: ServingRecords, requested: Sequence[RequestedCondition], failure: str, level: str
) -> ServingRun:
    """Return the run of these records, evaluated by the conditions of its scenario."""
    figures = serving_figures(records)
    return ServingRun(records, figures, serving_verdict(requested, records, figures, failure), failure, level)

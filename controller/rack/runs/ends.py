"""How a run ended, from its summary: as its own process reports it, or as found on disk if that process could not. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.contract.base.errors import EtloopError, ExitCode
from etloop.controller.rack.runs.protocol import Ended
from etloop.results.schema.summary import SUMMARY_SCHEMA, Summary
from etloop.results.schema.typed_json import from_json, to_json

_MOST_FAULTS: Final = 2


def end_of(summary: Summary) -> Ended:
    """Return the end of a run whose results are stored."""
    return Ended(summary.result.exit_code, _reason(summary), stored=True, summary=to_json(summary))


def end_on_disk(unreported: Ended, summary_text: str, *, is_judged: bool) -> Ended:
    """Return the end of a run whose process ended without reporting it, from the summary that it had stored.

    `unreported` has the cause of the process's end. Without the last step (`is_judged`: its pages are there) the results
    are complete, but not evaluated: the cause remains the reason.
    """
    try:
        end = end_of(from_json(Summary, summary_text, "summary.json", SUMMARY_SCHEMA))
    except EtloopError:
        return unreported
    if is_judged:
        return end
    reason = f"{unreported.reason}; its results are stored, without a verdict"
    return replace(end, exit_code=ExitCode.RUN_ERROR, reason=reason)


def _reason(summary: Summary) -> str:
    """Return why a run did not pass; its first line, which lists of jobs show, also names the faults of the network."""
    first, *further = (summary.reason or summary.failure).splitlines() or [""]
    faults = "; ".join(finding.sentence for finding in summary.diagnosis.faults[:_MOST_FAULTS])
    return "\n".join(["; ".join(filter(None, (first, faults and f"found: {faults}"))), *further])

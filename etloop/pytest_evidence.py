"""Shows the runs of a failing test: on the terminal, and in the reports of pytest-html and Allure where those are loaded.

Decides the texts and their forms; `pytest_plugin` decides which runs a test has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etloop.contract.base.errors import InputError
from etloop.contract.base.late_dataclass import dataclass
from etloop.results.artifacts import REPORT_FILE
from etloop.results.schema.summary import SUMMARY_SCHEMA, Summary
from etloop.results.schema.typed_json import from_json
from etloop.results.store.run_dir import SUMMARY_FILE
from etloop.results.text.answer import render_answer
from etloop.results.text.findings import finding_lines
from etloop.runs import Run

if TYPE_CHECKING:
    import pytest

    from etloop.controller.rack.mqtt.messages import ResultStatus


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run, or one job of a rack, as its readers get it."""

    name: str
    """The directory of the run, or the id of the job."""
    findings: str
    """The answer in five lines, then each cause with its effects and its remedy."""
    summary: str
    """JSON; "" for a job without a run."""
    page: Path | None
    """report.html; None for a run without one, and for a job, whose page stays on the rack."""
    url: str = ""
    """Address of a job's results; "" if its rack has none."""


def properties_of(result: Run | ResultStatus) -> list[tuple[str, str | int]]:
    """Return the properties that a test's JUnit report gets: of a run its directory, its result and each cause by its kind and
    sentence; of a job its exit code.
    """
    if not isinstance(result, Run):
        return [("etloop.exit_code", result.exit_code)]
    return [
        ("etloop.run", str(result.path)),
        ("etloop.result", str(result.summary.result)),
        *(
            ("etloop.finding", f"{finding.kind}: {finding.sentence}")
            for finding in result.summary.diagnosis.causes
        ),
    ]


def evidence_of(result: Run | ResultStatus) -> Evidence:
    """Return what is shown of a run, or of a job by the summary that its rack sent."""
    if isinstance(result, Run):
        page, words = result.path / REPORT_FILE, _words(result.summary, str(result.path / REPORT_FILE))
        try:
            text = (result.path / SUMMARY_FILE).read_text(encoding="utf-8")
        except OSError as error:  # A test may have removed its run.
            words, text = f"{words}\n{error.filename}: cannot be read: {error.strerror}", ""
        return Evidence(str(result.path), words, text, page if page.is_file() else None)
    name, url = f"job {result.job_id}", result.results_url
    if result.summary is None:
        return Evidence(name, result.reason, "", None, url)
    text = json.dumps(result.summary)
    try:
        words = _words(from_json(Summary, text, f"summary of {name}", SUMMARY_SCHEMA), url)
    except InputError as error:  # The rack has another version; its own words are still here.
        words = f"{result.reason}\n{error}"
    return Evidence(name, words, text, None, url)


def _words(summary: Summary, page: str) -> str:
    return render_answer(summary, page) + "\n".join(finding_lines(summary.diagnosis))


def show_evidence(
    report: pytest.TestReport, config: pytest.Config, results: Sequence[Run | ResultStatus]
) -> None:
    """Add runs and jobs to the report of a failing test: a section with findings; in pytest-html and Allure, also report and
    summary.
    """
    shown = [evidence_of(result) for result in results]
    report.sections += [(f"etloop {evidence.name}", evidence.findings) for evidence in shown]
    if (plugin := config.pluginmanager.getplugin("html")) and hasattr(plugin, "extras"):
        self_contained = config.getoption("self_contained_html", False)
        extras = [
            extra for evidence in shown for extra in html_extras(evidence, plugin.extras, self_contained)
        ]
        # pytest-html reads this attribute (4.0 and later).
        report.extras = [*getattr(report, "extras", []), *extras]  # type: ignore[attr-defined]
    if config.pluginmanager.hasplugin("allure_listener"):
        for evidence in shown:
            _attach_to_allure(evidence)


def html_extras(evidence: Evidence, extras: Any, self_contained: bool) -> Iterator[dict[str, Any]]:
    """Yield what pytest-html adds to the row of a test; `extras` is its module of that name.

    A page that must contain everything cannot open another page from within it, so it gets a link to the file.
    """
    yield extras.html(f"<pre>{escape(evidence.name)}\n{escape(evidence.findings)}</pre>")
    if evidence.page is not None and self_contained:
        yield extras.url(evidence.page.as_uri(), name="ETLoop report")
    elif evidence.page is not None:
        page = evidence.page.read_text(encoding="utf-8")
        yield extras.text(page, name="ETLoop report") | {"mime_type": "text/html", "extension": "html"}
    if evidence.url:
        yield extras.url(evidence.url, name="ETLoop results")
    if evidence.summary:
        form = {"mime_type": "application/json", "extension": "json"}
        yield extras.text(evidence.summary, name="ETLoop summary") | form


def _attach_to_allure(evidence: Evidence) -> None:
    import allure

    kinds = allure.attachment_type
    if evidence.page is not None:
        allure.attach.file(str(evidence.page), f"ETLoop report of {evidence.name}", kinds.HTML)  # type: ignore[no-untyped-call]
    allure.attach(evidence.findings, f"ETLoop findings of {evidence.name}", kinds.TEXT)
    if evidence.summary:
        allure.attach(evidence.summary, f"ETLoop summary of {evidence.name}", kinds.JSON)
    if evidence.url:
        allure.attach(evidence.url, f"ETLoop results of {evidence.name}", kinds.URI_LIST)

"""Tables of the trials of a search."""

from __future__ import annotations

from etloop.results.report.trials import all_trials_table
from etloop.results.schema.trials import TRIALS_SCHEMA, SettingTrial, TrialsRecord, TrialState


def record_of(*trials: SettingTrial) -> TrialsRecord:
    return TrialsRecord(
        schema=TRIALS_SCHEMA,
        source="search.yaml",
        objectives=("minimize jct_avg_ns",),
        figures=("jct_avg_ns",),
        axes={"kmin": ("4KiB", "400KB")},
        combinations=2,
        trials=trials,
    )


def trial_of(name: str, kmin: str, *findings: str) -> SettingTrial:
    return SettingTrial(name, {"kmin": kmin}, TrialState.FEASIBLE, (1_000.0,), "", findings)


def test_each_trial_shows_its_own_findings() -> None:
    table = all_trials_table(
        record_of(trial_of("p0", "4KiB", "ecn_early at leaf0/1"), trial_of("p1", "400KB"))
    )
    names = [column.id for column in table.columns]
    findings = [row[names.index("findings")] for row in table.rows]
    assert findings == ["ecn_early at leaf0/1", ""]


def test_trials_without_findings_have_no_column_for_them() -> None:
    table = all_trials_table(record_of(trial_of("p0", "4KiB"), trial_of("p1", "400KB")))
    assert "findings" not in [column.id for column in table.columns]
    assert all(len(row) == len(table.columns) for row in table.rows)

"""Results of a search over several settings, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.results.report.trials import best_table, candidates_table, importance_table
from etloop.results.schema.trials import STUDY_FILE, TRIALS_PAGE
from etloop.results.text.layout import label_text, table_lines

if TYPE_CHECKING:
    from etloop.results.schema.trials import TrialsRecord


def render_trials(record: TrialsRecord, out_dir: str) -> str:
    """Return the best trials, the importance of each axis, the repeats, and the location of the files."""
    lines = label_text(
        "search", f"{record.source}: {len(record.trials)} trials of {record.combinations} combinations"
    )
    for table in (best_table(record), importance_table(record), candidates_table(record)):
        if table.rows:
            lines += ["", table.title, *table_lines(table, len(table.rows), "  ")]
    conclusion = record.conclusion or ("" if record.best else "no trial meets the conditions")
    lines += ["", *(label_text("conclusion", conclusion) if conclusion else ())]
    lines += [
        *label_text("page", f"{out_dir}/{TRIALS_PAGE}"),
        *label_text("study", f"{out_dir}/{STUDY_FILE}"),
    ]
    return "\n".join(lines) + "\n"

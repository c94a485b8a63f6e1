"""What a report of pip-audit means, of one that looked nothing up most of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.audit import Audit, audit, result_of

CLEAN = {"name": "numpy", "version": "2.0", "vulns": []}
WEAK = {"name": "aiohttp", "version": "3.0", "vulns": [{"id": "GHSA-1", "fix_versions": ["3.1", "4.0"]}]}
FOR_EVER = {"name": "six", "version": "1.0", "vulns": [{"id": "PYSEC-2", "fix_versions": []}]}
UNKNOWN = {
    "name": "rich",
    "skip_reason": "Dependency not found on PyPI and could not be audited: rich (15.0)",
}


@pytest.mark.parametrize(
    ("sentence", "rows", "lines", "codes"),
    [
        ("nothing known", [CLEAN], ["1 of 1 packages audited, 0 known vulnerabilities"], (0, 0)),
        (
            "a finding ends with 1, with or without a fix",
            [CLEAN, WEAK, FOR_EVER],
            [
                "aiohttp 3.0: GHSA-1, fixed in 3.1, 4.0",
                "six 1.0: PYSEC-2, fixed in no release",
                "3 of 3 packages audited, 2 known vulnerabilities",
            ],
            (1, 1),
        ),
        (
            "a package that the database does not answer for is counted, and is no success where an audit is required",
            [CLEAN, UNKNOWN],
            [
                "skipped: not audited: 1 of 2 packages: pypi.org does not answer for them",
                "1 of 2 packages audited, 0 known vulnerabilities",
            ],
            (0, 1),
        ),
    ],
)
def test_reports(sentence: str, rows: list[object], lines: list[str], codes: tuple[int, int]) -> None:
    result = result_of({"dependencies": rows}, len(rows))
    assert result.lines() == lines, sentence
    assert (result.code(required=False), result.code(required=True)) == codes, sentence


def test_a_package_that_the_report_passes_over_was_not_looked_up() -> None:
    assert result_of({"dependencies": [CLEAN]}, 3).unanswered == 2


def test_an_audit_that_broke_off_says_why(tmp_path: Path) -> None:
    program = tmp_path / "pip-audit"
    program.write_text("#!/bin/sh\necho 'ERROR: Name or service not known' >&2\nexit 1\n")
    program.chmod(0o755)
    result = audit(str(program))
    assert isinstance(result, Audit)
    assert result.unanswered == result.packages > 100
    assert "(ERROR: Name or service not known)" in result.lines()[0]

"""The bench of a whole job on paper, with few ranks."""

from __future__ import annotations

import pytest

from tests.measure.jobs import whole_job


def test_every_command_of_a_small_job_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert whole_job.main(["--ranks", "16", "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["synth", "lint", "plan", "twin", "together"]


def test_a_small_job_is_summarised_on_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert whole_job.main(["--ranks", "16", "--summary", "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["synth", "plan", "together"]


@pytest.mark.parametrize("ranks", ["8", "20", "16384"])
def test_ranks_that_fill_no_hosts_or_no_switch_are_refused(
    ranks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        whole_job.main(["--ranks", ranks])
    assert f"--ranks: {ranks}, expected a multiple of 8 from 16 to 8192" in capsys.readouterr().err

"""One short run of each planted cause: the files are accepted, the cause is exercised, and it is found.

`tests.measure.diagnosis` measures how often; this holds the plants, the rules and the twin together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.measure.planting.cases import is_found
from tests.measure.planting.exercise import is_exercised
from tests.measure.planting.plants import PLANTS, planted_case
from tests.measure.planting.run_case import RUN, diagnose_in_twin


@pytest.mark.parametrize("cause", PLANTS)
def test_planted_cause_is_found(cause: Any, tmp_path: Path) -> None:
    case = planted_case(cause, 3)
    diagnosis = diagnose_in_twin(case, tmp_path)
    assert is_exercised(case, tmp_path / RUN)
    assert is_found(case, diagnosis), [finding.sentence for finding in diagnosis.findings]


def test_case_is_a_function_of_its_seed() -> None:
    first, again, other = (planted_case("slow_host_port", seed) for seed in (1, 1, 2))
    assert first == again
    assert first.planted != other.planted

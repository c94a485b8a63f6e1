"""Every case of the plans on the switch under test."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cases import CCL, ROCEV2
from verdicts import Case


@pytest.mark.parametrize("case", [*ROCEV2, *CCL], ids=str)
def test_case(case: Case, evaluate: Callable[[Case], None]) -> None:
    """Run the case and require its checks."""
    evaluate(case)

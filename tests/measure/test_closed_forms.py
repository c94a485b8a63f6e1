"""Every algorithm takes in virtual time, on an ideal network, what its closed form says."""

from __future__ import annotations

import pytest

from etloop.traffic.collectives.algorithms.registry import ALGORITHMS
from tests.measure.closed_forms import FORMS, MIB, TOLERANCE, Form, compared, main
from tests.support.first_light.commands import FULL

BUFFER_BYTES = 64 * MIB if FULL else 32 * MIB
CASES = [(form, ranks) for form in FORMS for ranks in (form.ranks if FULL else form.ranks[:1])]
"""The fewest ranks of each form; docs/closed_forms.md, whose command is run as printed, compares all with all."""


@pytest.mark.parametrize(
    ("form", "ranks"),
    CASES,
    ids=lambda part: f"{part.collective}-{part.algorithm}-{part.shaping}" if isinstance(part, Form) else part,
)
def test_a_large_operation_takes_what_its_closed_form_says(form: Form, ranks: int) -> None:
    _, closed_ns, virtual_ns = compared(form, ranks, BUFFER_BYTES)
    assert abs(virtual_ns / closed_ns - 1) < TOLERANCE


def test_every_collective_of_every_algorithm_has_a_closed_form() -> None:
    served = {(name, collective) for name, a in ALGORITHMS.items() for collective in a.collectives}
    # A barrier is all latency, an uneven all-to-all as long as its matrix makes it, a send one message.
    served = {pair for pair in served if pair[1] not in ("barrier", "uneven all-to-all", "point-to-point")}
    assert {(form.algorithm, form.collective.replace("_", "-")) for form in FORMS} == served


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a mebibyte is all latency: --check says so."""
    monkeypatch.setattr("tests.measure.closed_forms.FORMS", (FORMS[1],))
    assert main(["--mib", "1", "--check"]) == 30
    assert "all_reduce" in capsys.readouterr().out

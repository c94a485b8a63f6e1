"""Recordings have the operations of a run over gloo on this machine: kinds, bytes and order on every rank.

Traffic of pipelines that infers shapes is left out of the real run by its functions (tests/support/record/real_run.py),
as the recorder leaves it out and says so.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.workload.readers.files import read_trace
from tests.record.compared import COMPARED
from tests.support.record.recording import HAS_TORCH, NO_TORCH, operations, real_run, record

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HAS_TORCH, reason=NO_TORCH),
    pytest.mark.skipif(
        os.environ.get("ETLOOP_FULL") != "1", reason="ETLOOP_FULL=1 compares recordings with runs over gloo"
    ),
]


@pytest.mark.parametrize(("script", "ranks"), COMPARED.values(), ids=COMPARED)
def test_a_recording_is_as_a_run_over_gloo(script: str, ranks: int, tmp_path: Path) -> None:
    """A scatter's bytes are compared on roots only: over gloo its other members have no input, and no group to count."""
    assert record(tmp_path, script, ranks, "--cpu") == 0
    assert main(["lint", str(tmp_path / "job")]) == 0
    recorded = read_trace(tmp_path / "job").ranks
    real = read_trace(real_run(tmp_path, "observer", tmp_path / "train.py", ranks)).ranks
    for own, other in zip(recorded, real, strict=True):
        own_operations, other_operations = operations(own), operations(other)
        pairs = zip(own_operations, other_operations, strict=False)
        unlike = [
            (index, a, b) for index, (a, b) in enumerate(pairs) if a != b and not a[0] == b[0] == "SCATTER"
        ]
        assert unlike[:3] == []
        assert len(own_operations) == len(other_operations)

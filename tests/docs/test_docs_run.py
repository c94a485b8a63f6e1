"""Every command that a page of docs/ shows runs as it is printed, in order, and prints what the page says that it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.stages import STAGES
from tests.support.docs.checks import LIMIT_S, objections
from tests.support.docs.pages import page_blocks
from tests.support.docs.stage import NO_NAMESPACES, apart
from tests.support.places import ROOT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(LIMIT_S + 20),
    pytest.mark.skipif(not apart(), reason=NO_NAMESPACES),
]


@pytest.mark.parametrize("page", [page for page in STAGES if page.startswith("docs/")])
def test_a_page_runs_as_printed(page: str, tmp_path: Path) -> None:
    found = objections(page_blocks(ROOT / page), STAGES[page], tmp_path)
    assert found == []

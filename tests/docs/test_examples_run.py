"""Every command of README.md and of the examples' READMEs runs as it is printed, and prints what they say that it prints."""

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


@pytest.mark.parametrize("page", [page for page in STAGES if not page.startswith("docs/")])
def test_a_page_runs_as_printed(page: str, tmp_path: Path) -> None:
    found = objections(page_blocks(ROOT / page), STAGES[page], tmp_path)
    assert found == []


def test_make_demo_is_the_demo() -> None:
    """README.md says `make demo`; its page is run with the command behind it, which builds nothing."""
    assert "demo: $(STAMPS)/built\n\t$(BIN)/etloop demo\n" in (ROOT / "Makefile").read_text()

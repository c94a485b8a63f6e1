"""Both commands say which version of them is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata

import pytest

import etloop.agent.cli
import etloop.cli.main


@pytest.mark.parametrize(
    ("program", "main"),
    [("etloop", etloop.cli.main.main), ("etloop-agent", etloop.agent.cli.main)],
    ids=["etloop", "etloop-agent"],
)
def test_a_command_says_its_version_and_ends(
    program: str, main: Callable[[Sequence[str]], object], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{program} {metadata.version('etloop')}\n"

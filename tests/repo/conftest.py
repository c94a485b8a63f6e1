"""The wheel of this tree, made once for all tests that want it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.built_wheel import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, of the native modules as they were compiled last."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))

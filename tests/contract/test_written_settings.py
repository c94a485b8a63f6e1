"""The engine's settings are those that the contract declares."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from etloop.contract.base.setting import list_setting, setting
from etloop.contract.base.value_parsers import integer, words
from tests.support.places import ROOT
from tools.write_settings import FILE, native_header


def test_written_header_is_current() -> None:
    assert (ROOT / FILE).read_text(encoding="utf-8") == native_header(), "run python tools/write_settings.py"


@dataclass(frozen=True)
class Planted:
    """Settings of a test."""

    reads: int = setting("reads", integer(1, 300), 16, "Outstanding reads.")
    wait_ns: int = setting("wait", integer(0, 9), -1, "Wait.")
    marks: tuple[int, ...] = list_setting("marks", integer(0, 63), "Marks.")
    unsent: int = 3


def test_added_setting_gets_type_default_and_bounds() -> None:
    header = native_header((Planted,))
    assert "  // Outstanding reads.\n  uint32_t reads = 16;\n" in header
    assert "  Nanos wait_ns = -1;\n" in header
    assert '    visitor("wait_ns", settings.wait_ns, SettingBounds{0, 9, -1});\n' in header
    assert "  NumberSet marks;\n" in header
    assert "unsent" not in header


@dataclass(frozen=True)
class Unbounded:
    """Settings of a test."""

    name: str = setting("name", words, "", "Name.")


def test_setting_without_bounds_is_refused() -> None:
    with pytest.raises(AssertionError, match="name: its parser has no bounds"):
        native_header((Unbounded,))

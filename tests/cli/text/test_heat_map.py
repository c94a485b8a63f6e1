"""A matrix as a picture: shades follow the logarithm, large jobs come in blocks, the SVG is well formed and bounded."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etloop.cli.text.heat_map import MOST_SVG_CELLS, character_map, in_blocks, svg_map


def test_characters_go_with_the_logarithm() -> None:
    matrix = np.array([[0, 1, 100], [10_000, 0, 0], [0, 0, 0]])
    heading, *rows = character_map(matrix, 1)
    assert heading == "rows send, columns receive; . 1 B to @ 10 kB, logarithmic"
    assert rows == ["0 | .+|", "1 |@  |", "2 |   |"]


def test_nothing_is_said_to_be_nothing() -> None:
    assert character_map(np.zeros((3, 3), dtype=np.int64), 1) == ["no bytes between ranks"]
    assert "no bytes between ranks" in svg_map("t", np.zeros((0, 0), dtype=np.int64), 1)


def test_many_ranks_come_in_blocks() -> None:
    heading, *rows = character_map(np.ones((130, 130), dtype=np.int64), 2)
    assert "6 ranks a character" in heading
    assert len(rows) == 44
    assert rows[1].startswith("  6 |")


@given(st.integers(0, 70), st.integers(1, 40))
def test_blocks_keep_the_sum(side: int, most: int) -> None:
    matrix = np.arange(side * side, dtype=np.int64).reshape(side, side)
    cells, merged = in_blocks(matrix, most)
    assert len(cells) <= most
    assert cells.sum() == matrix.sum()
    assert len(cells) == -(-side // merged)


def test_the_svg_is_well_formed_and_bounded() -> None:
    matrix = np.ones((1000, 1000), dtype=np.int64)
    text = svg_map('a <"b"> & c', matrix, 1)
    root = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title") == 'a <"b"> & c'
    cells = [one for one in root.iter(f"{space}rect") if one.find(f"{space}title") is not None]
    assert len(cells) <= MOST_SVG_CELLS**2
    assert cells[0].findtext(f"{space}title") == "ranks 0-3 to ranks 0-3: 16 bytes"

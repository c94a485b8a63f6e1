"""Draws a matrix of bytes by pair: characters for a terminal, SVG for a browser. Pure.

Decides scale and shape: logarithmic shades, because a pair of pipeline stages moves a thousandth of a pair that reduces
gradients; rows send, columns receive; large jobs in blocks of neighbouring ranks.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

import numpy as np

from etloop.contract.base.units import approximate_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_CHARACTERS: Final = 64
"""Cells per side of the picture made of characters."""
MOST_SVG_CELLS: Final = 256
"""Cells per side of the SVG: 65,536 rectangles are still quick to draw."""

_SHADES: Final = ".:-=+*#%@"
_NOTHING: Final = " "
_PICTURE_PX: Final = 640
_MARGIN_PX: Final = 56
_LEGEND_PX: Final = 60
_LIGHT: Final = (222, 235, 247)
_DARK: Final = (8, 48, 107)
"""From light to dark blue: also distinguishable in grey and with red-green colour blindness."""


def in_blocks(matrix: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], int]:
    """Return the square matrix (int64, bytes) summed into blocks, at most `most` per side, and the number of cells per block
    side."""
    side = len(matrix)
    block_side = max(1, -(-side // most))
    starts = np.arange(0, side, block_side)
    if block_side == 1 or not side:
        return matrix, 1
    return np.add.reduceat(np.add.reduceat(matrix, starts, axis=0), starts, axis=1), block_side


def character_map(matrix: NDArray[np.int64], ranks_a_cell: int) -> list[str]:
    """Return the lines of a picture of the square matrix (int64, bytes), its scale included; one character is a cell."""
    cells, block_side = in_blocks(matrix, MOST_CHARACTERS)
    a_cell = ranks_a_cell * block_side
    if not cells.any():
        return ["no bytes between ranks"]
    least, most = _bounds(cells)
    width = len(str((len(cells) - 1) * a_cell))
    lines = []
    for row, values in enumerate(cells.tolist()):
        shades = "".join(_shade(value, least, most) for value in values)
        lines.append(f"{row * a_cell:>{width}} |{shades}|")
    scale = f"{_SHADES[0]} {approximate_bytes(least)} to {_SHADES[-1]} {approximate_bytes(most)}, logarithmic"
    cell_text = f", {a_cell} ranks a character" if a_cell > 1 else ""
    return [f"rows send, columns receive{cell_text}; {scale}", *lines]


def svg_map(title: str, matrix: NDArray[np.int64], ranks_a_cell: int) -> str:
    """Return an SVG document of the square matrix (int64, bytes) with axes, scale and the bytes of a cell as its tooltip."""
    cells, block_side = in_blocks(matrix, MOST_SVG_CELLS)
    a_cell = ranks_a_cell * block_side
    side = max(1, len(cells))
    cell_px = _PICTURE_PX / side
    width, height = _PICTURE_PX + 2 * _MARGIN_PX, _PICTURE_PX + 2 * _MARGIN_PX + _LEGEND_PX
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
        ),
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_MARGIN_PX}" y="18" font-size="14">{escape(title)}</text>',
        f'<text x="{_MARGIN_PX}" y="36">bytes from rank (row) to rank (column) in one pass</text>',
        (
            f'<rect x="{_MARGIN_PX}" y="{_MARGIN_PX}" width="{_PICTURE_PX}" height="{_PICTURE_PX}" '
            'fill="none" stroke="#888"/>'
        ),
    ]
    least, most = _bounds(cells)
    for row, column in zip(*np.nonzero(cells), strict=True):
        value = int(cells[row, column])
        x, y = _MARGIN_PX + column * cell_px, _MARGIN_PX + row * cell_px
        tooltip = f"{_ranks(int(row), a_cell)} to {_ranks(int(column), a_cell)}: {value} bytes"
        parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{cell_px:.2f}" height="{cell_px:.2f}" '
            f'fill="{_colour(value, least, most)}"><title>{tooltip}</title></rect>'
        )
    parts += [*_axes(side, a_cell, cell_px), *_legend(least, most), "</svg>"]
    return "\n".join(parts) + "\n"


def _bounds(cells: NDArray[np.int64]) -> tuple[int, int]:
    nonzero_bytes = cells[cells > 0]
    return (int(nonzero_bytes.min()), int(nonzero_bytes.max())) if nonzero_bytes.size else (0, 0)


def _level(value: int, least: int, most: int) -> float:
    """Return the logarithmic position of a value: 0 for the least, 1 for the most; 1 if all are equal."""
    return log(value / least) / log(most / least) if most > least else 1.0


def _shade(value: int, least: int, most: int) -> str:
    return _SHADES[round(_level(value, least, most) * (len(_SHADES) - 1))] if value > 0 else _NOTHING


def _colour(value: int, least: int, most: int) -> str:
    level = _level(value, least, most)
    return "#" + "".join(
        f"{round(light + (dark - light) * level):02x}" for light, dark in zip(_LIGHT, _DARK, strict=True)
    )


def _ranks(cell: int, a_cell: int) -> str:
    return f"rank {cell}" if a_cell == 1 else f"ranks {cell * a_cell}-{(cell + 1) * a_cell - 1}"


def _axes(side: int, a_cell: int, size: float) -> list[str]:
    step = max(1, -(-side // 16))
    marks = []
    for cell in range(0, side, step):
        middle = _MARGIN_PX + (cell + 0.5) * size
        label = cell * a_cell
        below = _MARGIN_PX + _PICTURE_PX + 16
        marks.append(f'<text x="{middle:.1f}" y="{below}" text-anchor="middle">{label}</text>')
        marks.append(f'<text x="{_MARGIN_PX - 6}" y="{middle + 4:.1f}" text-anchor="end">{label}</text>')
    return marks


def _legend(least: int, most: int) -> list[str]:
    if not most:
        return [f'<text x="{_MARGIN_PX}" y="{_PICTURE_PX + _MARGIN_PX + 50}">no bytes between ranks</text>']
    y = _PICTURE_PX + _MARGIN_PX + 36
    steps = 10
    parts = []
    for step in range(steps):
        value = round(least * (most / least) ** (step / (steps - 1)))
        parts.append(
            f'<rect x="{_MARGIN_PX + 24 * step}" y="{y}" width="24" height="14" '
            f'fill="{_colour(max(least, min(most, value)), least, most)}"/>'
        )
    scale_text = f"{approximate_bytes(least)} to {approximate_bytes(most)}, logarithmic"
    return [*parts, f'<text x="{_MARGIN_PX + 24 * steps + 10}" y="{y + 12}">{scale_text}</text>']

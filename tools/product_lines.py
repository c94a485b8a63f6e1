"""Print the number of lines of Python in each room, blank ones and docstrings included, without tests:
`tools/product_lines.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.link_package import ROOT, rooms


def product_lines() -> dict[str, int]:
    """Return the lines of every room, and of the tools, by folder."""
    folders = [*rooms().values(), ROOT / "tools"]
    return {
        folder.name: sum(len(path.read_bytes().splitlines()) for path in sorted(folder.rglob("*.py")))
        for folder in folders
    }


if __name__ == "__main__":
    counted = product_lines()
    for name, lines in sorted(counted.items(), key=lambda item: -item[1]):
        print(f"{lines:7,} {name}")
    print(f"{sum(counted.values()):7,} in all")

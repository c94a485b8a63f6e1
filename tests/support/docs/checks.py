"""What a test demands of a page that was run: right exit codes, every block of output printed, exact parts equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.support.docs.pages import GAP, Block, differences
from tests.support.docs.stage import Ran, Stage, play

LIMIT_S = 200
"""How long the commands of a page may take; the machine may be busy."""


def objections(blocks: Sequence[Block], stage: Stage, directory: Path, limit_s: int = LIMIT_S) -> list[str]:
    """Run a page and return what is wrong with it, a paragraph each; [] if all of it is as printed."""
    ran = play(blocks, stage, directory, limit_s)
    return [*_wrong_ends(ran), *_wrong_outputs(blocks, stage, ran)]


def _wrong_ends(ran: Sequence[Ran]) -> list[str]:
    for one in ran:
        if one.code not in one.expected:
            ended = "did not end in time" if one.code is None else f"exited with {one.code}"
            expected = " or ".join(str(code) for code in one.expected)
            where = f"{one.block.place}: {one.printed.strip().splitlines()[0]!r}"
            return [f"{where} {ended}, expected {expected}; it said:\n{one.output[-2000:]}"]
    return []


def _wrong_outputs(blocks: Sequence[Block], stage: Stage, ran: Sequence[Ran]) -> list[str]:
    wrong = []
    last: Block | None = None
    for block in blocks:
        if block.language in ("sh", "python"):
            last = block
        if block.language != "text" or "output" not in block.words:
            continue
        printed = "".join(one.output for one in ran if last is not None and one.block == last)
        measured = block.words["output"] == "measured"
        missing = differences(block.text, printed, measured=measured)
        wrong += [f"{block.place}: nothing prints the line {line!r}" for line in missing]
        if measured and not missing:
            wrong += _unequal(block, stage.equal, printed)
    return wrong


def _unequal(block: Block, equal: Sequence[str], printed: str) -> list[str]:
    """Parts of measured output that are the same everywhere, and are not."""
    there = {found.group() for pattern in equal for found in re.finditer(pattern, printed, re.MULTILINE)}
    shown = [
        (line, found.group())
        for line in block.text.splitlines()
        if line.strip() != GAP
        for pattern in equal
        if (found := re.search(pattern, line))
    ]
    unused = [one for one in equal if not re.search(one, block.text, re.MULTILINE)]
    return [
        *(f"{block.place}: no line has {pattern!r}" for pattern in unused),
        *(
            f"{block.place}: the line {line!r} is printed with another {part!r}"
            for line, part in shown
            if part not in there
        ),
    ]

"""A page of documentation as a test sees it: its fenced blocks, what kind each is of, and the commands in it.

Decides what of a page is run, compared or only shown. The kind stands in the info string of the fence, which renderers
read up to the first blank:

    sh                          commands; run in order, in one directory a page
    sh not-run="REASON"         commands that no test can run, for a reason of NOT_RUN
    sh run-by=FILE              commands that this test runs, with what they need
    text output                 what the commands of the last `sh` print: these lines, letter by letter
    text output=measured        the same lines in this order, but figures may differ (`shape`)
    text record=FILE            rendered from a kept record of measurements
    text form=WHAT              what another test reads or derives
    text drawing                a picture
    yaml, python, mermaid       files, programs, generated diagrams
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from operator import contains
from pathlib import Path
from typing import Final

from tests.support.places import ROOT

PAGES: Final = tuple(
    sorted(
        [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
        key=lambda path: path.relative_to(ROOT).as_posix(),
    )
)
NOT_RUN: Final = {
    "a device": "of a device under test or a second machine, which nobody has at hand",
    "a container engine": "of images that are fetched from the network",
    "an installation": "that writes into the system: users, units, packages",
}
"""Why commands of a page are not run, and what each reason means."""
KINDS: Final = {
    "sh": {"not-run", "run-by"},
    "text": {"output", "record", "form", "drawing"},
    "yaml": {"form"},
    "python": {"form"},
    "mermaid": set(),
}
"""Languages of blocks, with the words that may follow."""
GAP: Final = "..."
"""A line of output that stands for any lines."""
_FENCE: Final = re.compile(r"^( *)(```+)(.*)$")
_FIGURE: Final = re.compile(
    r"[<>]?[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
    r"(?:\s?(?:ns|us|ms|s|B|kB|MB|GB|TB|KiB|MiB|GiB|ppm|%|[kKMGT]?(?:bit|b|B)/s|[KMGT]bps)(?![\w/]))?(?!\w)"
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: str
    """Relative to the repository."""
    line: int
    """Of the opening fence, from 1."""
    language: str
    words: dict[str, str]
    """What follows the language: `not-run`, `output` and so on; "" without a value."""
    text: str

    @property
    def place(self) -> str:
        """Say where the block stands, for messages."""
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Return the commands of a block of `sh`: lines, joined where a backslash ends them, without empty ones and comments."""
        lines = re.sub(r" *\\\n *", " ", self.text).splitlines()
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]

    def file_name(self) -> str:
        """Return the name of the file that a block of `yaml` shows, from its first line: `# rig.yaml`; "" if it names none."""
        found = re.match(r"# ([\w.-]+)$", self.text.splitlines()[0]) if self.text else None
        return found.group(1) if found else ""


def blocks_of(text: str, page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page in order; ValueError where a fence is left open or says what nobody knows."""
    opened: tuple[int, str, str, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence:
                indent, ticks, info = fence.groups()
                opened, inside = (number, indent, ticks, info), []
            continue
        start, indent, ticks, info = opened
        if fence and fence.group(2) == ticks and not fence.group(3).strip():
            body = "".join(one.removeprefix(indent) + "\n" for one in inside)
            yield _block(page, start, info, body)
            opened = None
        else:
            inside.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: this fence is never closed")


def _block(page: str, line: int, info: str, text: str) -> Block:
    try:
        language, *rest = shlex.split(info) or [""]
    except ValueError as error:
        raise ValueError(f"{page}:{line}: the info string {info!r} cannot be read: {error}") from None
    if language not in KINDS:
        raise ValueError(f"{page}:{line}: a block of {language!r}; write one of {', '.join(KINDS)}")
    words = dict(word.partition("=")[::2] for word in rest)
    if unknown := set(words) - KINDS[language]:
        raise ValueError(f"{page}:{line}: {language} blocks know no {', '.join(sorted(unknown))}")
    if language == "text" and len(words) != 1:
        raise ValueError(f"{page}:{line}: say what this text is: {', '.join(sorted(KINDS['text']))}")
    if words.get("output", "") not in ("", "measured"):
        raise ValueError(f"{page}:{line}: output={words['output']}; write output or output=measured")
    if "not-run" in words and words["not-run"] not in NOT_RUN:
        raise ValueError(
            f"{page}:{line}: not-run={words['not-run']!r}; the reasons are: {', '.join(NOT_RUN)}"
        )
    if "run-by" in words and not _has_tests(words["run-by"]):
        raise ValueError(f"{page}:{line}: run-by={words['run-by']!r} is no file of tests below tests/")
    return Block(page, line, language, words, text)


def _has_tests(name: str) -> bool:
    path = ROOT / name
    is_ours = name.startswith("tests/") and ".." not in Path(name).parts and path.is_file()
    return is_ours and "def test_" in path.read_text(encoding="utf-8")


def page_blocks(path: Path) -> list[Block]:
    """Return the blocks of a page of this repository."""
    return list(blocks_of(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()))


def shape(line: str) -> str:
    """Return a line with `#` for every figure and its unit, and one blank for many: what measured output has in common."""
    return re.sub(r"\s+", " ", re.sub(r"(?<![\w.])" + _FIGURE.pattern, "#", line)).strip()


def differences(shown: str, printed: str, *, measured: bool) -> list[str]:
    """Return the lines of `shown` that `printed` lacks: they stand there in this order, one right after the other but for GAP.

    With `measured`, lines are alike when their shapes are, and others may stand between them: a busy machine has more to
    tell. [] when everything is there.
    """
    alike = shape if measured else str.rstrip
    there = [{alike(words) for words in line} for line in _lines(printed, joined=measured)]
    parts: list[list[str]] = [[]]
    for *_, line in _lines(shown, joined=measured):
        if measured or line.strip() == GAP:
            parts.append([])
        if line.strip() != GAP:
            parts[-1].append(line)
    start = 0
    for part in filter(None, parts):
        wanted = [alike(line) for line in part]
        places = range(start, len(there) - len(wanted) + 1)
        found = next((at for at in places if all(map(contains, there[at : at + len(wanted)], wanted))), None)
        if found is None:
            missing = [
                line for line, want in zip(part, wanted, strict=True) if not any(want in one for one in there)
            ]
            return missing or part
        start = found + len(wanted)
    return []


def _lines(text: str, *, joined: bool) -> Iterator[list[str]]:
    """Yield each line as the forms that it may be shown in, the longest last.

    Longer figures wrap a line of a summary, which goes on below its first column; a sentence that only busy machines print
    stands there too. So a line is itself, and itself with one, two, ... of the lines that go on.
    """
    forms: list[str] = []
    for line in text.splitlines():
        if joined and forms and re.match(r" {16}\S", line):
            forms.append(f"{forms[-1]} {line.strip()}")
            continue
        if forms:
            yield forms
        forms = [line]
    if forms:
        yield forms

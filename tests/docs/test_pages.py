"""What pages may show: every block has a kind, nothing is left unrun without a reason; and the runner finds what is wrong."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from etloop.counters.base.credentials import snmp_credentials
from tests.docs.stages import STAGES
from tests.support.docs.checks import objections
from tests.support.docs.pages import NOT_RUN, PAGES, Block, blocks_of, differences, page_blocks, shape
from tests.support.docs.stage import NO_NAMESPACES, Stage, Step, apart
from tests.support.places import ROOT

NAMES = {path.relative_to(ROOT).as_posix(): path for path in PAGES}
BLOCKS = [block for path in PAGES for block in page_blocks(path)]
WHERE_RUN = {"sh": {"not-run", "run-by"}, "python": {"form"}}
FORMS = {"conditions", "credentials", "formula", "schedule", "syntax"}
"""What is read or derived elsewhere: by the tests of the same name below, and in tests/docs/test_forms.py."""
namespaces = pytest.mark.skipif(not apart(), reason=NO_NAMESPACES)


@pytest.mark.parametrize("page", NAMES)
def test_every_block_has_a_kind(page: str) -> None:
    for block in page_blocks(NAMES[page]):
        assert block.words.get("form", "syntax") in FORMS, block.place


def test_every_page_with_commands_is_run() -> None:
    runnable = {
        block.page
        for block in BLOCKS
        if block.language in WHERE_RUN and not WHERE_RUN[block.language] & set(block.words)
    }
    assert runnable == set(STAGES)


def test_what_is_not_run_is_little_and_has_a_reason() -> None:
    left = Counter(block.words["not-run"] for block in BLOCKS if "not-run" in block.words)
    assert left == {"a device": 8, "a container engine": 1, "an installation": 9}
    assert set(left) == set(NOT_RUN), "a reason that nobody gives any more is taken out"


def test_what_another_test_runs_is_there() -> None:
    """With an image that it builds beforehand, as no registry is asked."""
    left = [block for block in BLOCKS if "run-by" in block.words]
    assert {block.page for block in left} == {
        *("README.md", "docs/deploy.md", "docs/otg.md", "examples/cloudai/README.md"),
    }
    for block in left:
        words = {word for command in block.commands() for word in command.partition(";")[0].split()}
        text = (ROOT / block.words["run-by"]).read_text()
        assert not [word for word in words - {"docker", "compose", "--build"} if f'"{word}"' not in text]


def test_output_follows_commands() -> None:
    for path in PAGES:
        last = ""
        for block in page_blocks(path):
            if "output" in block.words:
                assert last == "sh", f"{block.place}: no commands stand before this output"
            if block.language in WHERE_RUN:
                last = block.language


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.words.get("form") == "credentials"], ids=lambda b: b.place
)
def test_credentials_can_be_read(block: Block) -> None:
    snmp_credentials(block.text.encode(), Path("credentials.yaml"))


def page_of(text: str) -> list[Block]:
    return list(blocks_of(text, "page.md"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```\nls\n```\n", "page.md:1: a block of ''; write one of"),
        ("```basic\n10\n```\n", "a block of 'basic'"),
        ("```sh\nls\n", "page.md:1: this fence is never closed"),
        ('```sh not-run="no time"\nls\n```\n', "not-run='no time'; the reasons are: a device"),
        ("```sh run-by=tests/none.py\nls\n```\n", "run-by='tests/none.py' is no file of tests"),
        ("```sh run-by=tests/../Makefile\nls\n```\n", "run-by='tests/../Makefile' is no file of tests"),
        ("```sh measured\nls\n```\n", "sh blocks know no measured"),
        ("```text\nls\n```\n", "say what this text is"),
        ("```text output=some\nls\n```\n", "output=some; write output or output=measured"),
        ('```sh not-run="a\nls\n```\n', "cannot be read: No closing quotation"),
    ],
)
def test_a_block_of_no_kind_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        page_of(text)


def test_blocks_are_read_with_their_indent_and_place() -> None:
    first, second = page_of(
        "1. so\n   ```sh\n   a \\\n     b   # c\n\n   # d\n   ```\n\n```yaml\n# rig.yaml\nx: 1\n```\n"
    )
    assert (first.line, first.commands()) == (2, ["a b   # c"])
    assert (second.place, second.file_name()) == ("page.md:9", "rig.yaml")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("took 3.25 ms of 1,024 B", "took 17 us of 2 kB", True),
        ("took 3.25 ms", "needed 3.25 ms", False),
        ("p99 5.5 us", "p50 5.5 us", False),
        ("agents a, b", "agents a", False),
        ("0 of 311880 packets", "12 of 7 packets", True),
        ("min 184637, avg 1,191,809 us", "min 97637.4, avg 99999.9 us", True),
        ("of 5, 6 and 1,024", "of 5 6 and 1,024", False),
    ],
)
def test_measured_lines_are_alike_but_for_figures(one: str, other: str, same: bool) -> None:
    assert (shape(one) == shape(other)) is same


def test_measured_output_may_say_more_and_keeps_its_order() -> None:
    assert differences("a 1\nb 2\n", "a 7\nnote\nb 8\n", measured=True) == []
    assert differences("b 2\na 1\n", "a 7\nnote\nb 8\n", measured=True) == ["a 1"]
    wrapped = "job completion  1234567 us in all; avg 2,\n                max 3 us\n"
    assert differences("job completion  9 us in all; avg 2, max 3 us\n", wrapped, measured=True) == []


def test_a_sentence_that_a_busy_machine_adds_below_a_line_hides_no_line() -> None:
    printed = "job completion  9 us in all\n                (iterations overlap)\nops             3 of 3\n"
    assert differences("job completion  5 us in all\nops             3 of 3\n", printed, measured=True) == []
    assert differences("job completion  5 us in\nops             3 of 3\n", printed, measured=True) == [
        "job completion  5 us in"
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        ("b\nc\n", "a\nb\nc\nd\n", []),
        ("b\nd\n", "a\nb\nc\nd\n", ["b", "d"]),
        ("b\n...\nd\n", "a\nb\nc\nd\n", []),
        ("d\n...\nb\n", "a\nb\nc\nd\n", ["b"]),
        ("jct 5 ms\n", "jct 6 ms\n", ["jct 5 ms"]),
    ],
)
def test_lines_that_nothing_prints_are_found(shown: str, printed: str, missing: list[str]) -> None:
    assert differences(shown, printed, measured=False) == missing


PAGE = """\
```yaml
# made.yaml
a: 1
```
```sh
cat made.yaml   # the file above
echo "rate 5 of 7"
```
```text output
a: 1
```
```text output=measured
rate 9 of 7
```
"""


@namespaces
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("", "", None),
        (
            "cat made",
            "cat other",
            "page.md:5: 'cat other.yaml   # the file above' exited with 1, expected 0; it said:",
        ),
        ("output\na: 1", "output\na: 2", "page.md:9: nothing prints the line 'a: 2'"),
        ("rate 9", "rates 9", "page.md:12: nothing prints the line 'rates 9 of 7'"),
        ("9 of 7", "9 of 8", "page.md:12: the line 'rate 9 of 8' is printed with another 'of 8'"),
        ('echo "rate', 'sleep 60; echo "rate', "did not end in time"),
    ],
)
def test_the_runner_finds_what_is_wrong(tmp_path: Path, old: str, new: str, complaint: str | None) -> None:
    """A wrong command, a wrong line of output, a wrong figure, and a command that hangs."""
    found = objections(page_of(PAGE.replace(old, new, 1)), Stage(equal=(r"of \d+",)), tmp_path, limit_s=5)
    if complaint is None:
        assert found == []
    else:
        assert complaint in found[0]


@namespaces
def test_the_runner_interrupts_and_keeps_what_stays(tmp_path: Path) -> None:
    text = "```sh\nsleep 30\nping\ncat log\n```\n"
    steps = {
        "sleep": Step(change={"sleep": "sh -c 'echo ready; sleep $0'"}, stays="ready"),
        "ping": Step(change={"ping": "sh -c 'echo 1; exec sleep 60'"}, until="1", exits=(1, 130)),
        "cat": Step(before="echo so > log"),
    }
    assert objections(page_of(text), Stage(steps=steps), tmp_path, limit_s=30) == []


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        ({"rm": Step()}, "'rm' fits 0 commands of the page"),
        ({"echo": Step()}, "'echo' fits 2 commands of the page"),
        ({"echo#2": Step(change={"x": "d"})}, "'echo b' has no 'x' to be replaced"),
    ],
)
def test_a_step_that_fits_nothing_is_refused(tmp_path: Path, step: dict[str, Step], complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        objections(page_of("```sh\necho a\necho b\n```\n"), Stage(steps=step), tmp_path)

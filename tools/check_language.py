"""Count banned words and names in product code and pages: `tools/check_language.py [--list ROOM | --write [--raise]]`.

tests/repo/language_counts.json holds the allowed count of each pattern in each room; tests/repo/test_language.py requires
that it equals the present count. --list prints every use in a room. --write lowers the table to the present counts, and
raises no count without --raise. Patterns that no program recognises, such as two facts joined by a semicolon, are left to
reviewers.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.link_package import ROOT, rooms

TABLE: Final = ROOT / "tests" / "repo" / "language_counts.json"
COMMAND: Final = ".venv/bin/python tools/check_language.py"
MOST_SHOWN: Final = 10

Counts = dict[str, dict[str, int]]
"""Room -> name of a pattern -> number of uses; no zeros."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Banned prose."""

    name: str
    stems: tuple[str, ...]
    """Texts without any of these have no match; searching for them is much faster than the expression."""
    expression: re.Pattern[str]
    instead: str


def _pattern(name: str, stems: str, expression: str, instead: str) -> Pattern:
    return Pattern(name, tuple(stems.split()), re.compile(expression, re.MULTILINE), instead)


_OPENING: Final = r"(?:^|[.:;(] |\"|# |// )"
"""The beginning of a sentence, a comment or a string."""

PATTERNS: Final = (
    _pattern(
        "what-clause",
        "what What",
        r"\b(?:of|for|with|from|by|to|than|and|in|at|is|are|as|or|on|that) what\b"
        rf"|{_OPENING}What\b(?![^.\"]*\?)",
        "name the thing: 'the right required', not 'what it takes'",
    ),
    _pattern(
        "of-opener",
        "Of",
        rf"{_OPENING}Of (?:an?|the|those|these|what|all|each|every|one|two|no|its|several|which|whom|others|ours) ",
        "begin with the subject",
    ),
    _pattern(
        "nobody",
        "obody omebody othing",
        r"\b(?:[Nn]obody|[Ss]omebody)\b"
        r"|\b[Nn]othing (?:of|is|are|was|goes|comes|came|waits|has|had|can|may|must|does|runs|stays|but|stands)\b",
        "state the condition: 'if no agent answers'",
    ),
    _pattern(
        "is-no",
        "is are was were",
        r"(?<!here )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|such\b)[a-z]",
        "say what it is, or 'is not a'",
    ),
    _pattern("tell", "told tell", r"\b(?:told|tells?)\b", "report, show, pass, distinguish"),
    _pattern("say", "sa", r"\b(?:says?|said|saying) (?:of|for)\b", "state, report, describe"),
    _pattern("stand", "stand stood", r"\b(?:stands?|stood|standing)\b(?! alone)", "is, represents, contains"),
    _pattern(
        "hold-against",
        "against",
        r"\b(?:held|holds?|holding) (?:\w+ )?(?:\w+ )?against\b",
        "compared with",
    ),
    _pattern("mend", "mend", r"\bmend(?:s|ed|ing)?\b", "repair, fix"),
    _pattern("aside", "aside", r"\baside\b", "separately, except"),
    _pattern("believe", "believe", r"\bbelieve[sd]?\b", "trusted, accepted, used"),
    _pattern("judge", "judge judging", r"\bjudg(?:es?|ed|ing)\b", "decide, evaluate, compare"),
    _pattern("obey", "obey", r"\bobey(?:s|ed|ing)?\b", "follow, honour, apply"),
    _pattern("lead", "lead led", r"\b(?:leads?|led)\b(?! to\b| time\b)", "forward, route, connect"),
    _pattern("what-it-takes", "it takes", r"\bwhat it takes\b", "requirements, cost"),
    _pattern("whose-own", "whose own", r"\bwhose own\b", "name the owner"),
    _pattern("beside", "eside", r"\b[Bb]esides?\b", "next to, in addition to, compared with"),
    _pattern("ours", "ours", r"\bours\b", "name it: this port's, the agent's"),
    _pattern("is-due", "due", r"\b(?:is|are|was|were|falls?) due\b", "expires, must be sent"),
    _pattern("goes-by", "go", r"\b(?:goes?|going) by\b", "is selected by, depends on"),
    _pattern("people-write", "as people", r"\bas people (?:write|say|call)\b", "name the notation"),
    _pattern(
        "bare-pronoun",
        '"""',
        r'"""(?:It|They|Its|Their|Them|This|That|Those|These)\b',
        "begin with a verb or a noun",
    ),
)

VAGUE_NAMES: Final = frozenset("one what found each it given taken".split())
"""Names of variables and parameters that do not tell the reader what they hold."""

_IRREGULAR: Final = frozenset(
    "begun bound broken brought built chosen come cut done drawn driven fallen felt found given gone grown heard held kept known"
    " laid left lost made meant met paid said seen sent shown sold sought spent spoken stood taken thought thrown told understood"
    " won written".split()
)
_VERBS_IN_ED: Final = frozenset("bleed embed exceed feed need proceed seed shed speed succeed".split())
_NO_PARTICIPLE: Final = frozenset({"bound", "cut", "felt", "left"})


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a banned pattern."""

    path: str
    line: int
    pattern: str
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.pattern}: {self.text!r}: {self.instead}"


def room_of(path: str) -> str:
    """Return the row of the table that a file counts in: two folders deep for code, the top folder for pages."""
    folders = path.split("/")[:-1]
    if not folders:
        return "pages"
    return "/".join(folders[:1] if folders[0] in {"docs", "examples", "tools"} else folders[:2])


def prose_uses(path: str, text: str) -> Iterator[Use]:
    """Yield the banned prose of a file, its code included; headings of pages may be questions."""
    if path.endswith(".md"):
        text = re.sub(r"^#+ .*", "", text, flags=re.MULTILINE)
    for pattern in PATTERNS:
        if any(stem in text for stem in pattern.stems):
            for match in pattern.expression.finditer(text):
                line = text.count("\n", 0, match.end()) + 1
                yield Use(path, line, pattern.name, match.group().strip(), pattern.instead)


def is_participle(name: str) -> bool:
    """Return whether a name is a participle alone, such as `found` or `_joined`."""
    word = name.strip("_")
    return word in _IRREGULAR - _NO_PARTICIPLE or (
        re.fullmatch(r"[a-z]{2,}ed", word) is not None and word not in _VERBS_IN_ED
    )


def name_uses(path: str, source: str) -> Iterator[Use]:
    """Yield the vague variables of a module, and its functions (not properties) that are named by a participle alone."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE_NAMES:
            yield Use(path, node.lineno, "vague-name", node.id, "name the variable for its content")
        elif isinstance(node, ast.arg) and node.arg in VAGUE_NAMES:
            yield Use(path, node.lineno, "vague-name", node.arg, "name the parameter for its content")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name):
            decorators = {getattr(decorator, "id", "") for decorator in node.decorator_list}
            if not decorators & {"property", "cached_property"}:
                yield Use(path, node.lineno, "participle", node.name, "name the function by a verb")


def product_files() -> list[Path]:
    """Return the code and pages written by hand, without tests and without what tools generate."""
    folders = [*rooms().values(), *(ROOT / name for name in ("tools", "docs", "examples"))]
    suffixes = {".py", ".pyi", ".cpp", ".h", ".md", ".yaml"}
    paths = [path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes]
    paths += ROOT.glob("*.md")
    return sorted(
        path
        for path in paths
        if path != Path(__file__).resolve() and "Written by tools/" not in path.read_text("utf-8")[:300]
    )


def all_uses() -> list[Use]:
    """Return every use of a banned pattern in the product."""
    uses: list[Use] = []
    for file in product_files():
        path, text = file.relative_to(ROOT).as_posix(), file.read_text("utf-8")
        uses += prose_uses(path, text)
        if file.suffix == ".py":
            uses += name_uses(path, text)
    return uses


def counts_of(uses: list[Use]) -> Counts:
    """Return the uses by room and pattern."""
    counter = Counter((room_of(use.path), use.pattern) for use in uses)
    counts: Counts = {}
    for (room, pattern), number in sorted(counter.items()):
        counts.setdefault(room, {})[pattern] = number
    return counts


def allowed_counts() -> Counts:
    """Return the table."""
    table: Counts = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    return table


def _flat(counts: Mapping[str, Mapping[str, int]]) -> Counter[tuple[str, str]]:
    return Counter({(room, name): number for room, row in counts.items() for name, number in row.items()})


def differences(uses: list[Use], allowed: Counts) -> list[str]:
    """Return what differs from the table, with the remedy; for a count that grew, the uses of its pattern in the room."""
    present, permitted = _flat(counts_of(uses)), _flat(allowed)
    complaints = []
    for room, name in sorted(present.keys() | permitted.keys()):
        has, may = present[room, name], permitted[room, name]
        if has > may:
            places = [str(use) for use in uses if (room_of(use.path), use.pattern) == (room, name)]
            complaints.append(f"{room}: {name}: {has} uses, {may} are allowed: rewrite what you added")
            complaints += [f"  {place}" for place in places[:MOST_SHOWN]]
        elif has < may:
            complaints.append(f"{room}: {name}: {has} uses, the table has {may}: run {COMMAND} --write")
    return complaints


def main() -> int:
    """Print the counts, list the uses of a room, or rewrite the table; return the exit code."""
    parser = argparse.ArgumentParser(description="Count banned words and names.")
    parser.add_argument("--list", metavar="ROOM", help="print every use in a room, such as controller/run")
    parser.add_argument("--write", action="store_true", help="rewrite the table with the present counts")
    parser.add_argument("--raise", dest="growth", action="store_true", help="with --write: also raise counts")
    arguments = parser.parse_args()
    uses = all_uses()
    counts = counts_of(uses)
    if arguments.list is not None:
        print(*(use for use in uses if room_of(use.path) == arguments.list), sep="\n")
        return 0
    if arguments.write:
        grown = [line for line in differences(uses, allowed_counts()) if "are allowed" in line]
        if grown and not arguments.growth:
            print(*grown, sep="\n")
            return 1
        TABLE.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    for room, row in counts.items():
        print(f"{sum(row.values()):6,} {room}: {', '.join(f'{name} {count}' for name, count in row.items())}")
    print(f"{len(uses):6,} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())

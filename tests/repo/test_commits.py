"""Subjects of commits are "room: imperative" in at most 72 characters, so that `git log --oneline` serves as an index."""

from __future__ import annotations

import re
import subprocess
from typing import Final

import pytest

from tests.support.places import ROOT
from tools.link_package import rooms

FIRST_EXEMPT: Final = "3af2462c"
"""The last commit before the rule."""
LONGEST: Final = 72
AREAS: Final = frozenset(
    {folder.name for room in rooms().values() for folder in (room, *room.rglob("*")) if folder.is_dir()}
    | {"build", "ci", "deploy", "docs", "examples", "repo", "tests", "tools"}
)
"""Rooms at any depth, and what is not of a room."""
VERB: Final = re.compile(r"(?!(?:the|an?|no|all|of|what)\b)[a-z]+\b(?<![^s]s)(?<!ed)(?<!ing)(?= )")
"""An imperative: no article, third person, past or continuous form."""
VERBS_LIKE_OTHER_FORMS: Final = frozenset("bring embed feed focus need proceed seed shed speed".split())


def objections(subject: str) -> list[str]:
    """Return what is wrong with the subject of a commit."""
    wrong = [f"{len(subject)} characters, at most {LONGEST}"] * (len(subject) > LONGEST)
    areas, colon, act = subject.partition(": ")
    if not colon or not set(areas.split(", ")) <= AREAS:
        return [*wrong, "begin with a room (the name of a folder, or repo) and a colon"]
    if not VERB.match(act) and act.partition(" ")[0] not in VERBS_LIKE_OTHER_FORMS:
        wrong.append("go on with an imperative: 'traffic: filter captured frames'")
    return wrong


def subjects() -> list[str]:
    """Return the subjects of all commits since the rule, merges excepted; skip without a history."""
    command = ("git", "log", "--no-merges", "--format=%s", f"{FIRST_EXEMPT}..HEAD")
    try:
        log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the commit history is not here")
    return log.stdout.splitlines()


def test_subjects_name_a_room_and_an_act() -> None:
    assert {subject: wrong for subject in subjects() if (wrong := objections(subject))} == {}


@pytest.mark.parametrize(
    ("subject", "wrong"),
    [
        ("traffic: name the form of a stream's counts", 0),
        ("contract, bench: shorten local names", 0),
        ("results: pass the figures as measured", 0),
        ("Columns", 1),
        ("nowhere: add a column", 1),
        ("traffic: adds a column", 1),
        ("traffic: added a column", 1),
        ("traffic: adding a column", 1),
        ("traffic: the columns", 1),
        (f"traffic: add {'a' * 60}", 1),
    ],
)
def test_planted_subjects_are_found(subject: str, wrong: int) -> None:
    assert len(objections(subject)) == wrong

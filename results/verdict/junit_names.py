"""What a case of junit.xml is called: unique among files that are collected together, the same from one execution to the next.

Decides what identifies a run: its job, a digest of scenario, rig and topology as values, and its directory (in a sweep: point and
repeat), without which a run before and one after a change of firmware would have the same names.
Conditions are not in the digest, so that a stricter one does not rename the others; nor are addresses, which a machine may draw
anew. Test systems know a case by (classname, name) and nothing else. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.yaml_tree import values_by_path
from etloop.results.schema.verdict import CheckOutcome

RUN_CASE: Final = "run"
_LONGEST_NAME: Final = 240
"""Characters of a condition, and of why it is one: some readers cut longer names off."""
_UNLIKE_FROM_RUN_TO_RUN: Final = re.compile(r"(^|\.)(verdict|controller|addresses|bind|address)(\.|\[|$)")
_REPEAT: Final = re.compile(r"\.?(r[0-9]+)(\.partial)?")
_POINT: Final = re.compile(r"p[0-9]+")


def run_class(source: str, texts: Sequence[str | bytes]) -> str:
    """Return what a run is called by its job, `source`, and by its scenario, rig and topology, "" where it has none."""
    digest = hashlib.blake2b(digest_size=5)
    for text in texts:
        digest.update(f"{_values_text(text)}\0".encode(errors="replace"))
    return f"{plain_word(source)}.{digest.hexdigest()}"


def _values_text(text: str | bytes) -> str:
    content = text if isinstance(text, bytes) else text.encode(errors="replace")
    try:
        values = values_by_path(content, "")
    except ConfigError:
        return content.decode(errors="replace")
    return "\n".join(
        f"{path}={values[path]}" for path in sorted(values) if not _UNLIKE_FROM_RUN_TO_RUN.search(path)
    )


def place_in_sweep(run_dir: Path) -> str:
    """Return point and repeat of a run in the directory of a sweep, such as `p000.r001`; "" for any other run."""
    repeat, point = _REPEAT.fullmatch(run_dir.name), run_dir.parent.name
    return f"{point}.{repeat[1]}" if repeat and _POINT.fullmatch(point) else ""


def place_of(run_dir: Path) -> str:
    """Return what tells a run from another one of the same files: its place in a sweep, else the names of its directory and of
    the directory above it, such as `runs.before`."""
    directory = run_dir.absolute()
    names = (directory.parent.name, directory.name)
    return place_in_sweep(directory) or ".".join(plain_word(name) for name in names if name)


def plain_word(text: str) -> str:
    """Return a text as one part of a classname, whose parts end at dots; unlike texts stay unlike."""
    word = re.sub(r"[^\w+=-]+", "-", text).strip("-") or "-"
    if word == text:
        return word
    return f"{word[:80]}-{hashlib.blake2b(text.encode(errors='replace'), digest_size=2).hexdigest()}"


def case_names(checks: Sequence[CheckOutcome]) -> tuple[str, ...]:
    """Return a name for each condition: its text and why it is one, numbered where both are alike."""
    return unique_names(
        (f"{_cut(one.expression)} ({_cut(one.why)})" if one.why.strip() else _cut(one.expression))
        for one in checks
    )


def _cut(text: str) -> str:
    plain = " ".join(printable_xml(text).split())
    return plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME - 3]}..."


def unique_names(names: Iterable[str], taken: Iterable[str] = (RUN_CASE,)) -> tuple[str, ...]:
    """Return the names with ` [2]`, ` [3]` and so on behind those that were there before, in their order."""
    used = set(taken)
    found = []
    for name in names:
        number, fresh = 1, name
        while fresh in used:
            number += 1
            fresh = f"{name} [{number}]"
        used.add(fresh)
        found.append(fresh)
    return tuple(found)


def printable_xml(text: str) -> str:
    """Return a text without characters that XML 1.0 cannot carry (its section 2.2)."""
    return "".join(
        character
        if character in "\t\n"
        or " " <= character <= "\ud7ff"
        or "\ue000" <= character <= "\ufffd"
        or character > "\uffff"
        else "?"
        for character in text
    )

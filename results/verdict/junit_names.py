"""Names of the cases in junit.xml: unique among files that are collected together, stable from one execution to the next.

Decides what identifies a run: its job, a digest of scenario, rig and topology as values, and its directory (in a sweep:
point and repeat). Without the directory, runs before and after a change of firmware would have the same names. Conditions
are not in the digest, so that a stricter one does not rename the others; nor are addresses, which a machine may allocate
anew. Test systems identify a case by (classname, name) alone. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.yaml_tree import values_by_path
from etloop.results.schema.verdict import ConditionOutcome

RUN_CASE: Final = "run"
_LONGEST_NAME: Final = 240
"""Most characters of a condition, and of its `why`: some readers truncate longer names."""
_UNLIKE_FROM_RUN_TO_RUN: Final = re.compile(r"(^|\.)(verdict|controller|addresses|bind|address)(\.|\[|$)")
_REPEAT: Final = re.compile(r"\.?(r[0-9]+)(\.partial)?")
_POINT: Final = re.compile(r"p[0-9]+")


def run_class(source: str, texts: Sequence[str | bytes], ignored: tuple[str, ...] = ()) -> str:
    """Return the class name of a run from its job (`source`) and the texts of its scenario, rig and topology ("" if absent),
    without values whose paths begin as one of `ignored`."""
    digest = hashlib.blake2b(digest_size=5)
    for text in texts:
        digest.update(f"{_values_text(text, ignored)}\0".encode(errors="replace"))
    return f"{plain_word(source)}.{digest.hexdigest()}"


# Cached because the runs of a sweep share most of their files.
@lru_cache(maxsize=8)
def _values_text(text: str | bytes, ignored: tuple[str, ...]) -> str:
    """Return the values of a YAML text, one `path=value` a line, without those that differ from run to run."""
    content = text if isinstance(text, bytes) else text.encode(errors="replace")
    try:
        values = values_by_path(content, "")
    except ConfigError:
        return content.decode(errors="replace")
    return "\n".join(
        f"{path}={values[path]}"
        for path in sorted(values)
        if not _UNLIKE_FROM_RUN_TO_RUN.search(path) and not path.startswith(ignored)
    )


def place_in_sweep(run_dir: Path) -> str:
    """Return point and repeat of a run in the directory of a sweep, such as `p000.r001`; "" for any other run."""
    repeat, point = _REPEAT.fullmatch(run_dir.name), run_dir.parent.name
    return f"{point}.{repeat[1]}" if repeat and _POINT.fullmatch(point) else ""


def place_of(run_dir: Path) -> str:
    """Return what distinguishes runs of the same files: the place in a sweep, else the names of the run directory and of
    its parent, such as `runs.before`."""
    directory = run_dir.absolute()
    names = (directory.parent.name, directory.name)
    return place_in_sweep(directory) or ".".join(plain_word(name) for name in names if name)


def plain_word(text: str) -> str:
    """Return a text as one part of a classname, whose parts end at dots; different texts stay different."""
    word = re.sub(r"[^\w+=-]+", "-", text).strip("-") or "-"
    if word == text:
        return word
    return f"{word[:80]}-{hashlib.blake2b(text.encode(errors='replace'), digest_size=2).hexdigest()}"


def case_names(outcomes: Sequence[ConditionOutcome]) -> tuple[str, ...]:
    """Return a name for each condition: its text and its `why`, numbered if several are equal."""
    return unique_names(
        f"{_cut(outcome.expression)} ({_cut(outcome.why)})"
        if outcome.why.strip()
        else _cut(outcome.expression)
        for outcome in outcomes
    )


def _cut(text: str) -> str:
    plain = " ".join(printable_xml(text).split())
    return plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME - 3]}..."


def unique_names(names: Iterable[str], reserved_names: Iterable[str] = (RUN_CASE,)) -> tuple[str, ...]:
    """Return the names in their order; repeated ones, and those in `reserved_names`, get ` [2]`, ` [3]` and so on appended."""
    used = set(reserved_names)
    unique = []
    for name in names:
        number, fresh = 1, name
        while fresh in used:
            number += 1
            fresh = f"{name} [{number}]"
        used.add(fresh)
        unique.append(fresh)
    return tuple(unique)


def printable_xml(text: str) -> str:
    """Return a text with `?` for each character that XML 1.0 cannot carry (its section 2.2)."""
    return "".join(
        character
        if character in "\t\n"
        or " " <= character <= "\ud7ff"
        or "\ue000" <= character <= "\ufffd"
        or character > "\uffff"
        else "?"
        for character in text
    )

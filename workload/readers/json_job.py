"""Selects the JSON files in a place that belong to a job.

`.et` files in the same place take precedence. Host and Kineto traces of the same ranks, side by side, are one job.
Names decide if they are sufficient; only otherwise are the heads of the files read. Leaves reading the files to
json_ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.decompression import CompressionFault, decompress
from etloop.workload.readers.json_names import Family, families, lone, with_rank
from etloop.workload.readers.stores import Directory, Store, first_bytes, unreadable
from etloop.workload.readers.tar_members import TarFault
from etloop.workload.trace.trace_names import by_prefix, printable_name, rank_problems, short_list

if TYPE_CHECKING:
    from etloop.workload.readers.json_sources import JsonForm

PAIR_MARK: Final = "+"
"""Separator between the two sources of one job: HOST+KINETO."""

_ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")


@dataclass(frozen=True, slots=True)
class Part:
    """Files of one kind for all ranks of a job."""

    store: Store
    family: Family


def two_sources(source: Path) -> tuple[Path, Path] | None:
    """Return the two paths of HOST+KINETO; the second may be relative to the folder of the first. None for any other
    source."""
    text = str(source)
    mark = text.find(PAIR_MARK)
    while mark > 0 and not source.exists():
        first, second = Path(text[:mark]), Path(text[mark + 1 :])
        if first.exists() and text[mark + 1 :]:
            sibling = first.parent / second
            if second.exists() or sibling.exists():
                return first, second if second.exists() else sibling
        mark = text.find(PAIR_MARK, mark + 1)
    return None


def archives_of_a_pair(store: Store, wanted: str, names: frozenset[str]) -> tuple[Path, ...]:
    """Return the archives of a directory that contains exactly two and no traces of its own; else ()."""
    if (
        wanted
        or not isinstance(store, Directory)
        or by_prefix(names)
        or any(family.ranked for family in families(names))
    ):
        return ()
    archives = tuple(store.path / name for name in sorted(names) if name.endswith(_ARCHIVES))
    return archives if len(archives) == 2 else ()


def json_parts(
    source: Path, store: Store, wanted: str, names: frozenset[str], *, gaps: bool = False
) -> tuple[Part, ...]:
    """Return the JSON files that `source` means; () if it means `.et` files or has none. `gaps`: ranks may be missing.
    Raises `TraceError`."""
    et_prefixes = by_prefix(names)
    if wanted in names and not by_prefix((wanted,)):
        return (Part(store, lone(wanted)),)
    if any(_below(prefix, wanted) for prefix in et_prefixes):
        return ()
    matching = [family for family in families(names) if _below(family.prefix, wanted)]
    exact = [family for family in matching if family.prefix == wanted]
    if not exact and any(family.ranked for family in matching):
        # Next to files with ranks, a file without a rank counts as a job only if its content is a trace.
        matching = [family for family in matching if family.ranked or _form(Part(store, family)) is not None]
    matching = exact or matching
    parts = tuple(Part(store, family) for family in matching)
    problems = _objections(source, parts, gaps=gaps)
    if not problems:
        return parts
    # Names given by profilers contain host, process and time. The ranks stated in the files then decide.
    stated_parts = _stated_parts(store, parts)
    if isinstance(stated_parts, str):
        reason = f"; {stated_parts}" if stated_parts else ""
        raise TraceError(*(replace(problem, what=f"{problem.what}{reason}") for problem in problems))
    return same_ranks(source, stated_parts, gaps=gaps)


def _objections(source: Path, parts: tuple[Part, ...], *, gaps: bool) -> tuple[Problem, ...]:
    """Return why the parts, as grouped by name, are not one job."""
    if len(parts) > 2 or (len(parts) == 2 and not _is_pair(parts)):
        prefixes = short_list(part.family.prefix for part in parts)
        first = parts[0].family
        root = printable_name(parts[0].store.where(first.prefix if first.ranked else first.files[0].name))
        problem = f"has the traces of several jobs: {prefixes}"
        return (
            Problem(printable_name(str(source)), problem, f"name one by its prefix or file, such as {root}"),
        )
    return tuple(_rank_objections(source, parts, gaps=gaps))


def _stated_parts(store: Store, parts: tuple[Part, ...]) -> tuple[Part, ...] | str:
    """Return the parts by the ranks that their files state; else the reason, or "" if the files state no more than
    their names."""
    from etloop.workload.readers.json_stated import stated_families

    names = [file.name for part in parts for file in part.family.files]
    try:
        stated = stated_families(store, names)
    except (OSError, CompressionFault, TarFault) as error:
        raise TraceError(unreadable(store.where(""), error)) from None
    return stated if isinstance(stated, str) else tuple(Part(store, family) for family in stated)


def _below(prefix: str, wanted: str) -> bool:
    return not wanted or prefix == wanted or prefix.startswith(wanted + "/")


def _is_pair(parts: tuple[Part, ...]) -> bool:
    from etloop.workload.readers.json_sources import JsonForm

    return {_form(part) for part in parts} == {JsonForm.HOST, JsonForm.KINETO}


def _form(part: Part) -> JsonForm | None:
    """Return the form of the part's first file, None for an unknown one."""
    from etloop.workload.readers.json_sources import HEAD_BYTES, form_of

    first = part.family.files[0].name
    contents = part.store.contents(frozenset((first,)))
    return next((form_of(first_bytes(_plain(pieces), HEAD_BYTES)) for _, pieces in contents), None)


def _plain(pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield from decompress(pieces)


def same_ranks(source: Path, parts: tuple[Part, ...], *, gaps: bool = False) -> tuple[Part, ...]:
    """Return the parts if all have the same ranks 0..n-1, each once; with `gaps` some may be missing. Raises
    `TraceError`."""
    if problems := _rank_objections(source, parts, gaps=gaps):
        raise TraceError(*problems)
    return parts


def _rank_objections(source: Path, parts: tuple[Part, ...], *, gaps: bool) -> list[Problem]:
    problems: list[Problem] = []
    for part in parts:
        files = part.family.files
        name_of_rank = "the trace of rank {}".format if part.family.stated else partial(with_rank, files[0])
        problems += rank_problems(printable_name(str(source)), files, name_of_rank, gaps=gaps)
    counts = {len(part.family.files) for part in parts}
    if len(counts) > 1:
        problem = f"host and Kineto traces have different numbers of ranks: {' and '.join(map(str, sorted(counts)))}"
        problems.append(Problem(printable_name(str(source)), problem, "give both for every rank"))
    return problems


def group_file_of(part: Part, names: frozenset[str]) -> str:
    """Return the name of the group file next to the traces, "" if there is none."""
    name = f"{part.family.prefix}.json"
    return name if part.family.ranked and name in names else ""

"""The JSON files of a job: which of those in a place belong to it.

`.et` files in the same place come first. Host and Kineto traces of the same ranks side by side are one job. Names decide, as
far as they can; what is in the files is asked only where they cannot, and json_ranks reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.decompression import CompressionFault, decompressed
from etloop.workload.readers.json_names import Family, families, lone, with_rank
from etloop.workload.readers.stores import Directory, Store, bounded, unreadable
from etloop.workload.readers.tar_members import TarFault
from etloop.workload.trace.trace_names import by_prefix, listed, rank_problems, shown

if TYPE_CHECKING:
    from etloop.workload.readers.json_sources import JsonForm

PAIR_MARK: Final = "+"
"""Between the two sources of one job: HOST+KINETO."""

_ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")


@dataclass(frozen=True, slots=True)
class Part:
    """Files of one kind for all ranks of a job."""

    store: Store
    family: Family


def two_sources(source: Path) -> tuple[Path, Path] | None:
    """The two places of HOST+KINETO; the second may be named beside the first. None for any other source."""
    text = str(source)
    at = text.find(PAIR_MARK)
    while at > 0 and not source.exists():
        first, second = Path(text[:at]), Path(text[at + 1 :])
        if first.exists() and text[at + 1 :]:
            beside = first.parent / second
            if second.exists() or beside.exists():
                return first, second if second.exists() else beside
        at = text.find(PAIR_MARK, at + 1)
    return None


def archives_of_a_pair(store: Store, wanted: str, names: frozenset[str]) -> tuple[Path, ...]:
    """The archives of a directory that holds two of them and no traces of its own."""
    if (
        wanted
        or not isinstance(store, Directory)
        or by_prefix(names)
        or any(one.ranked for one in families(names))
    ):
        return ()
    archives = tuple(store.path / name for name in sorted(names) if name.endswith(_ARCHIVES))
    return archives if len(archives) == 2 else ()


def json_parts(
    source: Path, store: Store, wanted: str, names: frozenset[str], *, gaps: bool = False
) -> tuple[Part, ...]:
    """The JSON files that `source` means; () where it means `.et` files or nothing. `gaps`: ranks may be missing."""
    et_prefixes = by_prefix(names)
    if wanted in names and not by_prefix((wanted,)):
        return (Part(store, lone(wanted)),)
    if any(_below(prefix, wanted) for prefix in et_prefixes):
        return ()
    found = [one for one in families(names) if _below(one.prefix, wanted)]
    exact = [one for one in found if one.prefix == wanted]
    if not exact and any(one.ranked for one in found):
        # A file without a rank beside those of ranks is a job of its own only if it is a trace at all.
        found = [one for one in found if one.ranked or _form(Part(store, one)) is not None]
    found = exact or found
    parts = tuple(Part(store, one) for one in found)
    problems = _objections(source, parts, gaps=gaps)
    if not problems:
        return parts
    # Names that profilers give tell host, process and time; what the files say of themselves then decides.
    stated = _stated(store, parts)
    if isinstance(stated, str):
        why = f"; {stated}" if stated else ""
        raise TraceError(*(replace(each, what=f"{each.what}{why}") for each in problems))
    return same_ranks(source, stated, gaps=gaps)


def _objections(source: Path, parts: tuple[Part, ...], *, gaps: bool) -> tuple[Problem, ...]:
    """What keeps the parts that names tell from being one job."""
    if len(parts) > 2 or (len(parts) == 2 and not _is_pair(parts)):
        several = listed(one.family.prefix for one in parts)
        first = parts[0].family
        root = shown(parts[0].store.where(first.prefix if first.ranked else first.files[0].name))
        what = f"has the traces of several jobs: {several}"
        return (Problem(shown(str(source)), what, f"name one by its prefix or file, such as {root}"),)
    return tuple(_rank_objections(source, parts, gaps=gaps))


def _stated(store: Store, parts: tuple[Part, ...]) -> tuple[Part, ...] | str:
    """The parts by what their files state; why there are none, or "" for files that cannot be read."""
    from etloop.workload.readers.json_stated import stated_families

    names = [file.name for part in parts for file in part.family.files]
    try:
        found = stated_families(store, names)
    except (OSError, CompressionFault, TarFault) as error:
        raise TraceError(unreadable(store.where(""), error)) from None
    return found if isinstance(found, str) else tuple(Part(store, one) for one in found)


def _below(prefix: str, wanted: str) -> bool:
    return not wanted or prefix == wanted or prefix.startswith(wanted + "/")


def _is_pair(parts: tuple[Part, ...]) -> bool:
    from etloop.workload.readers.json_sources import JsonForm

    return {_form(part) for part in parts} == {JsonForm.HOST, JsonForm.KINETO}


def _form(part: Part) -> JsonForm | None:
    """Return the form of the first file."""
    from etloop.workload.readers.json_sources import HEAD_BYTES, form_of

    first = part.family.files[0].name
    contents = part.store.contents(frozenset((first,)))
    return next((form_of(bounded(_plain(pieces), HEAD_BYTES)) for _, pieces in contents), None)


def _plain(pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield from decompressed(pieces)


def same_ranks(source: Path, parts: tuple[Part, ...], *, gaps: bool = False) -> tuple[Part, ...]:
    """The parts, if each has the ranks 0..n-1 once and all the same; with `gaps` some of them."""
    if problems := _rank_objections(source, parts, gaps=gaps):
        raise TraceError(*problems)
    return parts


def _rank_objections(source: Path, parts: tuple[Part, ...], *, gaps: bool) -> list[Problem]:
    problems: list[Problem] = []
    for part in parts:
        files = part.family.files
        named = "the trace of rank {}".format if part.family.stated else partial(with_rank, files[0])
        problems += rank_problems(shown(str(source)), files, named, gaps=gaps)
    counts = {len(part.family.files) for part in parts}
    if len(counts) > 1:
        what = f"host and Kineto traces are of different numbers of ranks: {' and '.join(map(str, sorted(counts)))}"
        problems.append(Problem(shown(str(source)), what, "give both for every rank"))
    return problems


def group_file_of(part: Part, names: frozenset[str]) -> str:
    """Name of the group file beside the traces, "" if there is none."""
    name = f"{part.family.prefix}.json"
    return name if part.family.ranked and name in names else ""

"""Traces to `.et` files, rank by rank, with their group file."""

from __future__ import annotations

import contextlib
import filecmp
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from etloop.contract.base.errors import Problem, TraceError
from etloop.workload.chakra.encoder import EtNode, encode_trace
from etloop.workload.trace.trace_names import by_prefix, listed, shown


def write_et(path: Path, nodes: Iterable[EtNode], metadata: bytes | None = None) -> None:
    """Write one rank's trace; `metadata` is an encoded `GlobalMetadata`, by default of the current version."""
    with path.open("wb") as file:
        for piece in encode_trace(nodes, metadata):
            file.write(piece)


def write_trace(
    directory: Path,
    ranks: Sequence[Iterable[EtNode]],
    groups: Mapping[str, Sequence[int]] | None = None,
    prefix: str = "w",
    metadata: bytes | None = None,
    *,
    keep: bool = False,
) -> None:
    """Write PREFIX.<rank>.et for every rank, and PREFIX.json if there are groups; `metadata` as `write_et` takes it.

    Each file appears whole. With `keep`, those that are there already stay if they are the same. Raises `TraceError` if the
    directory cannot be written or has trace files of another job, without `keep` of any: ranks of two jobs would mix.
    """
    ours = {f"{prefix}.{rank}.et" for rank in range(len(ranks))}
    ours |= {f"{prefix}.json"} if groups is not None else set()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        present = {
            file.name
            for files in by_prefix(path.name for path in directory.iterdir()).values()
            for file in files
        }
        if found := sorted(present - ours if keep else present):
            what = f"has trace files already: {listed(found)}"
            raise TraceError(
                Problem(shown(str(directory)), what, "choose an empty directory, or remove them")
            )
        for rank, nodes in enumerate(ranks):
            with _whole(directory / f"{prefix}.{rank}.et") as path:
                write_et(path, nodes, metadata)
        if groups is not None:
            with _whole(directory / f"{prefix}.json") as path:
                text = json.dumps({key: list(members) for key, members in groups.items()})
                path.write_text(text + "\n")
    except OSError as error:
        raise TraceError(
            Problem(shown(str(directory)), f"cannot be written: {error.strerror or error}", "choose another")
        ) from None


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file to write, which takes its place once it is whole. Raises `TraceError` where a different one has it."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        yield unfinished
        if path.exists() and not filecmp.cmp(path, unfinished, shallow=False):
            what = "is a trace of another job, or of another version's synth"
            raise TraceError(Problem(shown(str(path)), what, "choose an empty directory, or remove it"))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)

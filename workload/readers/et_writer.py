"""Writes traces to `.et` files, one per rank, with their group file."""

from __future__ import annotations

import contextlib
import filecmp
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from etloop.contract.base.errors import Problem, TraceError
from etloop.workload.chakra.encoder import EtNode, Framed, encode_trace
from etloop.workload.trace.trace_names import by_prefix, printable_name, short_list


def write_et(path: Path, nodes: Iterable[EtNode | Framed], metadata: bytes | None = None) -> None:
    """Write one rank's trace. `metadata` is an encoded `GlobalMetadata`; None writes that of the current version."""
    with path.open("wb") as file:
        for piece in encode_trace(nodes, metadata):
            file.write(piece)


def write_trace(
    directory: Path,
    ranks: Sequence[Iterable[EtNode | Framed]],
    groups: Mapping[str, Sequence[int]] | None = None,
    prefix: str = "w",
    metadata: bytes | None = None,
    *,
    keep: bool = False,
) -> None:
    """Write PREFIX.<rank>.et for every rank, and PREFIX.json if there are groups; `metadata` is as in `write_et`.

    Each file appears complete or not at all. With `keep`, existing files of the same content stay. Raises
    `TraceError` if the directory cannot be written or has trace files of another job (without `keep`: any trace
    files), because ranks of two jobs would mix.
    """
    own_names = {f"{prefix}.{rank}.et" for rank in range(len(ranks))}
    own_names |= {f"{prefix}.json"} if groups is not None else set()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        present = {
            file.name
            for files in by_prefix(path.name for path in directory.iterdir()).values()
            for file in files
        }
        if existing := sorted(present - own_names if keep else present):
            problem = f"has trace files already: {short_list(existing)}"
            raise TraceError(
                Problem(
                    printable_name(str(directory)), problem, "choose an empty directory, or remove the files"
                )
            )
        for rank, nodes in enumerate(ranks):
            with _complete_file(directory / f"{prefix}.{rank}.et") as path:
                write_et(path, nodes, metadata)
        if groups is not None:
            with _complete_file(directory / f"{prefix}.json") as path:
                text = json.dumps({key: list(members) for key, members in groups.items()})
                path.write_text(text + "\n")
    except OSError as error:
        raise TraceError(
            Problem(
                printable_name(str(directory)),
                f"cannot be written: {error.strerror or error}",
                "choose another",
            )
        ) from None


@contextlib.contextmanager
def _complete_file(path: Path) -> Iterator[Path]:
    """Give the path of a temporary file to write, which is then moved to `path`. Raises `TraceError` if a different
    file exists there."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        yield unfinished
        if path.exists() and not filecmp.cmp(path, unfinished, shallow=False):
            problem = "is a trace of another job, or of another version's synth"
            raise TraceError(
                Problem(printable_name(str(path)), problem, "choose an empty directory, or remove it")
            )
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)

"""Traces to `.et` files, rank by rank, with their group file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
) -> None:
    """Write PREFIX.<rank>.et for every rank, and PREFIX.json if there are groups; `metadata` as `write_et` takes it.

    Raises `TraceError` if the directory cannot be written or has trace files already: ranks of two jobs would mix.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if present := [
            name for files in by_prefix(path.name for path in directory.iterdir()).values() for name in files
        ]:
            what = f"has trace files already: {listed(file.name for file in present)}"
            raise TraceError(
                Problem(shown(str(directory)), what, "choose an empty directory, or remove them")
            )
        for rank, nodes in enumerate(ranks):
            write_et(directory / f"{prefix}.{rank}.et", nodes, metadata)
        if groups is not None:
            text = json.dumps({key: list(members) for key, members in groups.items()})
            (directory / f"{prefix}.json").write_text(text + "\n")
    except OSError as error:
        raise TraceError(
            Problem(shown(str(directory)), f"cannot be written: {error.strerror or error}", "choose another")
        ) from None

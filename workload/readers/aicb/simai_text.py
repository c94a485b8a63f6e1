"""Reads SimAI's text workload: a head with the degrees of parallelism, then one layer per line with its three passes.

The passes run as SimAI runs them: all layers forward, then backward from the last. Forward and input-gradient
collectives block the operations after them, weight-gradient ones do not. Sizes are SimAI's data_size in bytes, times
are nanoseconds. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.aicb.parallel_groups import Degrees, GroupRole
from etloop.workload.readers.aicb.workload_rows import (
    MAX_BYTES,
    MAX_NS,
    MAX_ROWS,
    Note,
    RowWriter,
    Toward,
    Workload,
    WorkloadFault,
    quote,
    whole_number,
)
from etloop.workload.trace.settings import MAX_REPLICAS
from etloop.workload.trace.trace import CollectiveKind

TRANSFORMERS: Final = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
MICRO: Final = "MICRO"

_KEY: Final = re.compile(r"([A-Za-z_]{1,40})(?::\s*|\s+)([0-9.]{1,24})")
_FIELDS: Final = 12
_FIRST_LAYER: Final = "embedding_layer"
_KINDS: Final = {
    "ALLREDUCE": CollectiveKind.ALL_REDUCE,
    "ALLGATHER": CollectiveKind.ALL_GATHER,
    "REDUCESCATTER": CollectiveKind.REDUCE_SCATTER,
    "ALLTOALL": CollectiveKind.ALL_TO_ALL,
}
_SUFFIXES: Final = {"_EP": GroupRole.EXPERT, "_DP_EP": GroupRole.DATA_EXPERT}
_WORLD_REMEDY: Final = (
    'write "HYBRID_TRANSFORMER model_parallel_NPU_group: 1 all_gpus: N" in place of MICRO, with N ranks'
)
_ADD_KEYS: Final = "write the workload with a current AICB, or add the key to the first line"


@dataclass(frozen=True, slots=True)
class _Pass:
    """One of the three passes of a layer: computation, then a collective (None: no collective)."""

    compute_ns: int
    kind: CollectiveKind | None
    role: GroupRole | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Layer:
    name: str
    offset: int
    forward: _Pass
    input_gradient: _Pass
    weight_gradient: _Pass
    update_ns: int


def read_simai_text(lines: Sequence[str]) -> Workload:
    """Return the workload in a file's lines. Raises `WorkloadFault`."""
    words = lines[0].split()
    is_micro = words[0] == MICRO
    head = {} if is_micro else dict(_KEY.findall(lines[0]))
    degrees = None if is_micro else _degrees(head)
    layers = _layers(lines, is_micro)
    writer = RowWriter(degrees, _WORLD_REMEDY)
    if is_micro:
        _write_micro(writer, layers)
        remedy = "state the number of ranks: workload.replicate_ranks (--replicate-ranks)"
        notes = [Note("is a MICRO workload, which does not state the number of ranks", remedy)]
    else:
        assert degrees is not None
        segments = [_Segment(0, len(layers))]
        if passes := _passes_stages(degrees, head, layers):
            segments = list(_segments(layers, head, degrees.pipeline))
        _write_step(writer, layers, segments, _pipeline_bytes(head))
        notes = [] if degrees.pipeline == 1 else [_pipeline_note(degrees, head, layers, passes=passes)]
    if empty_collectives := sum(
        layer_pass.kind is not None and not layer_pass.size_bytes
        for layer in layers
        for layer_pass in _passes(layer)
    ):
        notes.append(
            Note(f"{empty_collectives} collectives have 0 bytes", "they are left out, as SimAI does")
        )
    return Workload(tuple(writer.rows), frozenset(writer.roles), degrees, f"SimAI {words[0]}", tuple(notes))


def _degrees(head: dict[str, str]) -> Degrees:
    def head_value(key: str, otherwise: int | None) -> int:
        if key not in head and otherwise is not None:
            return otherwise
        if key not in head:
            raise WorkloadFault(1, f"{key} is missing, expected the number of ranks", _ADD_KEYS)
        return whole_number(head[key], 1, key, MAX_REPLICAS, 1)

    world, tensor = head_value("all_gpus", None), head_value("model_parallel_NPU_group", None)
    pipeline, expert = head_value("pp", 1), head_value("ep", 1)
    for key in ("checkpoints", "checkpoint_initiates"):
        if whole_number(head.get(key, "0"), 1, key, MAX_ROWS):
            mismatch = f"{key} is {head[key]}, expected 0: recomputed layers (activation checkpoints) are not supported"
            raise WorkloadFault(1, mismatch, "write the workload without activation checkpoints")
    if world % (tensor * pipeline):
        mismatch = (
            f"all_gpus is {world}, which groups of {tensor} (model_parallel_NPU_group) in {pipeline} stages (pp) "
            "do not divide"
        )
        raise WorkloadFault(1, mismatch)
    degrees = Degrees(tensor, world // (tensor * pipeline), pipeline, expert)
    if problem := degrees.problem():
        raise WorkloadFault(1, problem)
    return degrees


@dataclass(frozen=True, slots=True)
class _Segment:
    """Layers that run one after the other: those of a micro-batch in one of the stage's model chunks, or all."""

    first: int
    following: int
    """Index of the first layer behind it."""
    enters: Toward | None = None
    """Stage that its activations come from, and its gradients go to; None: neither."""
    leaves: Toward | None = None
    """Stage that its activations go to, and its gradients come from; None: neither."""


def _pipeline_bytes(head: dict[str, str]) -> int:
    return whole_number(head.get("pp_comm", "0"), 1, "pp_comm", MAX_BYTES)


def _batch_count(head: dict[str, str]) -> int:
    return whole_number(head.get("ga", "1"), 1, "ga", MAX_ROWS, 1)


def _virtual_stages(head: dict[str, str]) -> int:
    return whole_number(head.get("vpp", "1"), 1, "vpp", MAX_ROWS, 1)


def _chunk_count(head: dict[str, str], layers: Sequence[_Layer]) -> int:
    """Return the number of model chunks of a stage, each with an equal part of its layers: vpp, or 1 where a micro-batch has
    fewer layers."""
    shortest = min(following - first for first, following in _batches(layers, head))
    return _virtual_stages(head) if _virtual_stages(head) <= shortest else 1


def _passes_stages(degrees: Degrees, head: dict[str, str], layers: Sequence[_Layer]) -> bool:
    """Decide whether there are transfers between stages that can be replayed."""
    return degrees.pipeline > 1 and bool(_pipeline_bytes(head)) and _batch_count(head) <= len(layers)


def _batches(layers: Sequence[_Layer], head: dict[str, str]) -> list[tuple[int, int]]:
    """Return the first layer of each micro-batch and the one behind it. A micro-batch begins at an embedding where there is
    one for each, else they are equal parts."""
    count = _batch_count(head)
    starts = [index for index, layer in enumerate(layers) if layer.name == _FIRST_LAYER]
    if len(starts) != count:
        starts = [len(layers) * batch // count for batch in range(count)]
    return list(pairwise((*starts, len(layers))))


def _segments(layers: Sequence[_Layer], head: dict[str, str], stages: int) -> Iterator[_Segment]:
    """Yield the segments of a stage in the order of an interleaved schedule: as many micro-batches as there are stages
    pass the first chunk, then the second, and so on; with one chunk, one micro-batch after the other."""
    batches, chunks = _batches(layers, head), _chunk_count(head, layers)
    if batches[0][0]:
        yield _Segment(0, batches[0][0])
    for group in range(0, len(batches), stages):
        for chunk in range(chunks):
            for first, following in batches[group : group + stages]:
                count = following - first
                yield _Segment(
                    first + count * chunk // chunks,
                    first + count * (chunk + 1) // chunks,
                    Toward.PREVIOUS if chunk == 0 else Toward.PREVIOUS_IN_RING,
                    Toward.NEXT if chunk == chunks - 1 else Toward.NEXT_IN_RING,
                )


def _pipeline_note(degrees: Degrees, head: dict[str, str], layers: Sequence[_Layer], *, passes: bool) -> Note:
    stages, size, virtual = degrees.pipeline, head.get("pp_comm", "0"), _virtual_stages(head)
    if passes:
        problem = (
            f"every rank of all {stages} stages runs every line; {_batch_count(head)} micro-batches pass from stage to stage "
            f"with {size} bytes each, all forward, then all backward"
        )
        if (chunks := _chunk_count(head, layers)) > 1:
            problem += (
                f"; a stage has {chunks} chunks of its lines (vpp), and the last stage passes on to the first"
            )
        elif virtual > 1:
            problem += f"; each passes once, as it has fewer lines than vpp: {virtual}"
        return Note(problem, "use traces of every rank where another schedule matters")
    problem = f"every rank of all {stages} stages runs every line; what passes between stages (pp_comm: {size} bytes) is in none"
    remedy = "it is left out: use traces of every rank, such as those of etloop synth, where it matters"
    transfers = 2 * _batch_count(head) * (stages * virtual - 1) * degrees.tensor * degrees.data
    return Note(problem, remedy, left_out=transfers)


def _layers(lines: Sequence[str], is_micro: bool) -> list[_Layer]:
    if len(lines) < 2:
        raise WorkloadFault(2, "is missing, expected the number of layers")
    count = whole_number(lines[1].strip(), 2, "the number of layers", MAX_ROWS, 1)
    numbered_lines = [(number, line) for number, line in enumerate(lines[2:], 3) if line.strip()]
    if len(numbered_lines) != count:
        problem = f"states {count} layers, but {len(numbered_lines)} lines follow"
        raise WorkloadFault(2, problem, "copy or write the file again")
    return [_layer(line.split(), number, is_micro) for number, line in numbered_lines]


def _layer(words: list[str], line: int, is_micro: bool) -> _Layer:
    if len(words) != _FIELDS:
        problem = f"has {len(words)} fields, {_FIELDS} were expected: name, -1, three passes of time, collective and bytes, time"
        raise WorkloadFault(line, problem)
    world = None if is_micro else GroupRole.TENSOR
    forward = _pass(words[2:5], line, "forward", world)
    input_gradient = _pass(words[5:8], line, "input gradient", world)
    weight_gradient = _pass(words[8:11], line, "weight gradient", None if is_micro else GroupRole.DATA)
    if is_micro and (forward.kind, input_gradient.kind) != (None, None):
        problem = "has a collective before its third pass; a MICRO workload runs only the third"
        raise WorkloadFault(line, problem, "write NONE there")
    update_ns = whole_number(words[11], line, "the time of the update", MAX_NS)
    return _Layer(words[0], line, forward, input_gradient, weight_gradient, update_ns)


def _pass(words: list[str], line: int, where: str, role: GroupRole | None) -> _Pass:
    """Parse the time, collective and size of a pass. `role` applies to a collective without a suffix; None in a MICRO
    workload, where all ranks take part."""
    compute_ns = whole_number(words[0], line, f"the {where} time", MAX_NS)
    size_bytes = whole_number(words[2], line, f"the {where} size", MAX_BYTES)
    if words[1] == "NONE":
        return _Pass(compute_ns, None, None, 0)
    name = next((name for name in _KINDS if words[1].startswith(name)), "")
    suffix = words[1].removeprefix(name)
    if not name or (suffix and (suffix not in _SUFFIXES or role is None)):
        known_kinds = ", ".join((*_KINDS, "NONE"))
        suffix_words = "" if role is None else f", alone or with {' or '.join(_SUFFIXES)},"
        raise WorkloadFault(
            line, f"the {where} collective is {quote(words[1])}: {known_kinds}{suffix_words} were expected"
        )
    return _Pass(compute_ns, _KINDS[name], _SUFFIXES.get(suffix, role), size_bytes)


def _passes(layer: _Layer) -> tuple[_Pass, _Pass, _Pass]:
    return layer.forward, layer.input_gradient, layer.weight_gradient


def _write_step(
    writer: RowWriter, layers: Sequence[_Layer], segments: Sequence[_Segment], size_bytes: int
) -> None:
    """Add all segments forward, then all backward in reverse order."""
    last_node: int | None = None
    for segment in segments:
        offset = layers[segment.first].offset
        if segment.enters is not None:
            last_node = writer.transfer(
                "activations in", last_node, segment.enters, size_bytes, offset, is_send=False
            )
        for layer in layers[segment.first : segment.following]:
            last_node = _run(writer, f"{layer.name}.forward", last_node, layer.forward, layer)
        if segment.leaves is not None:
            writer.transfer("activations out", last_node, segment.leaves, size_bytes, offset, is_send=True)
    for segment in reversed(segments):
        offset = layers[segment.first].offset
        if segment.leaves is not None:
            last_node = writer.transfer(
                "gradients in", last_node, segment.leaves, size_bytes, offset, is_send=False
            )
        for layer in reversed(layers[segment.first : segment.following]):
            last_node = _write_backward(writer, layer, last_node)
        if segment.enters is not None:
            writer.transfer("gradients out", last_node, segment.enters, size_bytes, offset, is_send=True)


def _write_backward(writer: RowWriter, layer: _Layer, last_node: int | None) -> int | None:
    """Add the two gradients of a layer and its update; return the node that the layer before it waits for."""
    last_node = _run(writer, f"{layer.name}.input_gradient", last_node, layer.input_gradient, layer)
    name, weight_gradient = f"{layer.name}.weight_gradient", layer.weight_gradient
    last_node = writer.compute(name, last_node, weight_gradient.compute_ns, layer.offset)
    if weight_gradient.kind is not None and weight_gradient.size_bytes:
        collective = writer.collective(
            name,
            last_node,
            weight_gradient.kind,
            weight_gradient.size_bytes,
            weight_gradient.role,
            layer.offset,
        )
        writer.compute(f"{layer.name}.update", collective.node_id, layer.update_ns, layer.offset)
    return last_node


def _run(writer: RowWriter, name: str, at: int | None, layer_pass: _Pass, layer: _Layer) -> int | None:
    at = writer.compute(name, at, layer_pass.compute_ns, layer.offset)
    if layer_pass.kind is None or not layer_pass.size_bytes:
        return at
    return writer.collective(
        name, at, layer_pass.kind, layer_pass.size_bytes, layer_pass.role, layer.offset
    ).node_id


def _write_micro(writer: RowWriter, layers: Sequence[_Layer]) -> None:
    last_node: int | None = None
    for layer in layers:
        last_node = _run(writer, layer.name, last_node, layer.weight_gradient, layer)

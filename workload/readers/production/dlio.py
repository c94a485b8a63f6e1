"""Reads workloads of DLIO and MLPerf Storage (YAML): checkpoints by formula, and data loading with its compute.

The file states neither the number of ranks nor the storage endpoints (`FileFacts`); servers are the ranks after those
of the job, and files are placed on them in turn. A checkpoint write goes from a rank to its servers, a read comes
back; all ranks wait for each other after each. A step loads a batch, at most `prefetch_size` ahead, and computes.

Ranks: tensor parallel first, then stages, then data. Format and formulas: argonne-lcf/dlio_benchmark
(checkpointing/base_checkpointing.py, utils/config.py), as of MLPerf Storage 2.0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.job_rows import JobRows, empty_job, trace_of
from etloop.workload.readers.production.text_files import FileFault, Note, head_lines, quote
from etloop.workload.readers.production.yaml_files import (
    flag_of,
    seconds_ns,
    section_of,
    string_of,
    whole_of,
    yaml_document,
)
from etloop.workload.trace.trace import Trace

_ITEM_BYTES: Final = {
    "fp8": 1, "int8": 1, "uint8": 1, "fp16": 2, "bf16": 2, "float16": 2, "bfloat16": 2, "fp32": 4, "float32": 4, "fp64": 8,
}  # fmt: skip
_SECTIONS: Final = frozenset("model framework workflow dataset reader train checkpoint metric output storage profiling "
                             "evaluation".split())  # fmt: skip
_DEFAULT_PREFETCH: Final = 2


@dataclass(frozen=True, slots=True)
class Model:
    """The numbers of a transformer that its checkpoint follows from."""

    layers: int
    hidden: int
    vocabulary: int
    feed_forward: int
    heads: int
    kv_heads: int
    tensor: int
    pipeline: int
    zero_stage: int
    model_item_bytes: int
    optimizer_item_bytes: int

    @property
    def _norms(self) -> int:
        """Return the parameters of a layer's norms, which tensor parallelism does not split."""
        return 2 * self.hidden

    @property
    def _split(self) -> int:
        """Return the parameters of a layer that tensor parallelism splits."""
        hidden, kv = self.hidden, self.hidden // self.heads * self.kv_heads
        return hidden * (hidden + 2 * kv) + hidden**2 + 3 * self.feed_forward * hidden

    @property
    def parameters(self) -> int:
        """Return the parameters of the model."""
        layer = self._norms + self._split
        return 2 * self.vocabulary * self.hidden + self.layers * layer + self.hidden

    def stage_bytes(self, stage: int) -> int:
        """Return the bytes of model states of one tensor-parallel rank of a stage."""
        layers = self.layers // self.pipeline + (stage < self.layers % self.pipeline)
        embedding = self.vocabulary * self.hidden // self.tensor
        count = layers * (self._split // self.tensor + self._norms)
        if stage == 0:
            count += embedding
        if stage == self.pipeline - 1:
            count += embedding + self.hidden
        return count * self.model_item_bytes

    def bytes_of(self, rank: int, ranks: int) -> tuple[int, int]:
        """Return the bytes of model and optimizer states that a rank writes."""
        data = ranks // (self.tensor * self.pipeline)
        stage, replica = rank // self.tensor % self.pipeline, rank // (self.tensor * self.pipeline)
        if self.zero_stage == 3:
            model_bytes = self.stage_bytes(stage) // data
        else:
            model_bytes = self.stage_bytes(stage) if replica == 0 else 0
        writers = self.tensor * self.pipeline * (data if self.zero_stage else 1)
        optimizer = (3 * (self.parameters // writers) + 15 * self.hidden) * self.optimizer_item_bytes
        return model_bytes, optimizer if self.zero_stage or replica == 0 else 0


def begins(head: bytes) -> bool:
    """Decide whether a YAML file has the sections of DLIO at its top."""
    keys = {match[1] for line in head_lines(head) if (match := re.match(r"([a-z_]+)\s*:", line))}
    return "workflow" in keys and bool(keys & {"model", "dataset", "reader", "checkpoint"})


def read_dlio(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of a workload. Raises `FileFault`."""
    document = yaml_document(source)
    if unknown := sorted(document.keys() - _SECTIONS):
        raise FileFault(0, f"has the section {quote(unknown[0])}, which is not supported", "remove it")
    if facts.ranks is None:
        raise FileFault(
            0, "does not state the number of ranks", "state workload.ranks (--ranks), as given to mpirun"
        )
    workflow = section_of(document, "workflow")
    trains, saves = flag_of(workflow, "train", True), flag_of(workflow, "checkpoint", False)
    if trains == saves:
        workflow_words = (
            "trains and writes checkpoints" if trains else "neither trains nor writes checkpoints"
        )
        raise FileFault(
            0,
            f"{workflow_words}, which is not supported together",
            "set one of workflow.train and workflow.checkpoint",
        )
    job = empty_job(facts.ranks + facts.servers)
    notes = [
        Note(
            f"ranks {facts.ranks} to {facts.ranks + facts.servers - 1} are storage",
            "files are placed on them in turn",
        )
    ]
    if saves:
        _add_checkpoints(job, document, facts.ranks, facts.servers)
    else:
        _add_training(job, document, facts.ranks, facts.servers, notes)
    return trace_of(job, source, "DLIO", notes)


def model_of(document: dict[str, Any], ranks: int) -> Model:
    """Return the model of a workload. Raises `FileFault`."""
    model = section_of(document, "model")
    shape, degrees = section_of(model, "transformer"), section_of(model, "parallelism")
    if not shape:
        problem = "has no model.transformer; checkpoints of stated layer sizes are not supported"
        raise FileFault(0, problem, "state vocab_size, hidden_size, ffn_hidden_size and heads")
    heads = whole_of(shape, "num_attention_heads", 32, 1)
    result = Model(
        layers=whole_of(model, "num_layers", None, 1),
        hidden=whole_of(shape, "hidden_size", None, 1),
        vocabulary=whole_of(shape, "vocab_size", None, 1),
        feed_forward=whole_of(shape, "ffn_hidden_size", None, 1),
        heads=heads,
        kv_heads=whole_of(shape, "num_kv_heads", heads, 1),
        tensor=whole_of(degrees, "tensor", 1, 1),
        pipeline=whole_of(degrees, "pipeline", 1, 1),
        zero_stage=whole_of(degrees, "zero_stage", 0),
        model_item_bytes=_item_bytes(model, "model_datatype", "fp16"),
        optimizer_item_bytes=_item_bytes(model, "optimizer_datatype", "fp32"),
    )
    group = result.tensor * result.pipeline
    if ranks % group or result.zero_stage > 3 or result.pipeline > result.layers:
        problem = (
            f"has tensor {result.tensor}, pipeline {result.pipeline} and zero_stage {result.zero_stage} on {ranks} ranks, "
            f"expected a multiple of {group} ranks, at most {result.layers} stages and zero_stage 0 to 3"
        )
        raise FileFault(0, problem, "state a number of ranks that the degrees divide")
    return result


def _item_bytes(model: dict[str, Any], key: str, default: str) -> int:
    name = string_of(model, key, default)
    if name not in _ITEM_BYTES:
        raise FileFault(0, f"model.{key} is {quote(name)}", f"write one of {', '.join(_ITEM_BYTES)}")
    return _ITEM_BYTES[name]


def _add_checkpoints(job: JobRows, document: dict[str, Any], ranks: int, servers: int) -> None:
    model, settings = model_of(document, ranks), section_of(document, "checkpoint")
    files = [
        (rank, name, size)
        for rank in range(ranks)
        for name, size in zip(("model", "optimizer"), model.bytes_of(rank, ranks), strict=True)
        if size
    ]
    writes, reads = (
        whole_of(settings, "num_checkpoints_write", 10),
        whole_of(settings, "num_checkpoints_read", 10),
    )
    pause_ns = seconds_ns(settings, "time_between_checkpoints")
    ends: list[list[int]] = [[] for _ in range(ranks)]
    for number in range(writes + reads):
        is_write = number < writes
        label = f"checkpoint {number if is_write else number - writes} {'write' if is_write else 'read'}"
        if number:
            ends = [[node] for node in job.barrier(f"{label}: barrier", ends)]
            if pause_ns:
                ends = [
                    [job.compute(rank, f"{label}: pause", pause_ns, nodes)] for rank, nodes in enumerate(ends)
                ]
        begin = [tuple(nodes) for nodes in ends]
        ends = [list(nodes) for nodes in ends]
        for index, (rank, part, size) in enumerate(files):
            server = ranks + index % servers
            name = f"{label}: {part} states of rank {rank}"
            if is_write:
                node, _ = job.transfer(rank, server, name, size, src_after=begin[rank])
            else:
                _, node = job.transfer(server, rank, name, size, dst_after=begin[rank])
            ends[rank].append(node)


def _add_training(
    job: JobRows, document: dict[str, Any], ranks: int, servers: int, notes: list[Note]
) -> None:
    dataset, reader, train = (section_of(document, key) for key in ("dataset", "reader", "train"))
    record = whole_of(dataset, "record_length_bytes", whole_of(dataset, "record_length", 65_536, 1), 1)
    if dataset.get("record_length_bytes_stdev") or dataset.get("record_length_stdev"):
        notes.append(Note("records differ in length", "every record has the mean length"))
    files, in_file = (
        whole_of(dataset, "num_files_train", None, 1),
        whole_of(dataset, "num_samples_per_file", 1, 1),
    )
    batch = whole_of(reader, "batch_size", 1, 1)
    ahead = whole_of(reader, "prefetch_size", _DEFAULT_PREFETCH, 1)
    epochs, compute_ns = whole_of(train, "epochs", 1, 1), _compute_ns(train)
    steps = -(-files * in_file // (batch * ranks))
    if most := whole_of(train, "total_training_steps", 0):
        steps = min(steps, most)
    if dropped := steps * batch * ranks - files * in_file:
        notes.append(Note(f"the last step of an epoch lacks {dropped} samples", "it is loaded whole"))
    computed: list[list[int]] = [[] for _ in range(ranks)]
    gate: list[tuple[int, ...]] = [() for _ in range(ranks)]
    for step in range(epochs * steps):
        ready = []
        for rank in range(ranks):
            slot = computed[rank][step - ahead : step - ahead + 1] if step >= ahead else []
            server = ranks + (step * ranks + rank) % servers
            name = f"step {step} batch"
            _, loaded = job.transfer(server, rank, name, batch * record, dst_after=slot)
            ready.append(job.compute(rank, f"step {step}", compute_ns, (loaded, *gate[rank])))
            computed[rank].append(ready[-1])
        if ranks > 1:
            gate = [(node,) for node in job.barrier(f"step {step}: barrier", [(node,) for node in ready])]
        else:
            gate = [(node,) for node in ready]


def _compute_ns(train: dict[str, Any]) -> int:
    value = train.get("computation_time")
    if isinstance(value, dict):
        return seconds_ns(value, "mean")
    return seconds_ns(train, "computation_time")

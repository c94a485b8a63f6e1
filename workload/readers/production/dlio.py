"""Reads workloads of DLIO and MLPerf Storage (YAML): checkpoints by formula, and data loading with its compute.

The file states neither the number of ranks nor the storage endpoints (`FileFacts`); servers are the ranks after those
of the job, and files are placed on them in turn. A checkpoint write goes from a rank to its servers, a read comes back.
A step loads a batch, at most `prefetch_size` ahead, computes, and ends in a barrier; evaluation has no barrier. Training
writes checkpoints after epochs or steps; without training all ranks pause, meet, and write or read.

Format: argonne-lcf/dlio_benchmark (main.py, utils/config.py). An epoch has the batches of all its samples, the last one
whole, as in MLPerf Storage 2.0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production.dlio_model import Model, model_of
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.job_rows import MAX_NODES, JobRows, empty_job, trace_of
from etloop.workload.readers.production.text_files import FileFault, Note, head_lines, quote
from etloop.workload.readers.production.yaml_files import (
    flag_of,
    list_of,
    number_of,
    seconds_ns,
    section_of,
    string_of,
    whole_of,
    yaml_document,
)
from etloop.workload.trace.trace import Trace

_SECTIONS: Final = frozenset("model framework workflow dataset data_reader reader train checkpoint metric output storage "
                             "profiling evaluation".split())  # fmt: skip
_DEFAULT_PREFETCH: Final = 2
_MOST_RECORD_BYTES: Final = 1 << 44
_MOST_FILE_BYTES: Final = 1 << 50
_ELEMENT_BYTES: Final = {
    "int8": 1, "uint8": 1, "float16": 2, "int16": 2, "uint16": 2, "float32": 4, "int32": 4, "uint32": 4, "float64": 8,
    "int64": 8, "uint64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Loader:
    """Loading of one data set: the steps of an epoch, with their bytes on each rank and their compute."""

    name: str
    steps: int
    batch_bytes: int
    compute_ns: int
    is_synchronous: bool
    """Whether a barrier ends each step."""


@dataclass(frozen=True, slots=True)
class _Saves:
    """When training writes a checkpoint."""

    files: tuple[tuple[int, str, int], ...]
    """(rank, name, bytes) of each file of a checkpoint."""
    first_epoch: int
    epochs: int
    steps: int
    """Steps between checkpoints; below 0: after epochs."""

    def after_step(self, step: int) -> bool:
        """Decide whether a step of an epoch, counted from 1, ends in a checkpoint."""
        return self.steps > 0 and step % self.steps == 0

    def after_epoch(self, epoch: int) -> bool:
        """Decide whether an epoch, counted from 1, ends in a checkpoint."""
        if self.steps >= 0 or epoch < self.first_epoch:
            return False
        return epoch == self.first_epoch if self.epochs < 1 else (epoch - self.first_epoch) % self.epochs == 0


@dataclass(slots=True)
class _Run:
    """The nodes of all ranks while they are made."""

    job: JobRows
    ranks: int
    servers: int
    ahead: int = 1
    gate: list[tuple[int, ...]] = field(default_factory=list)
    """Nodes that the next step of each rank waits for."""
    computed: list[list[int]] = field(default_factory=list)
    """Computations of each rank in this epoch."""
    epoch_begin: list[tuple[int, ...]] = field(default_factory=list)
    """Nodes that the first loads of this epoch wait for."""
    checkpoints: int = 0

    def load_epoch(self, loader: _Loader, epoch: int, saves: _Saves | None) -> None:
        """Add the steps of an epoch. A loader prefetches within its epoch."""
        self.computed, self.epoch_begin = [[] for _ in range(self.ranks)], self.gate
        for step in range(loader.steps):
            ends = [self._step(loader, epoch, step, rank) for rank in range(self.ranks)]
            if loader.is_synchronous and self.ranks > 1:
                label = f"epoch {epoch} {loader.name} step {step}: barrier"
                barrier = self.job.barrier(label, {rank: (node,) for rank, node in enumerate(ends)})
                ends = [barrier[rank] for rank in range(self.ranks)]
            self.gate = [(node,) for node in ends]
            if saves is not None and saves.after_step(step + 1):
                self.save(saves.files, is_write=True)
        if saves is not None and saves.after_epoch(epoch):
            self.save(saves.files, is_write=True)

    def _step(self, loader: _Loader, epoch: int, step: int, rank: int) -> int:
        own = self.computed[rank]
        begin = self.epoch_begin[rank] if step < self.ahead else (own[step - self.ahead],)
        server = self.ranks + (step * self.ranks + rank) % self.servers
        label = f"epoch {epoch} {loader.name} step {step}"
        _, loaded = self.job.transfer(server, rank, f"{label} batch", loader.batch_bytes, dst_after=begin)
        own.append(self.job.compute(rank, label, loader.compute_ns, (loaded, *self.gate[rank])))
        return own[-1]

    def save(self, files: Sequence[tuple[int, str, int]], *, is_write: bool) -> None:
        """Add the writes or reads of one checkpoint; each rank goes on when its own have ended."""
        label = f"checkpoint {self.checkpoints} {'write' if is_write else 'read'}"
        self.checkpoints += 1
        ends: list[list[int]] = [[] for _ in range(self.ranks)]
        for index, (rank, part, size) in enumerate(files):
            server = self.ranks + index % self.servers
            name = f"{label}: {part} states of rank {rank}"
            if is_write:
                node, _ = self.job.transfer(rank, server, name, size, src_after=self.gate[rank])
            else:
                _, node = self.job.transfer(server, rank, name, size, dst_after=self.gate[rank])
            ends[rank].append(node)
        self.gate = [tuple(nodes) or self.gate[rank] for rank, nodes in enumerate(ends)]

    def meet(self, label: str, pause_ns: int) -> None:
        """Let all ranks pause, then wait for each other."""
        if pause_ns:
            self.gate = [
                (self.job.compute(rank, f"{label}: pause", pause_ns, self.gate[rank]),)
                for rank in range(self.ranks)
            ]
        if self.ranks > 1 and any(self.gate):
            barrier = self.job.barrier(f"{label}: barrier", dict(enumerate(self.gate)))
            self.gate = [(barrier[rank],) for rank in range(self.ranks)]


def begins(head: bytes) -> bool:
    """Decide whether a YAML file has the sections of DLIO at its top."""
    keys = {match[1] for line in head_lines(head) if (match := re.match(r"([a-z_]+)\s*:", line))}
    return "workflow" in keys and bool(keys & {"model", "dataset", "reader", "data_reader", "checkpoint"})


def read_dlio(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of a workload. Raises `FileFault`."""
    document = yaml_document(source)
    if unknown := sorted(document.keys() - _SECTIONS):
        raise FileFault(0, f"has the section {quote(unknown[0])}, which is not supported", "remove it")
    if facts.ranks is None:
        problem = "does not state the number of ranks"
        raise FileFault(0, problem, "state workload.ranks (--ranks), as given to mpirun")
    workflow = section_of(document, "workflow")
    trains, saves = flag_of(workflow, "train", True), flag_of(workflow, "checkpoint", False)
    if not trains and not saves:
        problem = "neither trains nor writes checkpoints"
        raise FileFault(0, problem, "set workflow.train or workflow.checkpoint to True")
    job = empty_job(facts.ranks + facts.servers)
    run = _Run(job, facts.ranks, facts.servers, gate=[()] * facts.ranks)
    storage = f"ranks {facts.ranks} to {facts.ranks + facts.servers - 1} are storage"
    notes = [Note(storage, "files are placed on them in turn")]
    if flag_of(workflow, "generate_data", False):
        notes.append(
            Note("generates its data first", "that is left out: the job begins with the data in place")
        )
    model = model_of(document, facts.ranks) if saves else None
    if trains:
        _add_training(run, document, model, notes)
    elif model is not None:
        _add_checkpoints(run, document, _files(model, facts.ranks))
    return trace_of(job, source, "DLIO", notes)


def _files(model: Model, ranks: int) -> tuple[tuple[int, str, int], ...]:
    files = tuple((rank, name, size) for rank in range(ranks) for name, size in model.files_of(rank, ranks))
    for _, name, size in files:
        _check_bytes(size, f"a file of {name} states")
    return files


def _check_bytes(size: int, file: str) -> None:
    if size > _MOST_FILE_BYTES:
        raise FileFault(0, f"{file} has {size} bytes", f"state at most {_MOST_FILE_BYTES}")


def _add_checkpoints(run: _Run, document: dict[str, Any], files: Sequence[tuple[int, str, int]]) -> None:
    settings = section_of(document, "checkpoint")
    writes, reads = (
        max(0, whole_of(settings, f"num_checkpoints_{verb}", 0, -1)) for verb in ("write", "read")
    )
    if not writes + reads:
        remedy = "state checkpoint.num_checkpoints_write or num_checkpoints_read"
        raise FileFault(0, "writes and reads no checkpoint", remedy)
    pause_ns = seconds_ns(settings, "time_between_checkpoints", is_negative_unset=True)
    _check_size((writes + reads) * (2 * len(files) + 2 * run.ranks), "state fewer checkpoints")
    for number in range(writes + reads):
        run.meet(f"checkpoint {number}", pause_ns)
        run.save(files, is_write=number < writes)


def _add_training(run: _Run, document: dict[str, Any], model: Model | None, notes: list[Note]) -> None:
    dataset, train = section_of(document, "dataset"), section_of(document, "train")
    reader = section_of(document, "data_reader") or section_of(document, "reader")
    settings, evaluation = section_of(document, "checkpoint"), section_of(document, "evaluation")
    record = _record_bytes(dataset)
    if dataset.get("record_length_bytes_stdev") or dataset.get("record_length_stdev"):
        notes.append(Note("records differ in length", "every record has the mean length"))
    for section, key in ((train, "computation_time"), (evaluation, "eval_time")):
        if section.get(f"{key}_stdev") or (isinstance(section.get(key), dict) and section[key].get("stdev")):
            notes.append(Note(f"{key} differs from step to step", "every step takes the mean"))
    run.ahead = whole_of(reader, "prefetch_size", _DEFAULT_PREFETCH, 1)
    in_file = whole_of(dataset, "num_samples_per_file", 1, 1)

    def loader(name: str, files: int, batch: int, compute_ns: int) -> _Loader:
        samples, step = files * in_file, batch * run.ranks
        steps = -(-samples // step)
        if missing := steps * step - samples:
            problem = f"the last {name} step of an epoch lacks {missing} samples"
            notes.append(Note(problem, "it is loaded whole"))
        batch_bytes = int(batch * record)
        _check_bytes(batch_bytes, f"a batch of {name}")
        return _Loader(name, steps, batch_bytes, compute_ns, name == "train")

    files = whole_of(dataset, "num_files_train", 8, 1)
    batch = whole_of(reader, "batch_size", 1, 1)
    training = loader("train", files, batch, _mean_ns(train, "computation_time"))
    most = whole_of(train, "total_training_steps", -1, -1)
    if 0 < most < training.steps:
        training = _Loader(training.name, most, training.batch_bytes, training.compute_ns, True)
    epochs = whole_of(train, "epochs", 1, 1)
    evaluating = None
    if flag_of(section_of(document, "workflow"), "evaluation", False):
        eval_files, eval_batch = (
            whole_of(dataset, "num_files_eval", 0),
            whole_of(reader, "batch_size_eval", 1, 1),
        )
        evaluating = loader("evaluation", eval_files, eval_batch, _mean_ns(evaluation, "eval_time"))
    first_evaluation = whole_of(evaluation, "eval_after_epoch", 1, 1)
    between_evaluations = whole_of(evaluation, "epochs_between_evals", 1, 1)
    saves = None if model is None else _saves(settings, _files(model, run.ranks))
    steps = training.steps + (evaluating.steps if evaluating else 0)
    _check_size(4 * run.ranks * epochs * steps, "state fewer train.epochs, or train.total_training_steps")
    for epoch in range(1, epochs + 1):
        run.load_epoch(training, epoch, saves)
        is_due = epoch >= first_evaluation and (epoch - first_evaluation) % between_evaluations == 0
        if evaluating is not None and is_due:
            run.load_epoch(evaluating, epoch, None)


def _saves(settings: dict[str, Any], files: tuple[tuple[int, str, int], ...]) -> _Saves:
    return _Saves(
        files,
        whole_of(settings, "checkpoint_after_epoch", 1, 1),
        whole_of(settings, "epochs_between_checkpoints", 1),
        whole_of(settings, "steps_between_checkpoints", -1, -1),
    )


def _record_bytes(dataset: dict[str, Any]) -> Fraction:
    """Return the bytes of a record, which may be a mean with decimals."""
    if dataset.get("record_dims"):
        dims = [
            whole_of({"record_dims": size}, "record_dims", None, 1)
            for size in list_of(dataset, "record_dims", 16)
        ]
        kind = string_of(dataset, "record_element_type", "uint8")
        if kind not in _ELEMENT_BYTES:
            raise FileFault(
                0, f"record_element_type is {quote(kind)}", f"write one of {', '.join(_ELEMENT_BYTES)}"
            )
        record = Fraction(prod(dims) * _ELEMENT_BYTES[kind])
    else:
        key = "record_length_bytes" if "record_length_bytes" in dataset else "record_length"
        record = number_of(dataset, key, 65_536)
    if not 1 <= record <= _MOST_RECORD_BYTES:
        raise FileFault(0, f"a record has {float(record):g} bytes", f"state 1 to {_MOST_RECORD_BYTES}")
    return record


def _mean_ns(section: dict[str, Any], key: str) -> int:
    value = section.get(key)
    return seconds_ns(value, "mean") if isinstance(value, dict) else seconds_ns(section, key)


def _check_size(nodes: int, remedy: str) -> None:
    """Raise `FileFault` for a job over the limit of operations, before they are made."""
    if nodes > MAX_NODES:
        raise FileFault(0, f"describes about {nodes} operations, expected at most {MAX_NODES}", remedy)

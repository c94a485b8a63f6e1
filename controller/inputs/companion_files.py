"""Files of other tools that describe companion loads: DLIO workloads, and operation logs of KV cache benchmarks.

Reads the files. Decides what they may say; every refusal names its line.

* A DLIO workload is the YAML of a checkpoint of DLIO or MLPerf Storage. Bytes of each rank follow DLIO's rules
  (argonne-lcf/dlio_benchmark:dlio_benchmark/checkpointing/base_checkpointing.py): tensor parallel ranks are neighbours, then
  pipeline stages, then data-parallel copies; keys that do not change bytes or times are passed over.
* An operation log is the CSV of MLPerf Storage's KV cache benchmark (mlcommons/storage:kv_cache_benchmark).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S
from etloop.contract.base.value_parsers import integer, one_of
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document

MOST_FILE_BYTES: Final = 8 << 20
MOST_OPERATIONS: Final = 1 << 16
MOST_ENTRY_BYTES: Final = 1 << 40
LATEST_NS: Final = 3600 * NS_PER_S
_DATATYPE_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1, "fp8": 1}
_OPTIMIZER_TENSORS: Final = 3
"""Of Adam's optimizer: fp32 weights and two moments."""
_OPTIMIZER_VECTORS: Final = 15
"""Vectors of the hidden size that DLIO adds to each rank's optimizer state."""
_COLUMNS: Final = ("Timestamp", "Operation", "Object_Size_Bytes", "Tier", "Key", "Phase")


@dataclass(frozen=True, slots=True)
class TransformerCheckpoint:
    """A transformer and how it is divided and saved, as a DLIO workload states it."""

    layers: int
    vocabulary: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    tensor: int
    pipeline: int
    zero_stage: int
    model_value_bytes: int
    optimizer_value_bytes: int
    writes: int
    reads: int
    interval_ns: int

    @property
    def layer_weights(self) -> int:
        """Return the weights of one layer that tensor parallel ranks divide: attention and a gated feed-forward network."""
        kv_width = self.hidden // self.heads * self.kv_heads
        attention = self.hidden * (self.hidden + 2 * kv_width) + self.hidden**2
        return attention + 3 * self.hidden * self.feed_forward

    def stage_parameters(self, stage: int) -> tuple[int, int]:
        """Return the parameters of a pipeline stage: those that tensor parallel ranks divide, and norms, which each of them has.

        The first stage has the embedding, the last one the final norm and the head.
        """
        layers = self.layers // self.pipeline + (stage < self.layers % self.pipeline)
        is_first, is_last = stage == 0, stage == self.pipeline - 1
        divided = layers * self.layer_weights + (is_first + is_last) * self.vocabulary * self.hidden
        return divided, (2 * layers + is_last) * self.hidden

    @property
    def parameters(self) -> int:
        """Return all parameters."""
        return sum(sum(self.stage_parameters(stage)) for stage in range(self.pipeline))

    def rank_bytes(self, rank: int, ranks: int) -> tuple[int, int]:
        """Return the bytes of model and optimizer state that one of `ranks` ranks saves; 0 for a part that another one saves."""
        copies = ranks // (self.tensor * self.pipeline)
        stage, copy = rank // self.tensor % self.pipeline, rank // (self.tensor * self.pipeline)
        divided, norms = self.stage_parameters(stage)
        model_bytes = (divided // self.tensor + norms) * self.model_value_bytes
        if self.zero_stage == 3:
            model_bytes //= copies
        elif copy:
            model_bytes = 0
        shards = self.tensor * self.pipeline * (copies if self.zero_stage else 1)
        values = _OPTIMIZER_TENSORS * (self.parameters // shards) + _OPTIMIZER_VECTORS * self.hidden
        has_optimizer = self.zero_stage > 0 or copy == 0
        return model_bytes, values * self.optimizer_value_bytes if has_optimizer else 0


@dataclass(frozen=True, slots=True)
class KvOperation:
    """One row of an operation log."""

    at_ns: int
    """After the first row."""
    is_read: bool
    entry_bytes: int
    tier: str
    key: str


def read_checkpoint(path: Path, where: str) -> TransformerCheckpoint:
    """Return the checkpoint of a DLIO workload. Raises `ConfigError` with all keys that cannot be used."""
    file = ConfigFile(str(path), path.parent)
    top = read_document(_content(path, where), file)
    model = top.section("model")
    shape, parallelism, checkpoint = (
        model.section("transformer"),
        model.section("parallelism"),
        top.section("checkpoint"),
    )
    datatypes = one_of(_DATATYPE_BYTES)
    settings = TransformerCheckpoint(
        layers=_size(model, "num_layers"),
        vocabulary=_size(shape, "vocab_size"),
        hidden=_size(shape, "hidden_size"),
        feed_forward=_size(shape, "ffn_hidden_size"),
        heads=_size(shape, "num_attention_heads"),
        kv_heads=_size(shape, "num_kv_heads"),
        tensor=parallelism.optional("tensor", integer(1, 4096), 1),
        pipeline=parallelism.optional("pipeline", integer(1, 4096), 1),
        zero_stage=parallelism.optional("zero_stage", integer(0, 3), 0),
        model_value_bytes=model.optional("model_datatype", datatypes, 2),
        optimizer_value_bytes=model.optional("optimizer_datatype", datatypes, 4),
        writes=checkpoint.optional("num_checkpoints_write", integer(0, 1000), 1),
        reads=checkpoint.optional("num_checkpoints_read", integer(0, 1000), 0),
        interval_ns=checkpoint.optional("time_between_checkpoints", integer(0, 3600), 0) * NS_PER_S,
    )
    if settings.hidden % settings.heads:
        shape.mistake("num_attention_heads", "does not divide hidden_size", "correct one of the two")
    if settings.pipeline > settings.layers:
        parallelism.mistake("pipeline", "has more stages than layers", f"write at most {settings.layers}")
    file.refuse_mistakes()
    return settings


def read_kv_log(path: Path, where: str) -> tuple[KvOperation, ...]:
    """Return the operations of a log in its order. Raises `ConfigError` with the line that cannot be used."""
    operations = tuple(_operations(path, where))
    if not operations:
        raise ConfigError(Problem(str(path), "lists no operation", "name a log with rows"))
    return operations


def _size(section: Section, key: str) -> int:
    return section.require(key, integer(1, 1 << 24), 1, "write it as DLIO does for transformers")


def _operations(path: Path, where: str) -> Iterator[KvOperation]:
    try:
        lines = _content(path, where).decode().splitlines()
    except UnicodeDecodeError:
        raise ConfigError(Problem(str(path), "is not UTF-8 text", "name a CSV file")) from None
    rows = csv.reader(lines)
    first_ns: int | None = None
    last_ns = 0
    try:
        header = tuple(next(rows, ()))
        if header != _COLUMNS:
            problem = f"its columns are {', '.join(header)[:80]}"
            raise ConfigError(Problem(f"{path}:1", problem, f"expected {','.join(_COLUMNS)}"))
        for number, row in enumerate((row for row in rows if row), 1):
            at = f"{path}:{rows.line_num}"
            if number > MOST_OPERATIONS:
                raise ConfigError(Problem(at, f"more than {MOST_OPERATIONS} operations", "cut the log"))
            if len(row) != len(_COLUMNS):
                problem = f"{len(row)} values for {len(_COLUMNS)} columns"
                raise ConfigError(Problem(at, problem, "write one value for each column"))
            time_ns = _time_ns(row[0], at)
            first_ns = time_ns if first_ns is None else first_ns
            operation = _operation(row, time_ns - first_ns, at)
            if not last_ns <= operation.at_ns <= LATEST_NS:
                raise ConfigError(
                    Problem(
                        at,
                        "its time is before the row above, or an hour after the first",
                        "sort or cut the log",
                    )
                )
            last_ns = operation.at_ns
            yield operation
    except csv.Error as error:
        problem = f"is not CSV: {error}"
        raise ConfigError(
            Problem(f"{path}:{rows.line_num}", problem, "write values with commas between")
        ) from None


def _operation(row: list[str], at_ns: int, at: str) -> KvOperation:
    _, operation, size, tier, key, _ = row
    if operation not in ("Read", "Write"):
        raise ConfigError(Problem(at, f'"{operation[:32]}" is not an operation', "write Read or Write"))
    is_number = size.isascii() and size.isdigit() and len(size) < 20
    if not is_number or not 1 <= int(size) <= MOST_ENTRY_BYTES:
        problem = f'"{size[:32]}" is not a size in bytes'
        raise ConfigError(Problem(at, problem, f"write a whole number from 1 to {MOST_ENTRY_BYTES}"))
    return KvOperation(at_ns, operation == "Read", int(size), tier, key)


def _time_ns(text: str, at: str) -> int:
    try:
        seconds = Decimal(text)
    except InvalidOperation:
        seconds = Decimal("NaN")
    if not seconds.is_finite() or not 0 <= seconds < 1 << 40:
        raise ConfigError(Problem(at, f'"{text[:32]}" is not a time', "write seconds since 1970"))
    return int(seconds * NS_PER_S)


def _content(path: Path, where: str) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(Problem(where, f"{path} is not a regular file", "name one"))
        with path.open("rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(f"{where}: {path}", problem, "name a file that exists")) from None
    if len(content) > MOST_FILE_BYTES:
        raise ConfigError(Problem(str(path), f"has more than {MOST_FILE_BYTES} bytes", "name another file"))
    return content

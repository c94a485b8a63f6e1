"""Computes the checkpoint of a DLIO workload: the files that each rank writes, and their bytes. Pure.

Ranks: tensor parallel first, then stages, then data. Every tensor is divided by the tensor-parallel degree, and with ZeRO
3 by the data-parallel one, each rounded down. Formulas: argonne-lcf/dlio_benchmark (checkpointing/base_checkpointing.py).
"""

from __future__ import annotations

from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production.text_files import FileFault, quote
from etloop.workload.readers.production.yaml_files import list_of, section_of, string_of, whole_of

_ITEM_BYTES: Final = {"int8": 1, "uint8": 1, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}
_MOST_TENSORS: Final = 1 << 16
_DEFAULT_MODEL_BYTES: Final = 10_240
_TRANSFORMER: Final = "transformer"


@dataclass(frozen=True, slots=True)
class Model:
    """The numbers that a checkpoint follows from."""

    layers: int
    """Layers of a transformer; 0: none."""
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
    data: int = 0
    """Data-parallel degree of a job that only some of its ranks represent; 0: as the ranks imply."""
    other_bytes: int = 0
    """States of a model other than a transformer."""
    layer_parameters: tuple[int, ...] = ()
    """Stated tensor sizes of a layer, in bytes, in place of a transformer's."""
    optimization_groups: tuple[int, ...] = ()
    """Stated tensor sizes of the optimizer, in bytes."""

    @property
    def parameters(self) -> int:
        """Return the parameters of the model."""
        hidden, kv = self.hidden, self.hidden // self.heads * self.kv_heads
        layer = 2 * hidden + hidden * (hidden + 2 * kv) + hidden**2 + 3 * self.feed_forward * hidden
        return 2 * self.vocabulary * hidden + self.layers * layer + hidden

    def files_of(self, rank: int, ranks: int) -> tuple[tuple[str, int], ...]:
        """Return name and bytes of the files that a rank writes."""
        group = self.tensor * self.pipeline
        data = self.data or ranks // group
        replica = rank // group
        if not self.zero_stage and replica:
            return ()
        files = [("model", self.other_bytes), ("layers", self._layer_bytes(rank, data))]
        if self.zero_stage in (1, 2) and (replica or not self.layers):
            files.pop()
        files.append(("optimizer", self._optimizer_bytes(data)))
        return tuple(file for file in files if file[1])

    def bytes_of(self, rank: int, ranks: int) -> tuple[int, int]:
        """Return the bytes of model and optimizer states that a rank writes."""
        files = self.files_of(rank, ranks)
        optimizer = sum(size for name, size in files if name == "optimizer")
        return sum(size for _, size in files) - optimizer, optimizer

    def _layer_bytes(self, rank: int, data: int) -> int:
        """Return the bytes of the layers of a rank's stage."""
        stage = rank // self.tensor % self.pipeline
        layers = self.layers // self.pipeline + (stage < self.layers % self.pipeline)
        if self.layer_parameters:
            return layers * sum(size // self.tensor for size in self.layer_parameters)
        if not self.layers:
            return 0
        hidden, kv = self.hidden, self.hidden // self.heads * self.kv_heads
        shards = data if self.zero_stage == 3 else 1
        split = (
            hidden * (hidden + 2 * kv),
            hidden**2,
            2 * hidden * self.feed_forward,
            hidden * self.feed_forward,
        )
        count = layers * (2 * (hidden // shards) + sum(size // self.tensor // shards for size in split))
        embedding = hidden * self.vocabulary // self.tensor // shards
        if stage == 0:
            count += embedding
        if stage == self.pipeline - 1:
            count += embedding + hidden // shards
        return count * self.model_item_bytes

    def _optimizer_bytes(self, data: int) -> int:
        """Return the bytes of the optimizer states of a rank that writes them."""
        if self.optimization_groups:
            # DLIO keeps two tensors of each group, and one of all groups.
            return 3 * sum(self.optimization_groups)
        if not self.layers:
            return 0
        count = self.parameters // (self.tensor * self.pipeline * (data if self.zero_stage else 1))
        return (3 * count + 15 * self.hidden) * self.optimizer_item_bytes if count else 0


def model_of(document: dict[str, Any], ranks: int) -> Model:
    """Return the model of a workload. Raises `FileFault`."""
    model = section_of(document, "model")
    shape, degrees = section_of(model, "transformer"), section_of(model, "parallelism")
    layers = max(0, whole_of(model, "num_layers", -1, -1))
    heads = whole_of(shape, "num_attention_heads", 32, 1)
    is_transformer = string_of(model, "type", _TRANSFORMER if shape else "") == _TRANSFORMER
    stated = whole_of(model, "model_size_bytes", whole_of(model, "model_size", _DEFAULT_MODEL_BYTES))
    result = Model(
        layers=layers,
        hidden=whole_of(shape, "hidden_size", 2048, 1),
        vocabulary=whole_of(shape, "vocab_size", 32_000, 1),
        feed_forward=whole_of(shape, "ffn_hidden_size", 8192, 1),
        heads=heads,
        kv_heads=whole_of(shape, "num_kv_heads", 8, 1),
        tensor=whole_of(degrees, "tensor", 1, 1),
        pipeline=whole_of(degrees, "pipeline", 1, 1),
        zero_stage=whole_of(degrees, "zero_stage", 0),
        model_item_bytes=_item_bytes(model, "model_datatype", "fp16"),
        optimizer_item_bytes=_item_bytes(model, "optimizer_datatype", "fp32"),
        data=_data_degree(document, degrees),
        other_bytes=0 if is_transformer else stated,
        layer_parameters=_tensors(model, "layer_parameters"),
        optimization_groups=_tensors(model, "optimization_groups"),
    )
    _check_degrees(result, ranks)
    return result


def _data_degree(document: dict[str, Any], degrees: dict[str, Any]) -> int:
    """Return the data-parallel degree of a job of which the ranks are a part; 0 in the default mode."""
    mode = string_of(section_of(document, "checkpoint"), "mode", "default")
    data = max(0, whole_of(degrees, "data", -1, -1))
    if mode not in ("default", "subset") or (mode == "subset") != bool(data):
        problem = f"checkpoint.mode is {quote(mode)} with parallelism.data {data or 'unstated'}"
        raise FileFault(0, problem, "state both mode: subset and parallelism.data, or neither")
    return data


def _check_degrees(model: Model, ranks: int) -> None:
    """Raise `FileFault` for degrees that DLIO refuses too."""
    group = model.tensor * model.pipeline
    fits = ranks <= group * model.data if model.data else not ranks % group
    if not fits or model.zero_stage > 3 or model.pipeline > max(1, model.layers):
        problem = (
            f"has tensor {model.tensor}, pipeline {model.pipeline} and zero_stage {model.zero_stage} on {ranks} ranks, "
            f"expected a multiple of {group} ranks, at most {model.layers} stages and zero_stage 0 to 3"
        )
        raise FileFault(0, problem, "state a number of ranks that the degrees divide")
    if model.zero_stage == 3 and model.pipeline > 1:
        raise FileFault(0, "has zero_stage 3 with pipeline stages, which DLIO refuses", "set pipeline to 1")


def _tensors(model: dict[str, Any], key: str) -> tuple[int, ...]:
    if model.get(key) is None:
        return ()
    sizes = list_of(model, key, _MOST_TENSORS)
    return tuple(whole_of({key: size}, key, None) for size in sizes)


def _item_bytes(model: dict[str, Any], key: str, default: str) -> int:
    name = string_of(model, key, default)
    if name not in _ITEM_BYTES:
        raise FileFault(0, f"model.{key} is {quote(name)}", f"write one of {', '.join(_ITEM_BYTES)}")
    return _ITEM_BYTES[name]

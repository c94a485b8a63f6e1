"""Generates a synthetic training step as a Chakra job: one iteration of a transformer under tensor, data, pipeline and
expert parallelism, for demos, tests and labs without a recorded trace.

Decides nodes, dependencies, sizes and groups. Deterministic: every number follows from the `SyntheticSpec`. Leaves
writing files to readers/et_writer.py. Modelled per rank and micro-batch: attention and feed-forward as COMP nodes,
each followed by an all-reduce (tensor parallelism); an all-to-all before and after the feed-forward (experts spread
over the data-parallel group); activations and their gradients sent between stages in the one-forward-one-backward
order. Then, per layer, a reduce-scatter of gradients that overlaps the rest of the backward pass, the optimizer, and
an all-gather of parameters (sharded optimizer states); last an all-reduce of statistics over all ranks and a
barrier. With fully sharded parameters, a layer's parameters are gathered before every forward and backward pass
instead, half a layer ahead of its compute. With a skew, dispatch and combine are uneven (moe). Embedding and output
layers are left out: they would add one more layer of the same traffic.

Sizes: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC'21, sections 2 and 3;
sharded parameters: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB'23.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.chakra.encoder import EtAttribute, EtNode
from etloop.workload.chakra.nodes import SPLIT_ATTRIBUTE, attributes_of
from etloop.workload.graph.moe import MOST_SKEW, Matrix, combine_splits, dispatch_splits, token_histogram
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.trace.trace import CollectiveKind, NodeKind

if TYPE_CHECKING:
    import random

MAX_NODES: Final = 1_000_000
_MAX_WORLD: Final = 65_536
_STATISTICS_BYTES: Final = 4096
"""Size of loss, gradient norms and overflow flags that every rank receives at the end of a step."""
_OPTIMIZER_BYTES_PER_PARAMETER: Final = 28
"""Adam in mixed precision: reads and writes master weight and two moments (fp32), reads the gradient (fp32)."""
_PARAMETERS_PER_HIDDEN_SQUARED: Final = 12
"""Attention 4 h^2, feed-forward 8 h^2."""
_WORLD_KEY: Final = "1"


@dataclass(frozen=True, slots=True)
class SyntheticJob:
    """Nodes of every rank in issue order, and the groups that their `pg_name` refers to."""

    ranks: tuple[tuple[EtNode, ...], ...]
    groups: dict[str, tuple[int, ...]]


def synthesize(spec: SyntheticSpec, rng: random.Random | None = None) -> SyntheticJob:
    """Return the job of `spec`. Raises `ConfigError` with every invalid value.

    `rng`, seeded with `spec.seed`, draws the popularity of experts; it is needed only with a skew.
    """
    if problems := _problems(spec):
        raise ConfigError(*problems)
    sizes = _sizes(spec)
    groups = _Groups(spec)
    splits = _expert_splits(spec, rng) if spec.expert_skew_percent else {}
    ranks = tuple(_RankStep(spec, sizes, groups, splits, rank).nodes() for rank in range(spec.world_size))
    return SyntheticJob(ranks, dict(groups.members))


def _expert_splits(spec: SyntheticSpec, rng: random.Random | None) -> dict[tuple[int, int], Matrix]:
    """Return bytes between the ranks of an expert group, by (layer, micro-batch), with one expert per rank and one
    expert per token.

    Tensor-parallel peers hold slices of the same tokens, so their groups share a matrix.
    """
    assert rng is not None
    ranks, skew = spec.data_parallel, spec.expert_skew_percent / 100
    tokens = -(-spec.micro_batch_sequences * spec.sequence_tokens // spec.tensor_parallel)
    token_bytes = spec.hidden_size * spec.element_bytes
    return {
        (layer, micro_batch): dispatch_splits(
            token_histogram(ranks, ranks, tokens, 1, skew, rng), token_bytes
        )
        for layer in range(spec.pipeline_parallel * spec.layers_per_stage)
        for micro_batch in range(spec.micro_batches)
    }


_BOUNDS: Final = {
    "tensor_parallel": (1, 1024),
    "data_parallel": (1, _MAX_WORLD),
    "pipeline_parallel": (1, 1024),
    "layers_per_stage": (1, 4096),
    "micro_batches": (1, 65_536),
    "micro_batch_sequences": (1, 65_536),
    "sequence_tokens": (1, 1 << 24),
    "hidden_size": (1, 1 << 20),
    "element_bytes": (1, 8),
    "expert_skew_percent": (0, 100 * MOST_SKEW),
    "seed": (0, 1 << 62),
    "device_flops": (1, 10**21),
    "device_memory_bytes_per_s": (1, 10**18),
}


def _problems(spec: SyntheticSpec) -> tuple[Problem, ...]:
    problems = []
    for name in (entry.name for entry in fields(spec) if entry.name in _BOUNDS):
        least, most = _BOUNDS[name]
        value = getattr(spec, name)
        if not least <= value <= most:
            fault = f"is {value}, expected {least} to {most}"
            problems.append(
                Problem(f"synthetic job: {name}", fault, f"choose a number from {least} to {most}")
            )
    if problems:
        return tuple(problems)
    world = (
        f"{spec.tensor_parallel} x {spec.data_parallel} x {spec.pipeline_parallel} = {spec.world_size} ranks"
    )
    if not 2 <= spec.world_size <= _MAX_WORLD:
        fault = f"tensor_parallel x data_parallel x pipeline_parallel is {world}, expected 2 to {_MAX_WORLD}"
        problems.append(Problem("synthetic job", fault, "raise or lower one of the three"))
    if spec.hidden_size % spec.tensor_parallel:
        fault = f"is {spec.hidden_size}, not a multiple of tensor_parallel {spec.tensor_parallel}"
        remedy = "choose a multiple: every rank of a tensor-parallel group holds an equal slice"
        problems.append(Problem("synthetic job: hidden_size", fault, remedy))
    if spec.expert_skew_percent and not (spec.experts and spec.data_parallel > 1):
        fault = "is set, but the job has no all-to-all between experts"
        remedy = "leave it at 0, or set experts and data_parallel to 2 or more"
        problems.append(Problem("synthetic job: expert_skew_percent", fault, remedy))
    nodes_per_pass = 14 if spec.sharded_parameters else 12
    nodes = spec.world_size * spec.layers_per_stage * (nodes_per_pass * spec.micro_batches + 3)
    if nodes > MAX_NODES:
        fault = f"would have about {nodes} nodes, the limit is {MAX_NODES}"
        problems.append(Problem("synthetic job", fault, "lower ranks, layers_per_stage or micro_batches"))
    return tuple(problems)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes, operations and times of one rank's part of a layer."""

    activation_bytes: int
    expert_bytes: int
    gradient_bytes: int
    attention_flop: int
    feed_forward_flop: int
    optimizer_us: int


def _sizes(spec: SyntheticSpec) -> _Sizes:
    tokens = spec.micro_batch_sequences * spec.sequence_tokens
    hidden, tensor = spec.hidden_size, spec.tensor_parallel
    parameters = _PARAMETERS_PER_HIDDEN_SQUARED * hidden * hidden // tensor
    # Each rank of the group gets whole elements. Frameworks pad their buffers in the same way.
    unit = spec.data_parallel * spec.element_bytes
    shard_parameters = -(-parameters // spec.data_parallel)
    return _Sizes(
        activation_bytes=tokens * hidden * spec.element_bytes,
        expert_bytes=_pad(-(-tokens // tensor) * hidden * spec.element_bytes, unit),
        gradient_bytes=_pad(parameters * spec.element_bytes, unit),
        attention_flop=(8 * hidden + 4 * spec.sequence_tokens) * hidden * tokens // tensor,
        feed_forward_flop=16 * hidden * hidden * tokens // tensor,
        optimizer_us=_microseconds(
            shard_parameters * _OPTIMIZER_BYTES_PER_PARAMETER, spec.device_memory_bytes_per_s
        ),
    )


def _pad(size_bytes: int, unit_bytes: int) -> int:
    return size_bytes + -size_bytes % unit_bytes


def _microseconds(amount: int, per_s: int) -> int:
    """Return the time for `amount` in us, rounded up to at least 1, the resolution of the trace."""
    return max(1, -(-amount * 1_000_000 // per_s))


class _Groups:
    """Communicators of the job, with a key for each of more than one member."""

    def __init__(self, spec: SyntheticSpec) -> None:
        tensor, data = spec.tensor_parallel, spec.data_parallel
        stage_ranks = tensor * data
        self.members: dict[str, tuple[int, ...]] = {_WORLD_KEY: tuple(range(spec.world_size))}
        self._keys: dict[tuple[str, int], str] = {}
        if tensor > 1:
            for first in range(0, spec.world_size, tensor):
                self._add("tensor", tuple(range(first, first + tensor)))
        for purpose in ("data", "expert"):
            if data == 1 or (purpose == "expert" and not spec.experts):
                continue
            for stage in range(0, spec.world_size, stage_ranks):
                for first in range(stage, stage + tensor):
                    self._add(purpose, tuple(range(first, stage + stage_ranks, tensor)))

    def key(self, purpose: str, rank: int) -> str | None:
        """Return the key of the rank's group for a purpose, None if it would be alone."""
        return self._keys.get((purpose, rank))

    def _add(self, purpose: str, ranks: tuple[int, ...]) -> None:
        key = str(len(self.members) + 1)
        self.members[key] = ranks
        for rank in ranks:
            self._keys[purpose, rank] = key


def _one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> Iterator[tuple[bool, int]]:
    """Yield (is backward, micro-batch) in the order of a stage: fill the pipeline, alternate, drain."""
    warm_up = min(stages - 1 - stage, micro_batches)
    yield from ((False, index) for index in range(warm_up))
    for index in range(micro_batches - warm_up):
        yield False, warm_up + index
        yield True, index
    yield from ((True, index) for index in range(micro_batches - warm_up, micro_batches))


@dataclass(slots=True)
class _RankStep:
    """Builds one rank's nodes. A method that adds an operation returns the id that the next one waits for."""

    spec: SyntheticSpec
    sizes: _Sizes
    groups: _Groups
    splits: Mapping[tuple[int, int], Matrix]
    rank: int
    _nodes: list[EtNode] = field(default_factory=list)
    _last_compute: int | None = None
    _compute_before_last: int | None = None
    _forward_outputs: dict[int, int] = field(default_factory=dict)
    _last_sends: list[int] = field(default_factory=list)

    def nodes(self) -> tuple[EtNode, ...]:
        """Return the rank's nodes in issue order."""
        spec = self.spec
        reduced: list[int] = []
        for is_backward, index in _one_forward_one_backward(
            self._stage, spec.pipeline_parallel, spec.micro_batches
        ):
            if is_backward:
                reduced += self._backward(index)
            else:
                self._forward(index)
        self._finish(reduced)
        return tuple(self._nodes)

    @property
    def _stage(self) -> int:
        return self.rank // self._stage_ranks

    @property
    def _stage_ranks(self) -> int:
        return self.spec.tensor_parallel * self.spec.data_parallel

    def _layers(self) -> range:
        first = self._stage * self.spec.layers_per_stage
        return range(first, first + self.spec.layers_per_stage)

    def _forward(self, micro_batch: int) -> None:
        sizes = self.sizes
        name = f"mb{micro_batch}"
        last_node = self._recv(f"{name}.activations", self.rank - self._stage_ranks, 2 * micro_batch)
        for layer in self._layers():
            layer_name = f"{name}.layer{layer}"
            gathered = self._gather_parameters(f"{layer_name}.parameters")
            last_node = self._compute(f"{layer_name}.attention", last_node, sizes.attention_flop, gathered)
            last_node = self._tensor_sum(f"{layer_name}.attention.sum", last_node)
            last_node = self._exchange(f"{layer_name}.dispatch", last_node, (layer, micro_batch))
            last_node = self._compute(f"{layer_name}.feed_forward", last_node, sizes.feed_forward_flop)
            last_node = self._tensor_sum(f"{layer_name}.feed_forward.sum", last_node)
            last_node = self._exchange(
                f"{layer_name}.combine", last_node, (layer, micro_batch), is_return=True
            )
        assert last_node is not None
        self._forward_outputs[micro_batch] = last_node
        self._send(f"{name}.activations", last_node, self.rank + self._stage_ranks, 2 * micro_batch)

    def _backward(self, micro_batch: int) -> list[int]:
        """Add the backward pass of a micro-batch. Return the nodes that hold a layer's reduced gradients, after the
        last micro-batch."""
        sizes = self.sizes
        name = f"mb{micro_batch}"
        last_node = self._recv(f"{name}.gradients", self.rank + self._stage_ranks, 2 * micro_batch + 1)
        forward: int | None = self._forward_outputs.pop(micro_batch)
        reduced = []
        for layer in reversed(self._layers()):
            layer_name = f"{name}.layer{layer}"
            gathered = self._gather_parameters(f"{layer_name}.parameters.backward")
            after = last_node if last_node is not None else forward
            last_node = self._exchange(f"{layer_name}.combine.backward", after, (layer, micro_batch))
            last_node = self._compute(
                f"{layer_name}.feed_forward.backward",
                last_node,
                2 * sizes.feed_forward_flop,
                forward,
                gathered,
            )
            last_node = self._tensor_sum(f"{layer_name}.feed_forward.backward.sum", last_node)
            last_node = self._exchange(
                f"{layer_name}.dispatch.backward", last_node, (layer, micro_batch), is_return=True
            )
            last_node = self._compute(f"{layer_name}.attention.backward", last_node, 2 * sizes.attention_flop)
            if micro_batch == self.spec.micro_batches - 1:
                kind, size_bytes = CollectiveKind.REDUCE_SCATTER, sizes.gradient_bytes
                reduced.append(self._in_group("data", f"layer{layer}.gradients", last_node, kind, size_bytes))
            last_node = self._tensor_sum(f"{layer_name}.attention.backward.sum", last_node)
            forward = None
        assert last_node is not None
        self._send(f"{name}.gradients", last_node, self.rank - self._stage_ranks, 2 * micro_batch + 1)
        return reduced

    def _finish(self, reduced: list[int]) -> None:
        layer_ends = []
        shard_bytes = self.sizes.gradient_bytes // self.spec.data_parallel
        for layer, gradients in zip(reversed(self._layers()), reduced, strict=True):
            name = f"layer{layer}"
            updated = self._add_timed(
                f"{name}.optimizer", (gradients,), self.sizes.optimizer_us, shard_bytes, ()
            )
            if not self.spec.sharded_parameters:
                kind = CollectiveKind.ALL_GATHER
                updated = self._in_group("data", f"{name}.parameters", updated, kind, shard_bytes)
            layer_ends.append(updated)
        kind = CollectiveKind.ALL_REDUCE
        statistics = self._collective("statistics", tuple(layer_ends), kind, _STATISTICS_BYTES, _WORLD_KEY)
        self._collective("barrier", (statistics, *self._last_sends), CollectiveKind.BARRIER, 0, _WORLD_KEY)

    def _in_group(self, purpose: str, name: str, after: int, kind: CollectiveKind, size_bytes: int) -> int:
        """Add a collective of the rank's group for that purpose; return `after` if the rank has no such group."""
        group = self.groups.key(purpose, self.rank)
        return after if group is None else self._collective(name, (after,), kind, size_bytes, group)

    def _tensor_sum(self, name: str, after: int) -> int:
        return self._in_group("tensor", name, after, CollectiveKind.ALL_REDUCE, self.sizes.activation_bytes)

    def _gather_parameters(self, name: str) -> int | None:
        """Add the all-gather of a layer's parameters, concurrent with half of the layer before; return None if a rank
        holds all parameters."""
        group = self.groups.key("data", self.rank)
        if group is None or not self.spec.sharded_parameters:
            return None
        shard_bytes = self.sizes.gradient_bytes // self.spec.data_parallel
        # No further ahead: the gathered parameters must fit in memory in addition to those in use.
        deps = tuple(node for node in (self._compute_before_last,) if node is not None)
        return self._collective(name, deps, CollectiveKind.ALL_GATHER, shard_bytes, group)

    def _exchange(
        self, name: str, after: int | None, draw: tuple[int, int], *, is_return: bool = False
    ) -> int | None:
        """Add the all-to-all that sends tokens to the ranks of their experts or, with `is_return`, back."""
        group = self.groups.key("expert", self.rank)
        if group is None:
            return after
        deps = () if after is None else (after,)
        size_bytes = self.sizes.expert_bytes
        split_attributes: tuple[EtAttribute, ...] = ()
        if self.splits:
            matrix = combine_splits(self.splits[draw]) if is_return else self.splits[draw]
            split_bytes = matrix[self.groups.members[group].index(self.rank)]
            size_bytes, split_attributes = sum(split_bytes), attributes_of(**{SPLIT_ATTRIBUTE: split_bytes})
        return self._collective(name, deps, CollectiveKind.ALL_TO_ALL, size_bytes, group, split_attributes)

    def _compute(self, name: str, after: int | None, flop: int, *also_after: int | None) -> int:
        deps = tuple(node for node in (after, *also_after) if node is not None)
        duration_us = _microseconds(flop, self.spec.device_flops)
        activation_bytes = self.sizes.activation_bytes
        return self._add_timed(name, deps, duration_us, activation_bytes, attributes_of(num_ops=flop))

    def _add_timed(
        self,
        name: str,
        deps: tuple[int, ...],
        duration_us: int,
        tensor_bytes: int,
        more: tuple[EtAttribute, ...],
    ) -> int:
        # A device runs one computation at a time. The order is a data dependency, because many readers honour only these.
        if self._last_compute is not None:
            deps += (self._last_compute,)
        attributes = (*more, *attributes_of(tensor_size=tensor_bytes))
        self._compute_before_last = self._last_compute
        self._last_compute = self._add(name, NodeKind.COMP, deps, attributes, duration_us)
        return self._last_compute

    def _collective(
        self,
        name: str,
        deps: tuple[int, ...],
        kind: CollectiveKind,
        size_bytes: int,
        group: str,
        more: tuple[EtAttribute, ...] = (),
    ) -> int:
        attributes = attributes_of(comm_type=int(kind), comm_size=size_bytes, pg_name=group)
        return self._add(name, NodeKind.COMM_COLL, deps, (*attributes, *more))

    def _recv(self, name: str, source: int, tag: int) -> int | None:
        """Add a receive; return None on a stage without a source, the first of the pass."""
        if not 0 <= source < self.spec.world_size:
            return None
        return self._transfer(f"{name}.recv", NodeKind.COMM_RECV, (), (source, self.rank, tag))

    def _send(self, name: str, after: int, destination: int, tag: int) -> None:
        if 0 <= destination < self.spec.world_size:
            key = (self.rank, destination, tag)
            self._last_sends.append(self._transfer(f"{name}.send", NodeKind.COMM_SEND, (after,), key))

    def _transfer(self, name: str, kind: NodeKind, deps: tuple[int, ...], key: tuple[int, int, int]) -> int:
        src, dst, tag = key
        size_bytes = self.sizes.activation_bytes
        attributes = attributes_of(comm_src=src, comm_dst=dst, comm_tag=tag, comm_size=size_bytes)
        return self._add(name, kind, deps, attributes)

    def _add(
        self,
        name: str,
        kind: NodeKind,
        deps: tuple[int, ...],
        attributes: tuple[EtAttribute, ...],
        duration_us: int = 0,
    ) -> int:
        node_id = len(self._nodes) + 1
        all_attributes = (*attributes_of(is_cpu_op=False), *attributes)
        unique = tuple(dict.fromkeys(deps))
        self._nodes.append(
            EtNode(node_id, name, kind, unique, duration_us=duration_us, attributes=all_attributes)
        )
        return node_id

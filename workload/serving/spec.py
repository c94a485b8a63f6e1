"""`serving:` of a workload: model, instances, router, KV transfer, compute and requests. Decides its keys and limits."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import group, required_setting, setting
from etloop.contract.base.units import (
    NS_PER_S,
    approximate_bytes,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_ns,
    parse_factor,
)
from etloop.contract.base.value_parsers import SEED, integer, with_bounds, word_of, words, yes_or_no
from etloop.workload.serving.arrivals import DrawnRequests
from etloop.workload.serving.compute_time import ComputeModel
from etloop.workload.serving.expert_exchange import dispatch_bytes
from etloop.workload.serving.kv_transfer import copied_bytes_per_token, fits_heads
from etloop.workload.serving.model_file import Model
from etloop.workload.serving.requests import MOST_REQUESTS, MOST_TOKENS

MOST_INSTANCES: Final = 256
MOST_GPUS: Final = 1024
"""Most GPUs of all instances: each is a rank."""
MOST_RANK_PAIRS: Final = 1 << 17
COMMAND_BYTES: Final = 64
"""Size of the request of a pull, and of the notification of a complete prefix: about a READ request with its headers."""
USABLE_MEMORY: Final = Fraction(9, 10)
"""Share of a GPU's memory for weights and KV cache: vLLM's gpu_memory_utilization."""
_duration: Final = with_bounds(parse_duration_ns, 1, 3600 * NS_PER_S, format_duration)
_memory: Final = with_bounds(parse_bytes, 1, 1 << 44, format_bytes)


class Routing(StrEnum):
    """How a router places requests."""

    ROUND_ROBIN = "round_robin"
    """Prefill and decode instances in turn, each pool by itself."""
    LEAST_LOADED = "least_loaded"
    """The prefill instance with the fewest tokens to compute, the decode instance with the fewest tokens of KV cache."""
    PREFIX_AWARE = "prefix_aware"
    """The instances that have the longest prefix of the prompt; of equal ones the least loaded."""
    KV_AWARE = "kv_aware"
    """The prefill instance that has the fewest tokens to compute including those of the prompt that its cache lacks; the decode
    instance with the fewest tokens of KV cache including those that it lacks."""


class FirstToken(StrEnum):
    """Where the first token comes from."""

    PREFILL = "prefill"
    """From the end of the prefill: TTFT has no transfer."""
    DECODE = "decode"
    """From the first decode step, after the transfer."""


class Direction(StrEnum):
    """Who moves the KV cache."""

    PUSH = "push"
    """The prefill instance writes."""
    PULL = "pull"
    """The decode instance asks after the prefill, and gets the data."""


class Unit(StrEnum):
    """Content of one message of a KV transfer."""

    LAYER = "layer"
    """Layers; with push they leave while the prefill goes on."""
    BLOCK = "block"
    """Blocks of tokens with all layers, after the prefill."""


@dataclass(frozen=True, slots=True)
class Pool:
    """`prefill:` or `decode:`, the instances of one kind."""

    instances: int = required_setting(
        "instances", integer(1, MOST_INSTANCES), 1, "write how many instances there are"
    )
    """Number of instances."""
    tp: int = setting("tp", integer(1, MOST_GPUS), 1)
    """GPUs of a tensor-parallel group. Their exchanges stay inside the instance and are part of its compute time."""
    ep: int = setting("ep", integer(0, MOST_GPUS), 0)
    """GPUs over which the experts are spread, a multiple of `tp`; 0: experts stay inside a tensor-parallel group."""
    memory_bytes: int = setting("memory", _memory, 80 * 10**9)
    """Memory of a GPU; 90 % of it is for weights and KV cache."""
    sequences: int = setting("sequences", integer(1, 65536), 256)
    """Most sequences of a decode step; of prefill instances unused: each group computes one prompt at a time."""

    @property
    def gpus(self) -> int:
        """Return the GPUs of an instance."""
        return max(self.tp, self.ep)

    @property
    def replicas(self) -> int:
        """Return the tensor-parallel groups of an instance: each has sequences of its own (data-parallel attention)."""
        return self.gpus // self.tp

    def kv_tokens(self, model: Model) -> int:
        """Return the tokens of KV cache that an instance has room for; below 1: the model does not fit."""
        usable_bytes = int(self.gpus * self.memory_bytes * USABLE_MEMORY) - model.weight_bytes
        return usable_bytes // copied_bytes_per_token(model, self.tp)

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield a problem for each rule between keys that is broken."""
        if self.ep and self.ep % self.tp:
            yield Problem(
                "ep", f"must be a multiple of tp, which is {self.tp}", f"write a multiple of {self.tp}"
            )


@dataclass(frozen=True, slots=True)
class KvTransfer:
    """`kv:`, how a KV cache moves to the decode instance."""

    direction: Direction = setting("direction", word_of(Direction), Direction.PUSH)
    """push: the prefill side writes; pull: the decode side asks with 64 bytes for each pair of ranks."""
    unit: Unit = setting("unit", word_of(Unit), Unit.LAYER)
    """Content of a message: layers, or blocks of tokens."""
    layers: int = setting("layers", integer(1, 1024), 1)
    """Layers of a message."""
    blocks: int = setting("blocks", integer(1, 1 << 20), 1)
    """Blocks of a message."""
    block_tokens: int = setting("block_tokens", integer(1, 1 << 16), 16)
    """Tokens of a block of the KV cache."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield a problem for each rule between keys that is broken."""
        foreign = {Unit.LAYER: ("blocks", "block_tokens"), Unit.BLOCK: ("layers",)}
        for key in foreign[self.unit]:
            if key in keys:
                yield Problem(key, f"unit is {self.unit}", "remove it, or change unit")


@dataclass(frozen=True, slots=True)
class Objective:
    """`slo:`, when a request counts for the goodput."""

    ttft_ns: int = setting("ttft", _duration, 0)
    """Longest time to the first token; any if left out."""
    itl_ns: int = setting("itl", _duration, 0)
    """Longest mean time between its tokens; any if left out."""


@dataclass(frozen=True, slots=True)
class TraceRequests:
    """Keys of `requests:` that replay a trace."""

    trace: str = required_setting("trace", words, "", "name a trace, or write a rate")
    """Trace of requests: Mooncake, Qwen-Bailian (JSON lines), Azure or BurstGPT (CSV), or a folder of ServeGen's clients, from
    which they are drawn; relative to the scenario."""
    start_ns: int = setting(
        "start", with_bounds(parse_duration_ns, 0, 366 * 86_400 * NS_PER_S, format_duration), 0
    )
    """Leaves out the requests that arrive before this time of the trace."""
    time: Fraction = setting("time", parse_factor, Fraction(1))
    """Factor of the gaps between arrivals."""
    tokens_divisor: int = setting("tokens_divisor", integer(1, MOST_TOKENS), 1)
    """Divides the tokens of requests and of prefix blocks, rounded up."""
    limit: int = setting("limit", integer(0, MOST_REQUESTS), 0)
    """The first so many requests, from `start` on; 0: all."""
    spread_ns: int = setting("spread", with_bounds(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration), 0)
    """Spreads arrivals of one time over up to this time, for traces with rounded times (Mooncake's conversations: 3s)."""
    seed: int = setting("seed", SEED, 1)
    """Draws the requests of ServeGen's clients; the scenario's seed if left out."""


@dataclass(frozen=True, slots=True)
class ServingKeys:
    """The keys of `serving:` apart from the requests."""

    model_name: str = required_setting(
        "model", words, "llama-3.1-8b", "name a model, such as llama-3.1-70b, or its file"
    )
    """A model that ETLoop has (`workload/serving/models`), or a file of one, relative to the scenario."""
    prefill: Pool = group(Pool, "prefill")
    """Instances that compute prompts."""
    decode: Pool = group(Pool, "decode")
    """Instances that generate tokens."""
    routing: Routing = setting("router", word_of(Routing), Routing.KV_AWARE)
    """How requests are placed."""
    first_token: FirstToken = setting("first_token", word_of(FirstToken), FirstToken.DECODE)
    """Where the first token comes from."""
    keeps_prefixes: bool = setting("prefix_cache", yes_or_no, True)
    """Whether instances keep the prefix blocks of prompts, the least recently used of which leave first."""
    kv: KvTransfer = group(KvTransfer, "kv")
    """Transfer of KV caches."""
    compute: ComputeModel = group(ComputeModel, "compute")
    """Modelled compute times."""
    exchange_layers: int = setting("exchange_layers", integer(1, 1024), 1)
    """Layers whose dispatches, and combines, are one exchange: more of them are fewer and larger messages."""
    objective: Objective = group(Objective, "slo")
    """When a request counts for the goodput."""


@dataclass(frozen=True, slots=True)
class ServingLoad:
    """A serving workload as a scenario has it."""

    model: Model
    keys: ServingKeys
    requests: DrawnRequests | TraceRequests
    directory: Path
    where: str

    @property
    def ranks(self) -> int:
        """Return the number of ranks: every GPU of every instance, those of prefill first."""
        prefill, decode = self.keys.prefill, self.keys.decode
        return prefill.instances * prefill.gpus + decode.instances * decode.gpus


def misfits(model: Model, keys: ServingKeys) -> Iterator[Problem]:
    """Yield a problem for each pool that cannot hold or split the model; `where` is the key."""
    for name, pool in (("prefill", keys.prefill), ("decode", keys.decode)):
        if not fits_heads(model, pool.tp):
            problem = f"{model.kv_heads} heads of {model.name} cannot be split over {pool.tp} GPUs"
            yield Problem(f"{name}.tp", problem, "write a divisor or a multiple of the heads")
        elif pool.kv_tokens(model) < 1:
            weights = approximate_bytes(model.weight_bytes)
            problem = f"{model.name} has {weights} of weights, more than {pool.gpus} x {format_bytes(pool.memory_bytes)} hold"
            yield Problem(f"{name}.tp", problem, "give an instance more GPUs or memory")
        if pool.ep and model.experts is None:
            yield Problem(f"{name}.ep", f"{model.name} has no experts", "remove it")
    if not keys.compute.has_tables and not model.parameters:
        problem = f"{model.name} states no number of parameters, which the roofline needs"
        yield Problem(
            "compute", problem, "write both tables, prefill and decode, or parameters in the model's file"
        )
    gpus = keys.prefill.instances * keys.prefill.gpus + keys.decode.instances * keys.decode.gpus
    if gpus > MOST_GPUS:
        yield Problem("decode.instances", f"{gpus} GPUs in all", f"keep them within {MOST_GPUS}")


def has_exchange(model: Model, pool: Pool) -> bool:
    """Return whether the instances of a pool exchange tokens with experts over their network."""
    return pool.ep > 1 and dispatch_bytes(model, 1) > 0

"""A serving workload in figures, before anything is sent: bytes of KV caches, of experts' exchanges, and of the requests. Pure.

Names are those of draft-calabria-bmwg-ai-fabric-inference-bench-05: S_KV, T_dispatch, T_egress.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.plan.serving_jobs import requests_of
from etloop.workload.serving.expert_exchange import (
    combine_bytes,
    dispatch_bytes,
    pair_bytes,
    peers_of,
    share_of_peers,
)
from etloop.workload.serving.kv_transfer import slices
from etloop.workload.serving.spec import Pool, ServingLoad, has_exchange

CONTEXTS: Final = (4096, 32768, 131072)
"""Tokens of the draft's table of S_KV."""
BATCHES: Final = (1, 8, 32, 64, 128, 256)
"""Tokens of a GPU in an exchange."""


@dataclass(frozen=True, slots=True)
class KvBytes:
    """The KV cache of one context."""

    tokens: int
    cache_bytes: int
    """S_KV, one copy."""
    moved_bytes: int
    """Bytes of a transfer without reuse: with more GPUs than heads, or a latent, each decode GPU gets its copy."""


@dataclass(frozen=True, slots=True)
class ExchangeBytes:
    """One dispatch of one layer, and the combine after it, for so many tokens of every GPU."""

    pool: str
    ranks: int
    tokens: int
    pair_bytes: float
    """T_dispatch, of one ordered pair of GPUs."""
    egress_bytes: int
    """T_egress, of one GPU to all others."""
    other_hosts_bytes: int
    """The part of T_egress to GPUs of other hosts."""
    combine_bytes: int
    """Bytes that one GPU gets back from all others."""


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """A serving workload in figures."""

    schema: str
    model: str
    sources: tuple[str, ...]
    kv_bytes_per_token: int
    kv: tuple[KvBytes, ...]
    kv_flows: int
    """Pairs of GPUs between which the cache of one request moves."""
    exchanges: tuple[ExchangeBytes, ...]
    requests: int
    source: str
    span_ns: int
    """From the first arrival to the last."""
    input_tokens: int
    output_tokens: int
    prompt_kv_bytes: int
    """KV payload of all prompts without reuse."""
    gpus: int
    prefill_kv_tokens: int
    """Tokens of KV cache that a prefill instance has room for."""
    decode_kv_tokens: int
    notes: tuple[str, ...]


def serving_plan(load: ServingLoad, hosts: Sequence[int]) -> ServingPlan:
    """Return the figures of a workload; `hosts` has the host of each rank. Raises as `requests_of`."""
    request_set, keys, model = requests_of(load), load.keys, load.model
    pieces = slices(model, keys.prefill.tp, keys.decode.tp)
    moved = sum(piece.bytes_per_token for piece in pieces)
    first_decode = keys.prefill.instances * keys.prefill.gpus
    input_tokens = sum(request.input_tokens for request in request_set.requests)
    exchanges = [
        _exchange(load, name, pool, hosts[first : first + pool.gpus], tokens)
        for name, pool, first in (("prefill", keys.prefill, 0), ("decode", keys.decode, first_decode))
        if has_exchange(model, pool)
        for tokens in BATCHES
    ]
    return ServingPlan(
        schema="etloop-serving-plan-1",
        model=model.name,
        sources=model.sources,
        kv_bytes_per_token=model.kv_bytes_per_token,
        kv=tuple(KvBytes(tokens, model.kv_bytes(tokens), moved * tokens) for tokens in CONTEXTS),
        kv_flows=len(pieces),
        exchanges=tuple(exchanges),
        requests=len(request_set.requests),
        source=request_set.source,
        span_ns=request_set.requests[-1].arrival_ns,
        input_tokens=input_tokens,
        output_tokens=sum(request.output_tokens for request in request_set.requests),
        prompt_kv_bytes=moved * input_tokens,
        gpus=load.ranks,
        prefill_kv_tokens=keys.prefill.kv_tokens(model),
        decode_kv_tokens=keys.decode.kv_tokens(model),
        notes=request_set.notes,
    )


def _exchange(load: ServingLoad, name: str, pool: Pool, hosts: Sequence[int], tokens: int) -> ExchangeBytes:
    total, ranks = dispatch_bytes(load.model, tokens), pool.gpus
    elsewhere = sum(hosts[peer] != hosts[0] for peer in peers_of(0, hosts))
    return ExchangeBytes(
        pool=name,
        ranks=ranks,
        tokens=tokens,
        pair_bytes=float(pair_bytes(total, ranks)),
        egress_bytes=share_of_peers(total, ranks, ranks - 1),
        other_hosts_bytes=share_of_peers(total, ranks, elsewhere),
        combine_bytes=share_of_peers(combine_bytes(load.model, tokens), ranks, ranks - 1),
    )

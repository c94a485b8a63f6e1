"""Which ranks of a decode instance get which bytes of a KV cache from which ranks of a prefill instance. Pure.

With heads, a decode rank needs its own heads, and reads each from a rank that has it; with more ranks than heads, a head is on
several ranks, and each gets its copy (vllm-project/vllm:vllm/distributed/kv_transfer, tensor-parallel mapping of NIXL). A latent
is on every rank in full.
"""

from __future__ import annotations

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.serving.model_file import Model


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes that one prefill rank sends one decode rank."""

    src: int
    """Rank within the tensor-parallel group of the prefill instance."""
    dst: int
    bytes_per_token: int


def fits_heads(model: Model, tensor_parallel: int) -> bool:
    """Return whether the heads of a model can be split over so many ranks."""
    heads = model.kv_heads
    return not heads or heads % tensor_parallel == 0 or tensor_parallel % heads == 0


def copied_bytes_per_token(model: Model, tensor_parallel: int) -> int:
    """Return the bytes of the KV cache per token on all ranks of a tensor-parallel group, copies included."""
    if model.latent:
        return model.kv_bytes_per_token * tensor_parallel
    if not model.kv_heads:
        return model.kv_bytes_per_token
    return model.kv_bytes_per_token // model.kv_heads * max(model.kv_heads, tensor_parallel)


def slices(model: Model, prefill_tp: int, decode_tp: int) -> tuple[Slice, ...]:
    """Return the transfers of one request, by decode rank. Both sizes passed `fits_heads`."""
    if model.latent:
        return tuple(
            Slice(rank * prefill_tp // decode_tp, rank, model.kv_bytes_per_token) for rank in range(decode_tp)
        )
    heads = model.kv_heads
    if not heads:
        return _even_slices(model.kv_bytes_per_token, prefill_tp, decode_tp)
    head_bytes = model.kv_bytes_per_token // heads
    heads_of_pair: dict[tuple[int, int], int] = {}
    for rank in range(decode_tp):
        first = rank * heads // decode_tp
        for head in range(first, first + max(heads // decode_tp, 1)):
            source = head * prefill_tp // heads
            if prefill_tp > heads:
                # Several prefill ranks have the head: decode ranks that share it read from different ones.
                copies = prefill_tp // heads
                source += rank * prefill_tp // decode_tp % copies
            heads_of_pair[source, rank] = heads_of_pair.get((source, rank), 0) + 1
    return tuple(Slice(src, dst, count * head_bytes) for (src, dst), count in heads_of_pair.items())


def _even_slices(kv_bytes_per_token: int, prefill_tp: int, decode_tp: int) -> tuple[Slice, ...]:
    """Split a cache of unknown form evenly over both groups."""
    flows = max(prefill_tp, decode_tp)
    return tuple(
        Slice(
            flow * prefill_tp // flows,
            flow * decode_tp // flows,
            kv_bytes_per_token * (flow + 1) // flows - kv_bytes_per_token * flow // flows,
        )
        for flow in range(flows)
    )


def cut(total_bytes: int, pieces: int) -> list[int]:
    """Return the bytes of the pieces of a transfer, which differ by at most one."""
    return [total_bytes * (piece + 1) // pieces - total_bytes * piece // pieces for piece in range(pieces)]

"""State of the instances of a cluster and of the requests under way. Values that `cluster` changes; no decisions."""

from __future__ import annotations

from collections import deque

from etloop.workload.serving.prefix_cache import PrefixCache
from etloop.workload.serving.request_state import RequestState
from etloop.workload.serving.requests import Request

NOT_YET = -1


class QueueTally:
    """Length of a queue over time, counted apart from its members: for Little's law."""

    __slots__ = ("area_ns", "entered", "last_ns", "left", "length", "most", "name", "waited_ns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.length = self.most = self.entered = self.left = 0
        self.area_ns = self.last_ns = 0
        """Integral of the length, up to `last_ns`."""
        self.waited_ns = 0
        """Sum of the times in the queue of those that left."""

    def change(self, by: int, now_ns: int) -> None:
        """Count one that enters (1) or leaves (-1)."""
        self.area_ns += self.length * (now_ns - self.last_ns)
        self.last_ns = now_ns
        self.length += by
        self.most = max(self.most, self.length)
        if by > 0:
            self.entered += 1
        else:
            self.left += 1

    def settle(self, now_ns: int) -> None:
        """Count the length up to the end of a run."""
        self.area_ns += self.length * (now_ns - self.last_ns)
        self.last_ns = now_ns


class Progress:
    """One request and its history. Times are since the start of the run; `NOT_YET` before they are known."""

    __slots__ = (
        "asked",
        "cached_decode_tokens",
        "cached_prefill_tokens",
        "decode",
        "decode_fabric_ns",
        "decode_ns",
        "decode_start_ns",
        "first_token_ns",
        "generated",
        "kv_bytes",
        "kv_end_ns",
        "kv_start_ns",
        "last_token_ns",
        "longest_gap_ns",
        "new_tokens",
        "open_messages",
        "prefill",
        "prefill_end_ns",
        "prefill_fabric_ns",
        "prefill_replica",
        "prefill_start_ns",
        "pushed_layers",
        "reason",
        "replica",
        "request",
        "reserved_ns",
        "second_token_ns",
        "state",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.state = RequestState.WAITING_MEMORY
        self.reason = ""
        self.prefill = self.decode = self.replica = self.prefill_replica = NOT_YET
        self.cached_prefill_tokens = self.cached_decode_tokens = self.new_tokens = 0
        self.kv_bytes = self.open_messages = self.pushed_layers = self.generated = 0
        self.asked = False
        self.reserved_ns = self.prefill_start_ns = self.prefill_end_ns = NOT_YET
        self.kv_start_ns = self.kv_end_ns = self.decode_start_ns = NOT_YET
        self.first_token_ns = self.second_token_ns = self.last_token_ns = NOT_YET
        self.prefill_fabric_ns = self.decode_ns = self.decode_fabric_ns = self.longest_gap_ns = 0


class Pass:
    """One prefill or one decode step of an instance: slices of compute, each with an exchange after it if experts are spread."""

    __slots__ = (
        "combining",
        "compute_ns",
        "exchange_ns",
        "fabric_ns",
        "members",
        "slices",
        "slices_done",
        "start_ns",
        "tokens",
        "waits_for",
    )

    def __init__(
        self, members: list[Progress], start_ns: int, compute_ns: int, slices: int, tokens: list[int]
    ) -> None:
        self.members = members
        self.start_ns = start_ns
        self.compute_ns = compute_ns
        self.slices = slices
        self.tokens = tokens
        """By rank of the instance: tokens that it dispatches; empty without an exchange."""
        self.slices_done = self.waits_for = self.fabric_ns = 0
        self.combining = False
        self.exchange_ns = 0
        """Start of the current dispatch or combine."""


class Instance:
    """An instance of either pool."""

    __slots__ = (
        "active",
        "cache",
        "capacity_tokens",
        "context_tokens",
        "current",
        "first_rank",
        "gpus",
        "is_prefill",
        "last_step_ns",
        "load_tokens",
        "memory_queue",
        "memory_tally",
        "number",
        "of_replica",
        "queue",
        "queue_tally",
        "replicas",
        "reserved_tokens",
        "tp",
    )

    def __init__(
        self, number: int, first_rank: int, tp: int, replicas: int, capacity_tokens: int, *, is_prefill: bool
    ) -> None:
        self.number = number
        self.is_prefill = is_prefill
        self.first_rank = first_rank
        self.tp = tp
        self.replicas = replicas
        self.gpus = tp * replicas
        self.capacity_tokens = capacity_tokens
        self.cache = PrefixCache(0)
        self.queue: deque[Progress] = deque()
        """Prompts to compute, or sequences whose KV cache is here."""
        self.memory_queue: deque[Progress] = deque()
        name = "prefill" if is_prefill else "decode"
        self.queue_tally = QueueTally(f"{name} {number}")
        self.memory_tally = QueueTally(f"memory of {name} {number}")
        self.current: Pass | None = None
        self.active: list[Progress] = []
        self.of_replica = [0] * replicas
        """Sequences that each replica has or will get."""
        self.load_tokens = 0
        """Tokens to compute, of those placed here; of a decode instance tokens of KV cache."""
        self.reserved_tokens = 0
        self.context_tokens = 0
        self.last_step_ns = NOT_YET

"""Where a request is computed and where it is decoded. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from etloop.workload.serving.instance import Instance
from etloop.workload.serving.requests import Request
from etloop.workload.serving.spec import Routing


class Router:
    """Places requests one after another."""

    def __init__(self, routing: Routing, block_tokens: int) -> None:
        self._routing = routing
        self._block_tokens = block_tokens
        self._placed = 0

    def place(
        self, request: Request, prefill: Sequence[Instance], decode: Sequence[Instance]
    ) -> tuple[Instance, Instance]:
        """Return the prefill and the decode instance of a request; of equal ones the next in turn."""
        turn = self._placed
        self._placed += 1
        return self._best(request, prefill, turn), self._best(request, decode, turn)

    def _best(self, request: Request, pool: Sequence[Instance], turn: int) -> Instance:
        def cached_tokens(instance: Instance) -> int:
            return min(instance.cache.hits(request.blocks) * self._block_tokens, request.input_tokens)

        in_turn = [pool[(turn + step) % len(pool)] for step in range(len(pool))]
        match self._routing:
            case Routing.ROUND_ROBIN:
                return in_turn[0]
            case Routing.LEAST_LOADED:
                return min(in_turn, key=lambda instance: instance.load_tokens)
            case Routing.PREFIX_AWARE:
                return min(in_turn, key=lambda instance: (-cached_tokens(instance), instance.load_tokens))
            case Routing.KV_AWARE:
                return min(in_turn, key=lambda instance: instance.load_tokens - cached_tokens(instance))

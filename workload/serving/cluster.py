"""The serving cluster: arrivals of requests and of messages in, transfers out. Pure: time and arrivals are arguments.

Decides when a request is placed, computed, moved and decoded. A prefill instance computes one prompt for each of its
tensor-parallel groups at a time, first come, first served. A decode instance runs steps back to back; a sequence joins with the
next step after its KV cache has arrived and leaves after its last token. The decode instance reserves room for prompt and answer
before the prefill begins, so requests are never evicted. The network is the caller's: it reports when messages have arrived.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Sequence
from functools import partial

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.serving.expert_exchange import combine_bytes, dispatch_bytes, peers_of, shares
from etloop.workload.serving.instance import NOT_YET, Instance, Pass, Progress, QueueTally
from etloop.workload.serving.kv_transfer import slices
from etloop.workload.serving.model_file import Model
from etloop.workload.serving.prefix_cache import PrefixCache
from etloop.workload.serving.request_state import RequestState, advance
from etloop.workload.serving.requests import Request, RequestSet
from etloop.workload.serving.router import Router
from etloop.workload.serving.spec import (
    COMMAND_BYTES,
    Direction,
    FirstToken,
    Pool,
    ServingKeys,
    Unit,
    has_exchange,
)


@dataclass(frozen=True, slots=True)
class Start:
    """A message that begins now: over a pair of `Cluster.pairs`, with an id that its arrival is reported by."""

    pair: int
    message_bytes: int
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Counts of a run in addition to its requests, in the order of time."""

    step_end_ns: array[int]
    """By decode step."""
    step_sequences: array[int]
    step_continuing: array[int]
    """Sequences of the step that had a token before, at the end of the instance's last step."""
    step_gap_ns: array[int]
    """Time since the end of that step, which is the gap between two tokens of the continuing ones; 0 for none."""
    step_compute_ns: array[int]
    step_fabric_ns: array[int]
    exchange_ns: array[int]
    """By dispatch or combine: from its first message to the last arrival."""
    exchange_bytes: array[int]


def _no_samples() -> Samples:
    return Samples(*(array("q") for _ in range(8)))


class Cluster:
    """One run. `act` is called with every arrival, and when it asked to be called."""

    def __init__(
        self, model: Model, keys: ServingKeys, request_set: RequestSet, hosts: Sequence[int]
    ) -> None:
        """`hosts` has the host of each rank: peers of an exchange on other hosts come first."""
        self._model = model
        self._keys = keys
        self._requests = request_set.requests
        self._block_tokens = request_set.block_tokens
        self._next_request = 0
        self._router = Router(keys.routing, request_set.block_tokens)
        self.progress: list[Progress] = []
        """By arrival."""
        self.samples = _no_samples()
        self.ended = 0
        """Requests that are finished or refused."""
        self._timers: list[tuple[int, int, Callable[[int], None]]] = []
        self._timer_number = 0
        self._messages: dict[int, Callable[[int], None]] = {}
        self._message_number = 0
        self._started: list[Start] = []
        self.pairs: list[tuple[int, int]] = []
        """Sending and receiving rank."""
        self._pair_number: dict[tuple[int, int], int] = {}
        self.prefill = self._make_pool(keys.prefill, 0, is_prefill=True)
        first = keys.prefill.instances * keys.prefill.gpus
        self.decode = self._make_pool(keys.decode, first, is_prefill=False)
        self._slices = slices(model, keys.prefill.tp, keys.decode.tp)
        self._add_kv_pairs()
        self._peers = {
            (instance.first_rank, rank): peers_of(
                rank, hosts[instance.first_rank : instance.first_rank + instance.gpus]
            )
            for pool, instances in ((keys.prefill, self.prefill), (keys.decode, self.decode))
            if has_exchange(model, pool)
            for instance in instances
            for rank in range(instance.gpus)
        }
        for (first_rank, rank), peers in self._peers.items():
            for peer in peers:
                self._add_pair(first_rank + rank, first_rank + peer)

    # ---- the caller's side

    @property
    def over(self) -> bool:
        """Return whether every request is finished or refused."""
        return self.ended == len(self._requests)

    @property
    def next_ns(self) -> int | None:
        """Return when `act` is to be called without an arrival; None: only after one."""
        times = [self._timers[0][0]] if self._timers else []
        if self._next_request < len(self._requests):
            times.append(self._requests[self._next_request].arrival_ns)
        return min(times, default=None)

    @property
    def tallies(self) -> list[QueueTally]:
        """Return the tallies of all queues."""
        queues = [instance.queue_tally for instance in (*self.prefill, *self.decode)]
        return queues + [instance.memory_tally for instance in self.decode]

    def act(self, now_ns: int, arrived: Sequence[tuple[int, int]]) -> list[Start]:
        """Take the arrivals (number, time) and every timer up to `now_ns`; return the messages that begin."""
        self._started = []
        for number, at_ns in arrived:
            self._messages.pop(number)(at_ns)
        while (due_ns := self.next_ns) is not None and due_ns <= now_ns:
            if self._timers and self._timers[0][0] <= due_ns:
                heapq.heappop(self._timers)[2](max(due_ns, 0))
            else:
                self._next_request += 1
                self._place(self._requests[self._next_request - 1])
        return self._started

    # ---- making

    def _make_pool(self, pool: Pool, first_rank: int, *, is_prefill: bool) -> list[Instance]:
        capacity = pool.kv_tokens(self._model)
        made = []
        for number in range(pool.instances):
            rank = first_rank + number * pool.gpus
            instance = Instance(number, rank, pool.tp, pool.replicas, capacity, is_prefill=is_prefill)
            instance.cache = PrefixCache(capacity // self._block_tokens if self._keys.keeps_prefixes else 0)
            made.append(instance)
        return made

    def _add_pair(self, src: int, dst: int) -> None:
        if (src, dst) not in self._pair_number:
            self._pair_number[src, dst] = len(self.pairs)
            self.pairs.append((src, dst))

    def _add_kv_pairs(self) -> None:
        pulls = self._keys.kv.direction is Direction.PULL
        for source in self.prefill:
            for target in self.decode:
                for group in range(source.replicas):
                    for replica in range(target.replicas):
                        for piece in self._slices:
                            src = source.first_rank + group * source.tp + piece.src
                            dst = target.first_rank + replica * target.tp + piece.dst
                            self._add_pair(src, dst)
                            if pulls:
                                self._add_pair(dst, src)

    # ---- time and messages

    def _at(self, due_ns: int, do: Callable[[int], None]) -> None:
        self._timer_number += 1
        heapq.heappush(self._timers, (due_ns, self._timer_number, do))

    def _send(self, src: int, dst: int, message_bytes: int, on_arrival: Callable[[int], None]) -> None:
        number = self._message_number
        self._message_number += 1
        self._messages[number] = on_arrival
        self._started.append(Start(self._pair_number[src, dst], message_bytes, number))

    # ---- a request until its prefill

    def _place(self, request: Request) -> None:
        progress = Progress(request)
        self.progress.append(progress)
        tokens = request.input_tokens + request.output_tokens
        rooms = ((self.prefill, request.input_tokens), (self.decode, tokens))
        for pool, needed in rooms:
            if needed > pool[0].capacity_tokens:
                kind = "prefill" if pool is self.prefill else "decode"
                progress.state = RequestState.REFUSED
                progress.reason = f"{needed} tokens; a {kind} instance holds {pool[0].capacity_tokens}"
                self.ended += 1
                return
        source, target = self._router.place(request, self.prefill, self.decode)
        progress.prefill, progress.decode = source.number, target.number
        source.load_tokens += request.input_tokens
        target.load_tokens += tokens
        target.memory_queue.append(progress)
        target.memory_tally.change(1, request.arrival_ns)
        self._admit(target, request.arrival_ns)

    def _admit(self, target: Instance, now_ns: int) -> None:
        """Reserve room for the requests at the head of an instance's queue."""
        while target.memory_queue:
            progress = target.memory_queue[0]
            request = progress.request
            tokens = request.input_tokens + request.output_tokens
            if target.reserved_tokens + tokens > target.capacity_tokens:
                return
            target.memory_queue.popleft()
            target.memory_tally.change(-1, now_ns)
            target.memory_tally.waited_ns += now_ns - request.arrival_ns
            target.reserved_tokens += tokens
            progress.replica = min(range(target.replicas), key=target.of_replica.__getitem__)
            target.of_replica[progress.replica] += 1
            progress.reserved_ns = now_ns
            progress.cached_decode_tokens = self._cached_tokens(target, request)
            progress.state = advance(progress.state, RequestState.WAITING_PREFILL)
            source = self.prefill[progress.prefill]
            source.queue.append(progress)
            source.queue_tally.change(1, now_ns)
            if source.current is None:
                self._start_prefill(source, now_ns)

    def _cached_tokens(self, instance: Instance, request: Request) -> int:
        return min(instance.cache.hits(request.blocks) * self._block_tokens, request.input_tokens)

    # ---- prefill

    def _start_prefill(self, source: Instance, now_ns: int) -> None:
        members: list[Progress] = []
        longest_ns = 0
        tokens = [0] * source.gpus if has_exchange(self._model, self._keys.prefill) else []
        while source.queue and len(members) < source.replicas:
            progress = source.queue.popleft()
            source.queue_tally.change(-1, now_ns)
            source.queue_tally.waited_ns += now_ns - progress.reserved_ns
            progress.state = advance(progress.state, RequestState.PREFILLING)
            progress.prefill_start_ns = now_ns
            progress.prefill_replica = len(members)
            request = progress.request
            progress.cached_prefill_tokens = self._cached_tokens(source, request)
            # The last token is always computed: its activation gives the first one of the answer.
            progress.new_tokens = max(request.input_tokens - progress.cached_prefill_tokens, 1)
            cached = request.input_tokens - progress.new_tokens
            took_ns = self._keys.compute.prefill_ns(self._model, source.tp, progress.new_tokens, cached)
            longest_ns = max(longest_ns, took_ns)
            if tokens:
                first = progress.prefill_replica * source.tp
                tokens[first : first + source.tp] = _dealt(progress.new_tokens, source.tp)
            members.append(progress)
        kv = self._keys.kv
        count = -(-self._model.layers // kv.layers) if self._pushes_early else 1
        if tokens:
            count = self._exchanges
        source.current = Pass(members, now_ns, longest_ns, count, tokens)
        self._compute_slice(source, source.current, now_ns)

    @property
    def _pushes_early(self) -> bool:
        """Whether layers leave while the prefill goes on."""
        return self._keys.kv.direction is Direction.PUSH and self._keys.kv.unit is Unit.LAYER

    @property
    def _exchanges(self) -> int:
        experts = self._model.experts
        return 1 if experts is None else -(-experts.layers // self._keys.exchange_layers)

    def _end_prefill(self, source: Instance, current: Pass, now_ns: int) -> None:
        source.current = None
        for progress in current.members:
            progress.prefill_end_ns = now_ns
            progress.prefill_fabric_ns = current.fabric_ns
            source.cache.put(progress.request.blocks)
            source.load_tokens -= progress.request.input_tokens
            if self._keys.first_token is FirstToken.PREFILL:
                self._count_token(progress, now_ns)
                if progress.generated == progress.request.output_tokens:
                    self._finish(progress, now_ns)
                    continue
            progress.state = advance(progress.state, RequestState.TRANSFERRING)
            if not self._pushes_early:
                self._move_kv(progress, now_ns)
            self._end_transfer(progress, now_ns)
        if source.queue:
            self._start_prefill(source, now_ns)

    # ---- KV transfer

    def _rank_pairs(self, progress: Progress) -> list[tuple[int, int, int]]:
        """Return (sending rank, receiving rank, bytes of the whole cache) of a request."""
        source, target = self.prefill[progress.prefill], self.decode[progress.decode]
        first = source.first_rank + progress.prefill_replica * source.tp
        first_target = target.first_rank + progress.replica * target.tp
        missing = progress.request.input_tokens - progress.cached_decode_tokens
        return [
            (first + piece.src, first_target + piece.dst, piece.bytes_per_token * missing)
            for piece in self._slices
        ]

    def _send_kv(self, progress: Progress, src: int, dst: int, message_bytes: int, now_ns: int) -> None:
        if not message_bytes:
            return
        if progress.kv_start_ns == NOT_YET:
            progress.kv_start_ns = now_ns
        progress.open_messages += 1
        progress.kv_bytes += message_bytes
        self._send(src, dst, message_bytes, partial(self._kv_arrived, progress))

    def _push_layers(self, progress: Progress, upto: int, now_ns: int) -> None:
        """Send the layers that are computed, `kv.layers` to a message."""
        layers, per_message = self._model.layers, self._keys.kv.layers
        pairs = self._rank_pairs(progress)
        while progress.pushed_layers < upto:
            first = progress.pushed_layers
            last = min(first + per_message, layers)
            if last > upto:
                return
            for src, dst, total in pairs:
                self._send_kv(progress, src, dst, total * last // layers - total * first // layers, now_ns)
            progress.pushed_layers = last

    def _move_kv(self, progress: Progress, now_ns: int) -> None:
        """Move the whole cache after the prefill."""
        pairs = self._rank_pairs(progress)
        if self._keys.kv.direction is Direction.PUSH:
            for src, dst, total in pairs:
                self._send_pieces(progress, src, dst, total, now_ns)
            return
        for src, dst, total in pairs:
            if total:
                progress.open_messages += 1
                if progress.kv_start_ns == NOT_YET:
                    progress.kv_start_ns = now_ns
                self._send(dst, src, COMMAND_BYTES, partial(self._answer_pull, progress, src, dst, total))

    def _answer_pull(self, progress: Progress, src: int, dst: int, total_bytes: int, now_ns: int) -> None:
        progress.open_messages -= 1
        self._send_pieces(progress, src, dst, total_bytes, now_ns)

    def _send_pieces(self, progress: Progress, src: int, dst: int, total_bytes: int, now_ns: int) -> None:
        kv = self._keys.kv
        if kv.unit is Unit.LAYER:
            units, per_message = self._model.layers, kv.layers
        else:
            missing = progress.request.input_tokens - progress.cached_decode_tokens
            units, per_message = -(-missing // kv.block_tokens), kv.blocks
        for first in range(0, units, per_message):
            last = min(first + per_message, units)
            piece = total_bytes * last // units - total_bytes * first // units
            self._send_kv(progress, src, dst, piece, now_ns)

    def _kv_arrived(self, progress: Progress, now_ns: int) -> None:
        progress.open_messages -= 1
        self._end_transfer(progress, now_ns)

    def _end_transfer(self, progress: Progress, now_ns: int) -> None:
        """Hand a request to its decode instance once the prefill is over and everything has arrived."""
        if progress.open_messages or progress.state is not RequestState.TRANSFERRING:
            return
        if not progress.asked and progress.cached_decode_tokens == progress.request.input_tokens:
            # No byte is missing: the decode instance still has to hear that the prefill is over.
            progress.asked = True
            progress.open_messages = 1
            src, dst, _ = self._rank_pairs(progress)[0]
            self._send(src, dst, COMMAND_BYTES, partial(self._kv_arrived, progress))
            return
        progress.kv_end_ns = now_ns
        target = self.decode[progress.decode]
        target.cache.put(progress.request.blocks)
        progress.state = advance(progress.state, RequestState.WAITING_DECODE)
        target.queue.append(progress)
        target.queue_tally.change(1, now_ns)
        if target.current is None:
            self._start_step(target, now_ns)

    # ---- decode

    def _start_step(self, target: Instance, now_ns: int) -> None:
        while target.queue and len(target.active) < self._keys.decode.sequences:
            progress = target.queue.popleft()
            target.queue_tally.change(-1, now_ns)
            target.queue_tally.waited_ns += now_ns - progress.kv_end_ns
            progress.state = advance(progress.state, RequestState.DECODING)
            progress.decode_start_ns = now_ns
            target.active.append(progress)
            target.context_tokens += progress.request.input_tokens + progress.generated
        sequences = len(target.active)
        took_ns = self._keys.compute.decode_ns(self._model, target.gpus, sequences, target.context_tokens)
        tokens: list[int] = []
        if has_exchange(self._model, self._keys.decode):
            counts = [0] * target.replicas
            for progress in target.active:
                counts[progress.replica] += 1
            tokens = [share for count in counts for share in _dealt(count, target.tp)]
        count = self._exchanges if tokens else 1
        target.current = Pass([], now_ns, took_ns, count, tokens)
        self._compute_slice(target, target.current, now_ns)

    def _end_step(self, target: Instance, current: Pass, now_ns: int) -> None:
        target.current = None
        continuing = 0
        left: list[Progress] = []
        for progress in target.active:
            if progress.generated and progress.decode_start_ns != current.start_ns:
                continuing += 1
            if not progress.decode_ns:
                progress.decode_ns, progress.decode_fabric_ns = current.compute_ns, current.fabric_ns
            self._count_token(progress, now_ns)
            if progress.generated >= progress.request.output_tokens:
                left.append(progress)
        target.context_tokens += len(target.active)
        samples = self.samples
        samples.step_end_ns.append(now_ns)
        samples.step_sequences.append(len(target.active))
        samples.step_continuing.append(continuing)
        samples.step_gap_ns.append(now_ns - target.last_step_ns if continuing else 0)
        samples.step_compute_ns.append(current.compute_ns)
        samples.step_fabric_ns.append(current.fabric_ns)
        target.last_step_ns = now_ns
        if left:
            gone = set(map(id, left))
            target.active = [progress for progress in target.active if id(progress) not in gone]
            for progress in left:
                target.context_tokens -= progress.request.input_tokens + progress.generated
                self._finish(progress, now_ns)
        if target.current is None and (target.active or target.queue):
            self._start_step(target, now_ns)

    def _count_token(self, progress: Progress, now_ns: int) -> None:
        progress.generated += 1
        if progress.generated == 1:
            progress.first_token_ns = now_ns
        else:
            if progress.generated == 2:
                progress.second_token_ns = now_ns
            progress.longest_gap_ns = max(progress.longest_gap_ns, now_ns - progress.last_token_ns)
        progress.last_token_ns = now_ns

    def _finish(self, progress: Progress, now_ns: int) -> None:
        progress.state = advance(progress.state, RequestState.FINISHED)
        self.ended += 1
        target = self.decode[progress.decode]
        tokens = progress.request.input_tokens + progress.request.output_tokens
        target.reserved_tokens -= tokens
        target.load_tokens -= tokens
        target.of_replica[progress.replica] -= 1
        self._admit(target, now_ns)

    # ---- slices of compute, and exchanges with experts

    def _compute_slice(self, instance: Instance, current: Pass, now_ns: int) -> None:
        done, slices_in_all = current.slices_done, current.slices
        took_ns = (
            current.compute_ns * (done + 1) // slices_in_all - current.compute_ns * done // slices_in_all
        )
        self._at(now_ns + took_ns, partial(self._end_slice, instance, current))

    def _end_slice(self, instance: Instance, current: Pass, now_ns: int) -> None:
        current.slices_done += 1
        if instance.is_prefill and self._pushes_early:
            layers = self._model.layers
            upto = layers * current.slices_done // current.slices
            if not current.tokens:
                upto = min(current.slices_done * self._keys.kv.layers, layers)
            for progress in current.members:
                # A request whose only token is the prefill's is never decoded: its cache stays.
                if self._is_decoded(progress.request):
                    self._push_layers(progress, upto, now_ns)
        if current.tokens:
            self._exchange(instance, current, now_ns)
        else:
            self._after_slice(instance, current, now_ns)

    def _is_decoded(self, request: Request) -> bool:
        return self._keys.first_token is FirstToken.DECODE or request.output_tokens > 1

    def _exchange(self, instance: Instance, current: Pass, now_ns: int) -> None:
        """Start a dispatch, or the combine after it: the same pairs backwards."""
        experts = self._model.experts
        assert experts is not None
        first = (current.slices_done - 1) * self._keys.exchange_layers
        layers = min(self._keys.exchange_layers, experts.layers - first)
        bytes_of = combine_bytes if current.combining else dispatch_bytes
        current.exchange_ns = now_ns
        sent_bytes = 0
        for rank, tokens in enumerate(current.tokens):
            total = bytes_of(self._model, tokens) * layers
            if not total:
                continue
            peers = self._peers[instance.first_rank, rank]
            for peer, share in zip(peers, shares(total, instance.gpus), strict=True):
                if not share:
                    continue
                ends = (rank, peer) if not current.combining else (peer, rank)
                src, dst = (instance.first_rank + end for end in ends)
                current.waits_for += 1
                sent_bytes += share
                self._send(src, dst, share, partial(self._exchange_arrived, instance, current))
        self.samples.exchange_bytes.append(sent_bytes)
        if not current.waits_for:
            current.waits_for = 1
            self._exchange_arrived(instance, current, now_ns)

    def _exchange_arrived(self, instance: Instance, current: Pass, now_ns: int) -> None:
        current.waits_for -= 1
        if current.waits_for:
            return
        self.samples.exchange_ns.append(now_ns - current.exchange_ns)
        current.fabric_ns += now_ns - current.exchange_ns
        current.combining = not current.combining
        if current.combining:
            self._exchange(instance, current, now_ns)
        else:
            self._after_slice(instance, current, now_ns)

    def _after_slice(self, instance: Instance, current: Pass, now_ns: int) -> None:
        if current.slices_done < current.slices:
            self._compute_slice(instance, current, now_ns)
        elif instance.is_prefill:
            self._end_prefill(instance, current, now_ns)
        else:
            self._end_step(instance, current, now_ns)


def _dealt(tokens: int, ranks: int) -> list[int]:
    """Return the tokens of each rank of a tensor-parallel group, which differ by at most one."""
    return [tokens // ranks + (rank < tokens % ranks) for rank in range(ranks)]

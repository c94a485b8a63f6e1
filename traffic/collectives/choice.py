"""Choose algorithm, protocol and channels of an op, with the reason: the library's own choice unless the user pins it.

`choose` is pure; the same arguments give the same `Choice`. `why_not` checks without a job whether a pinned algorithm
exists and implements a collective at all, so that a scenario is rejected before any trace is read; conditions on the
group, such as a power of two, are checked by `choose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import Final, NoReturn

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.algorithms.deepep import TOKEN, TokenShape
from etloop.traffic.collectives.algorithms.registry import ALGORITHMS
from etloop.traffic.collectives.completion import CompletionRule, completion_words, with_completion
from etloop.traffic.collectives.core.cutting import MAX_CHANNELS, Cutting, Request
from etloop.traffic.collectives.core.table import Protocol, Schedule, Split
from etloop.traffic.collectives.nccl.constants import NEWEST, NcclAlgorithm, NcclVersion
from etloop.traffic.collectives.nccl.excluded import NVSWITCH, Excluded, excluded_from
from etloop.traffic.collectives.nccl.hardware import Hardware, Layout
from etloop.traffic.collectives.nccl.rails import RAILED, rail_cutting, why_not_railed
from etloop.traffic.collectives.nccl.shaping import channel_shares, cutting_of, p2p_cutting
from etloop.traffic.collectives.nccl.tuning import (
    Estimate,
    Function,
    Tuning,
    channels_for,
    estimates,
    why_disabled,
)
from etloop.traffic.collectives.other_shapings import (
    Pick,
    ShapingRequest,
    gloo_pick,
    gloo_ring_cutting,
    mpi_pick,
    plain_pick,
    whole_buffers,
)
from etloop.traffic.collectives.pins import GroupPins, Pin

GROUPED: Final = frozenset({"all-to-all", "uneven all-to-all", "gather", "scatter", "point-to-point"})
"""Collectives that NCCL implements as grouped sends and receives, and does not tune."""
UNEVEN: Final = "uneven all-to-all"
POINT_TO_POINT: Final = "point-to-point"
P2P: Final = "p2p"
GLOO_RING: Final = "gloo_ring"
DEEPEP: Final = "deepep"
NO_LIMIT_BYTES: Final = 1 << 62


class Shaping(StrEnum):
    """The library whose traffic is imitated."""

    NCCL = "nccl"
    GLOO = "gloo"
    MPI = "mpi"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Custom:
    """A schedule supplied by the user."""

    name: str
    """Name of the algorithm in plans and results."""
    build: Callable[[Request], Schedule]
    """Raises an `InputError` for a request that it cannot implement."""
    protocol: Protocol = Protocol.SIMPLE
    channels: int = 1
    ranks: int = 0
    """Group size that it is for; 0: any."""
    least_bytes: int = 0
    """Minimum bytes of the whole buffer (for an all-gather, of all ranks together)."""
    most_bytes: int = NO_LIMIT_BYTES
    uneven: bool = False
    """For an all-to-all: whether it also implements uneven ones, given the splits of each."""
    cut_as: NcclAlgorithm = NcclAlgorithm.RING
    """NCCL algorithm whose chunks and slices it uses; MSCCL cuts as NCCL's ring kernels do for every collective."""

    def limit(self, ranks: int, nbytes: int) -> str:
        """Return why it does not apply to an op of `nbytes` on `ranks` ranks; "" if it does."""
        if self.ranks not in (0, ranks):
            return f"for {self.ranks} ranks"
        if nbytes < self.least_bytes:
            return f"for {self.least_bytes} bytes and more"
        return f"for {self.most_bytes} bytes at most" if nbytes > self.most_bytes else ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Inputs of a choice in addition to the op."""

    shaping: Shaping = Shaping.NCCL
    pin: Pin = Pin()
    """Pin for every collective that can follow it; other collectives keep their own choice, as with NCCL_ALGO and
    NCCL_PROTO."""
    pins: tuple[tuple[str, Pin], ...] = ()
    """(collective, pin): binding for that collective. `pin` may fill in values that such a pin leaves open."""
    hardware: Hardware = Hardware()
    custom: tuple[tuple[str, Custom], ...] = ()
    """(collective, user's schedule); the first one that applies to an op is used."""
    token: TokenShape = TOKEN
    """Token size of DeepEP writes, used for traces that record bytes only."""
    groups: tuple[GroupPins, ...] = ()
    """Pins of some communicators alone, see `group_pins`; empty in the settings that are passed to `choose`."""
    completion: CompletionRule = CompletionRule.BY_LIBRARY
    nccl: NcclVersion = NEWEST
    """Version that the shaping `nccl` imitates."""
    said_by: str = ""
    """Key of the group pins that were merged in, or ""."""

    def pin_of(self, collective: str) -> Pin:
        """Return the binding pin of a collective; an uneven all-to-all uses that of the even one."""
        pinned_collective = "all-to-all" if collective == UNEVEN else collective
        return dict(self.pins).get(pinned_collective, Pin())


@dataclass(frozen=True, slots=True)
class Choice:
    """Algorithm and cut of an op."""

    algorithm: str
    request: Request
    build: Callable[[Request], Schedule]
    reason: str
    alternatives: tuple[Estimate, ...] = ()
    """Estimates of the tuning model for everything it compared, the choice included; empty without a model."""
    channels_with_bytes: int = 0
    """Channels that get any bytes of the op; 0: all."""
    excluded: tuple[Excluded, ...] = ()
    """Algorithms that NCCL could choose instead on the modelled hosts, but that have no schedule here."""

    def schedule(self) -> Schedule:
        """Build the schedule."""
        return self.build(self.request)

    @property
    def protocol(self) -> Protocol:
        """Return the protocol in use."""
        return self.request.cutting.protocol

    @property
    def completion(self) -> str:
        """Return the completion rule in the words of plans."""
        return completion_words(self.request.cutting)

    @property
    def channels(self) -> int:
        """Return the number of channels in use."""
        return self.channels_with_bytes or self.request.cutting.channels


@lru_cache(maxsize=1 << 14)
def choose(collective: str, layout: Layout, op_bytes: int, settings: Settings) -> Choice:
    """Choose for an op of `op_bytes` (as in a plan) of a collective named as in `Schedule.collective`.

    For an uneven all-to-all `op_bytes` is the bytes that the busiest member sends; the caller adds the splits to the
    request. Raises `PlanError` for a pin that this op cannot follow.
    """
    nbytes = _buffer_bytes(collective, layout, op_bytes)
    inapplicable: list[str] = []
    for custom_collective, custom in settings.custom:
        if custom_collective != ("all-to-all" if collective == UNEVEN else collective):
            continue
        limit = (
            "for even splits"
            if collective == UNEVEN and not custom.uneven
            else custom.limit(layout.ranks, nbytes)
        )
        if not limit:
            return _add_completion(_custom(custom, collective, layout, nbytes, settings), settings)
        inapplicable.append(f"{custom.name} is {limit}")
    pin = _merge_pins(settings, collective)
    choice = (
        _nccl(collective, layout, op_bytes, settings, pin)
        if settings.shaping is Shaping.NCCL
        else _other(collective, layout, op_bytes, settings, pin)
    )
    if choice.algorithm == DEEPEP:
        cutting = replace(choice.request.cutting, token_bytes=settings.token.dispatch_bytes)
        choice = replace(choice, request=replace(choice.request, cutting=cutting))
    algorithm = ALGORITHMS[choice.algorithm]
    cause = (
        algorithm.limit(choice.request)
        if collective in algorithm.collectives
        else "it does not implement this collective"
    )
    if cause:
        _refuse(collective, layout, f"{choice.algorithm} cannot execute it: {cause}")
    source_note = (f"as {settings.said_by} says",) if settings.said_by else ()
    choice = replace(choice, reason="; ".join((choice.reason, *source_note, *inapplicable)))
    return _add_completion(choice, settings)


def _add_completion(choice: Choice, settings: Settings) -> Choice:
    """Return the choice with the completion rule of its library, or the one that the user fixed."""
    library = DEEPEP if choice.algorithm == DEEPEP else settings.shaping.value
    cutting = with_completion(choice.request.cutting, library, settings.completion)
    return replace(choice, request=replace(choice.request, cutting=cutting))


def with_splits(choice: Choice, splits: tuple[tuple[int, ...], ...]) -> Choice:
    """Return the choice for an uneven all-to-all with the matrix that its schedule is built for."""
    return replace(choice, request=replace(choice.request, splits=splits))


def why_not(shaping: Shaping, collective: str, pin: Pin) -> tuple[str, str] | None:
    """Return (what, remedy) if no op of a collective can follow a pin, whatever its group; None if some op can."""
    candidates = sorted(name for name, algorithm in ALGORITHMS.items() if collective in algorithm.collectives)
    if pin.algorithm and pin.algorithm not in ALGORITHMS:
        return f'unknown algorithm "{pin.algorithm[:64]}"', f"write one of {', '.join(candidates)}"
    if pin.algorithm and pin.algorithm not in candidates:
        return f"{pin.algorithm} does not implement {collective}", f"write one of {', '.join(candidates)}"
    if pin.channels > MAX_CHANNELS:
        return f"{pin.channels} channels; NCCL has at most {MAX_CHANNELS}", f"write 1 to {MAX_CHANNELS}"
    uses_flags = pin.protocol not in (None, Protocol.SIMPLE)
    if uses_flags and shaping is not Shaping.NCCL:
        return f"{shaping} has no protocols", "remove protocol, or write shaping: nccl"
    if uses_flags and collective in GROUPED:
        return "sends over a network use the Simple protocol in NCCL", "write protocol: simple"
    if uses_flags and pin.algorithm == NcclAlgorithm.PAT:
        return "PAT has the Simple protocol only", "write protocol: simple"
    if pin.channels > 1 and shaping in (Shaping.GLOO, Shaping.MPI):
        return f"{shaping} has no channels", "remove channels, or write shaping: nccl"
    return None


def _merge_pins(settings: Settings, collective: str) -> Pin:
    """Return the binding pin, completed from the general one as far as this collective can follow it."""
    merged = settings.pin_of(collective)
    general = settings.pin
    for part in (
        Pin(algorithm=general.algorithm),
        Pin(protocol=general.protocol),
        Pin(channels=general.channels),
    ):
        candidate = Pin(
            merged.algorithm or part.algorithm,
            merged.protocol if merged.protocol is not None else part.protocol,
            merged.channels or part.channels,
        )
        if why_not(settings.shaping, collective, candidate) is None:
            merged = candidate
    return merged


def _nccl(collective: str, layout: Layout, op_bytes: int, settings: Settings, pin: Pin) -> Choice:
    """Return NCCL's choice."""
    tuning = Tuning(layout, settings.hardware, settings.nccl)
    if pin.algorithm in RAILED:
        return _choose_rails(collective, op_bytes, tuning, pin)
    if collective in GROUPED:
        return _grouped_choice(collective, op_bytes, tuning, pin)
    function = _function(collective)
    nbytes = _buffer_bytes(collective, layout, op_bytes)
    if pin.algorithm and pin.algorithm not in {"chain", *NcclAlgorithm}:
        # NCCL has no such algorithm: cut it as NCCL's trees, one step per chunk, on one channel unless pinned.
        cutting = cutting_of(
            function,
            NcclAlgorithm.TREE,
            pin.protocol or Protocol.SIMPLE,
            max(1, pin.channels),
            nbytes,
            tuning,
        )
        return _choice(pin.algorithm, collective, layout, cutting, "pinned; not an algorithm of NCCL")
    compared = [
        estimate
        for estimate in estimates(function, nbytes, tuning)
        if collective in ALGORITHMS[_name(estimate.algorithm, collective)].collectives
    ]
    allowed = [estimate for estimate in compared if _follows(estimate, collective, pin)]
    if not allowed:
        _refuse(collective, layout, _why_none(pin, collective, tuning))
    # With equal times the first wins in 2.30, the last in 2.32.
    in_order = allowed if settings.nccl is NcclVersion.V2_30 else allowed[::-1]
    best = min(in_order, key=lambda estimate: estimate.time_ns)
    channels = pin.channels or channels_for(best.algorithm, best.protocol, nbytes, tuning)
    cutting = cutting_of(function, best.algorithm, best.protocol, channels, nbytes, tuning)
    channels_used = channel_shares(function, best.protocol, channels, nbytes, tuning).channels
    excluded = () if pin.algorithm else excluded_from(function, nbytes, tuning)
    reason = _reason(pin, allowed, channels_used, tuning) + _excluded_words(excluded, best)
    choice = _choice(_name(best.algorithm, collective), collective, layout, cutting, reason, tuple(compared))
    return replace(choice, channels_with_bytes=channels_used, excluded=excluded)


def _choose_rails(collective: str, op_bytes: int, tuning: Tuning, pin: Pin) -> Choice:
    """Return the choice of a collective for buffers in symmetric windows, which NCCL does not compare with others."""
    cause = why_not_railed(pin.algorithm, tuning.version)
    if cause:
        _refuse(collective, tuning.layout, cause)
    block_bytes = op_bytes if collective == "all-gather" else -(-op_bytes // tuning.layout.ranks)
    cutting = rail_cutting(pin.algorithm, block_bytes, tuning, pin.channels)
    reason = "pinned; for buffers in symmetric windows"
    return _choice(pin.algorithm, collective, tuning.layout, cutting, reason)


def _function(collective: str) -> Function:
    """Return the function as which NCCL tunes a collective."""
    if collective == "barrier":
        return Function.ALL_REDUCE
    # Broadcasts of several roots in one group call use the scheduler of all-gathers; one of a single root is tuned as a
    # broadcast (ncclPrepareTasks).
    return Function(collective)


def _name(algorithm: NcclAlgorithm, collective: str) -> str:
    """Return the name of an algorithm here: NCCL's broadcast and reduce along the ring are chains."""
    rooted = collective in ("broadcast", "reduce")
    return "chain" if rooted and algorithm is NcclAlgorithm.RING else str(algorithm)


def _follows(estimate: Estimate, collective: str, pin: Pin) -> bool:
    """Return whether an estimate's algorithm and protocol agree with a pin."""
    algorithm_name = _name(estimate.algorithm, collective)
    return (not pin.algorithm or pin.algorithm == algorithm_name) and pin.protocol in (
        None,
        estimate.protocol,
    )


def _why_none(pin: Pin, collective: str, tuning: Tuning) -> str:
    """Return why NCCL disables all combinations that a pin permits."""
    algorithms = [name for name in NcclAlgorithm if pin.algorithm in ("", _name(name, collective))]
    protocols = [pin.protocol] if pin.protocol is not None else list(Protocol)
    causes = (why_disabled(name, protocol, tuning) for name in algorithms for protocol in protocols)
    return "; ".join(dict.fromkeys(cause for cause in causes if cause))


def _reason(pin: Pin, allowed: list[Estimate], channels: int, tuning: Tuning) -> str:
    """Return the reason of a choice, with a note if not all channels get bytes."""
    most = tuning.graph.channels
    reason = "pinned" if len(allowed) == 1 else f"least of {len(allowed)} by NCCL's tuning model"
    if pin.channels:
        reason = reason if reason == "pinned" else f"{reason}; channels pinned"
        most = pin.channels
    return reason if channels == most else f"{reason}; too few bytes for all of {most} channels"


def _excluded_words(excluded: tuple[Excluded, ...], best: Estimate) -> str:
    """Return the note about an algorithm that NCCL could choose by default, needing no more than its hosts have."""
    for algorithm in excluded:
        if algorithm.needs == NVSWITCH:
            faster = " and would take less" if 0 < algorithm.time_ns < best.time_ns else ""
            return f" ({algorithm.name} is left out: it has no schedule{faster})"
    return ""


def _grouped_choice(collective: str, op_bytes: int, tuning: Tuning, pin: Pin) -> Choice:
    """Return the choice for a collective that NCCL implements as grouped sends and receives."""
    ranks = tuning.layout.ranks
    transfer = -(-op_bytes // ranks) if "all-to-all" in collective else op_bytes
    cutting = p2p_cutting(tuning, transfer, pin.channels)
    reason = "NCCL's grouped sends" if not pin.algorithm else "pinned"
    default_algorithm = "linear" if collective in ("gather", "scatter") else P2P
    return _choice(pin.algorithm or default_algorithm, collective, tuning.layout, cutting, reason)


def _other(collective: str, layout: Layout, op_bytes: int, settings: Settings, pin: Pin) -> Choice:
    """Return the choice of a shaping other than NCCL's."""
    request = ShapingRequest(collective, layout.ranks, op_bytes)
    pick = _pick(settings.shaping, request)
    if pin.algorithm:
        pick = Pick(pin.algorithm, "pinned")
    is_gloo_ring = pick.algorithm == GLOO_RING
    cutting = gloo_ring_cutting(request) if is_gloo_ring else whole_buffers(max(1, pin.channels))
    return _choice(pick.algorithm, collective, layout, cutting, pick.reason)


def _pick(shaping: Shaping, request: ShapingRequest) -> Pick:
    """Pick the algorithm of a shaping other than NCCL's."""
    if request.collective in (POINT_TO_POINT, UNEVEN):
        return Pick(P2P, f"{shaping}: one message to each peer")
    picks = {Shaping.GLOO: gloo_pick, Shaping.MPI: mpi_pick}
    return picks.get(shaping, plain_pick)(request)


def _custom(custom: Custom, collective: str, layout: Layout, nbytes: int, settings: Settings) -> Choice:
    """Return the choice of a user's schedule."""
    tuning = Tuning(layout, settings.hardware, settings.nccl)
    pinned = settings.pin_of(collective).protocol
    protocol = custom.protocol if pinned is None else pinned
    cutting = cutting_of(Function.ALL_REDUCE, custom.cut_as, protocol, custom.channels, nbytes, tuning)
    request = _request(collective, layout, replace(cutting, split=Split.EQUAL))
    return Choice(custom.name, request, custom.build, "the user's own schedule")


def _buffer_bytes(collective: str, layout: Layout, op_bytes: int) -> int:
    """Return the bytes of the whole buffer: for an all-gather, the plan states those of one rank."""
    return op_bytes * layout.ranks if collective == "all-gather" else op_bytes


def _request(collective: str, layout: Layout, cutting: Cutting) -> Request:
    return Request(collective, layout.ranks, min(layout.ranks_per_host, layout.ranks), cutting)


def _choice(
    algorithm: str,
    collective: str,
    layout: Layout,
    cutting: Cutting,
    reason: str,
    alternatives: Iterable[Estimate] = (),
) -> Choice:
    """Build the choice of an algorithm with a cut."""
    request = _request(collective, layout, cutting)
    return Choice(algorithm, request, ALGORITHMS[algorithm].build, reason, tuple(alternatives))


def _refuse(collective: str, layout: Layout, problem: str) -> NoReturn:
    """Raise `PlanError` for an op that cannot follow its pin."""
    where = f"{collective} of {layout.ranks} ranks, {layout.ranks_per_host} a host"
    raise PlanError(
        Problem(where, problem, "pin another algorithm in the scenario's collectives section, or none")
    )

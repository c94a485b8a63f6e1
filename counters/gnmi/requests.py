"""Converts requests, as a server gets them, into values, or refuses them with a gRPC status and a reason. Pure; every request
is hostile.

Decides which requests are valid: bounds of paths, subscriptions and intervals, encodings, modes. `tree` decides what exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_duration
from etloop.counters.gnmi.messages import Encoding, ListMode, Path, SubscriptionMode, kind_of
from etloop.counters.gnmi.openconfig import MODELS
from etloop.counters.gnmi.paths import BadPath, Element, GnmiPath, check_bounds, first_key
from etloop.counters.gnmi.sonic import TARGET

MOST_PATHS: Final = 1024
"""Per request: SONiC's priority groups are requested one by one, eight per port."""
MOST_WIDE_PATHS: Final = 32
"""Of those, paths that name no port and are searched in all of them."""
LEAST_SAMPLE_NS: Final = 100 * NS_PER_MS
"""Shortest time between two samples, also used if a client asks for the shortest possible (gNMI specification 3.5.1.5.2)."""
DEFAULT_SAMPLE_NS: Final = NS_PER_S
MOST_SAMPLE_NS: Final = 3600 * NS_PER_S
ENCODINGS: Final = (Encoding.JSON, Encoding.JSON_IETF, Encoding.PROTO)
ORIGINS: Final = ("", "openconfig")
SONIC_ORIGINS: Final = ("", "sonic-db")


class Refused(Exception):
    """A refused request: gRPC's name of the status, and the reason with a remedy."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.what = reason


@dataclass(frozen=True, slots=True)
class GetQuery:
    """A valid Get request."""

    paths: tuple[GnmiPath, ...]
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class SubscribedPath:
    """One path of a subscription."""

    path: GnmiPath
    sample_ns: int = 0
    """Time between two samples of a stream."""
    suppress_redundant: bool = False
    """Whether values that did not change are left out."""
    heartbeat_ns: int = 0
    """Longest time for which an unchanged value may be left out; 0: no limit."""


@dataclass(frozen=True, slots=True)
class SubscribeQuery:
    """A valid list of subscriptions."""

    mode: ListMode
    paths: tuple[SubscribedPath, ...]
    encoding: Encoding
    updates_only: bool


def get_query(message: Any) -> GetQuery:
    """Validate a GetRequest. Raise `Refused`."""
    prefix = path_of(message.prefix)
    paths = _limit_count(message.path, "paths") or (Path(),)
    _refuse_unknown_models(message.use_models)
    return GetQuery(
        _limit_wide(tuple(_parse_path(path, prefix) for path in paths)), _encoding(message.encoding)
    )


def subscribe_query(message: Any) -> SubscribeQuery:
    """Validate the first SubscribeRequest of a call. Raise `Refused`."""
    if kind_of(message) != "subscribe":
        raise Refused("INVALID_ARGUMENT", "the first message of a Subscribe call must be a SubscriptionList")
    subscription_list = message.subscribe
    prefix = path_of(subscription_list.prefix)
    if subscription_list.mode not in set(ListMode):
        raise Refused(
            "INVALID_ARGUMENT",
            f"{subscription_list.mode} is not a SubscriptionList mode: use STREAM, ONCE or POLL",
        )
    mode = ListMode(subscription_list.mode)
    subscriptions = _limit_count(subscription_list.subscription, "subscriptions")
    if not subscriptions:
        raise Refused("INVALID_ARGUMENT", "the SubscriptionList is empty")
    _refuse_unknown_models(subscription_list.use_models)
    paths = tuple(
        _parse_streamed(subscription, _parse_path(subscription.path, prefix))
        if mode is ListMode.STREAM
        else SubscribedPath(_parse_path(subscription.path, prefix))
        for subscription in subscriptions
    )
    _limit_wide(tuple(subscription.path for subscription in paths))
    return SubscribeQuery(mode, paths, _encoding(subscription_list.encoding), subscription_list.updates_only)


def path_of(message: Any) -> GnmiPath:
    """Convert a path message into a value. Raise `Refused` with INVALID_ARGUMENT."""
    # The `element` field, which preceded `elem` (gNMI 0.4), has names alone.
    elements = [Element(element.name, tuple(sorted(element.key.items()))) for element in message.elem]
    elements = elements or [Element(name) for name in message.element]
    try:
        return check_bounds(GnmiPath(tuple(elements), message.target, message.origin))
    except BadPath as error:
        raise Refused("INVALID_ARGUMENT", f"invalid path: {error}") from None


def path_message(path: GnmiPath) -> Any:
    """Convert a path into a message."""
    message = Path(origin=path.origin, target=path.target)
    for element in path.elements:
        message.elem.add(name=element.name).key.update(dict(element.keys))
    return message


def _parse_path(message: Any, prefix: GnmiPath) -> GnmiPath:
    path = path_of(message)
    if path.target and prefix.target and path.target != prefix.target:
        raise Refused("INVALID_ARGUMENT", "the path and the prefix have different targets")
    if path.origin and prefix.origin and path.origin != prefix.origin:
        raise Refused("INVALID_ARGUMENT", "the path and the prefix have different origins")
    joined = path.below(prefix)
    origins = SONIC_ORIGINS if joined.target == TARGET else ORIGINS
    if joined.origin not in origins:
        problem = f'the origin "{joined.origin[:64]}" is not supported; omit it or use {origins[-1]}'
        raise Refused("UNIMPLEMENTED", problem)
    return joined


def _limit_wide(paths: tuple[GnmiPath, ...]) -> tuple[GnmiPath, ...]:
    wide = sum(path.target != TARGET and not first_key(path.elements) for path in paths)
    wide += sum(path.target == TARGET and len(path.elements) < 2 for path in paths)
    if wide > MOST_WIDE_PATHS:
        problem = f"{wide} paths select all ports; at most {MOST_WIDE_PATHS} of them are supported per call"
        raise Refused("RESOURCE_EXHAUSTED", problem)
    return paths


def _parse_streamed(message: Any, path: GnmiPath) -> SubscribedPath:
    if message.mode not in set(SubscriptionMode):
        raise Refused("INVALID_ARGUMENT", f"{message.mode} is not a subscription mode: use SAMPLE")
    mode = SubscriptionMode(message.mode)
    if mode is SubscriptionMode.ON_CHANGE:
        raise Refused("INVALID_ARGUMENT", f"{path}: counters are not sent ON_CHANGE; subscribe with SAMPLE")
    if mode is SubscriptionMode.TARGET_DEFINED:
        return SubscribedPath(path, DEFAULT_SAMPLE_NS)
    sample_ns = message.sample_interval or LEAST_SAMPLE_NS
    heartbeat_ns = message.heartbeat_interval
    for name, value in (
        ("sample_interval", sample_ns),
        ("heartbeat_interval", heartbeat_ns or LEAST_SAMPLE_NS),
    ):
        if not LEAST_SAMPLE_NS <= value <= MOST_SAMPLE_NS:
            limits = f"{format_duration(LEAST_SAMPLE_NS)} to {format_duration(MOST_SAMPLE_NS)}"
            raise Refused("INVALID_ARGUMENT", f"{path}: {name} is {value} ns, expected {limits}")
    return SubscribedPath(path, sample_ns, message.suppress_redundant, heartbeat_ns)


def _encoding(number: int) -> Encoding:
    if number not in ENCODINGS:
        names = ", ".join(encoding.name for encoding in ENCODINGS)
        raise Refused("UNIMPLEMENTED", f"encoding {number} is not supported; use {names}")
    return Encoding(number)


def _limit_count(messages: Iterable[Any], items_word: str) -> tuple[Any, ...]:
    items = tuple(messages)
    if len(items) > MOST_PATHS:
        raise Refused(
            "RESOURCE_EXHAUSTED", f"{len(items)} {items_word}; at most {MOST_PATHS} are supported per call"
        )
    return items


def _refuse_unknown_models(models: Iterable[Any]) -> None:
    known_names = {name for name, _, _ in MODELS}
    for model in models:
        if model.name not in known_names:
            raise Refused(
                "UNIMPLEMENTED",
                f'the model "{model.name[:64]}" is not supported; see Capabilities',
            )

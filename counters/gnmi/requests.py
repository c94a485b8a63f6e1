"""Requests as a server gets them -> values, or a refusal with gRPC's status and a reason. Pure; every request is hostile.

Decides what may be asked at all: bounds of paths, subscriptions and intervals, encodings, modes. What is there is `tree`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_duration
from etloop.counters.gnmi.messages import Encoding, ListMode, Path, SubscriptionMode, kind_of
from etloop.counters.gnmi.openconfig import MODELS
from etloop.counters.gnmi.paths import BadPath, Element, GnmiPath, checked, first_key
from etloop.counters.gnmi.sonic import TARGET

MOST_PATHS: Final = 1024
"""Of one request: SONiC's priority groups are asked for one by one, eight a port."""
MOST_WIDE_PATHS: Final = 32
"""Of those, that do not say a port and are looked for everywhere."""
LEAST_SAMPLE_NS: Final = 100 * NS_PER_MS
"""Between two samples, and what a client gets who asks for the shortest there is (gNMI specification 3.5.1.5.2)."""
DEFAULT_SAMPLE_NS: Final = NS_PER_S
MOST_SAMPLE_NS: Final = 3600 * NS_PER_S
ENCODINGS: Final = (Encoding.JSON, Encoding.JSON_IETF, Encoding.PROTO)
ORIGINS: Final = ("", "openconfig")
SONIC_ORIGINS: Final = ("", "sonic-db")


class Refused(Exception):
    """A request that is not answered: gRPC's name of the status, and what to do about it."""

    def __init__(self, status: str, what: str) -> None:
        super().__init__(what)
        self.status = status
        self.what = what


@dataclass(frozen=True, slots=True)
class GetQuery:
    """A Get."""

    paths: tuple[GnmiPath, ...]
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class SubscribedPath:
    """One path of a subscription."""

    path: GnmiPath
    sample_ns: int = 0
    """Between two samples of a stream."""
    suppress_redundant: bool = False
    """Whether values that did not change are left out."""
    heartbeat_ns: int = 0
    """How long an unchanged value may be left out; 0: for ever."""


@dataclass(frozen=True, slots=True)
class SubscribeQuery:
    """A list of subscriptions."""

    mode: ListMode
    paths: tuple[SubscribedPath, ...]
    encoding: Encoding
    updates_only: bool


def get_query(message: Any) -> GetQuery:
    """A GetRequest. Raises `Refused`."""
    prefix = path_of(message.prefix)
    paths = _bounded(message.path, "paths") or (Path(),)
    _known_models(message.use_models)
    return GetQuery(_narrow(tuple(_asked(one, prefix) for one in paths)), _encoding(message.encoding))


def subscribe_query(message: Any) -> SubscribeQuery:
    """The first SubscribeRequest of a call. Raises `Refused`."""
    if kind_of(message) != "subscribe":
        raise Refused("INVALID_ARGUMENT", "a call begins with a list of subscriptions")
    asked = message.subscribe
    prefix = path_of(asked.prefix)
    if asked.mode not in set(ListMode):
        raise Refused("INVALID_ARGUMENT", f"{asked.mode} is no mode of a list: use STREAM, ONCE or POLL")
    mode = ListMode(asked.mode)
    subscriptions = _bounded(asked.subscription, "subscriptions")
    if not subscriptions:
        raise Refused("INVALID_ARGUMENT", "the list has no subscription")
    _known_models(asked.use_models)
    paths = tuple(
        _streamed(one, _asked(one.path, prefix))
        if mode is ListMode.STREAM
        else SubscribedPath(_asked(one.path, prefix))
        for one in subscriptions
    )
    _narrow(tuple(one.path for one in paths))
    return SubscribeQuery(mode, paths, _encoding(asked.encoding), asked.updates_only)


def path_of(message: Any) -> GnmiPath:
    """A path as a value. Raises `Refused` with INVALID_ARGUMENT."""
    # What was before elem (gNMI 0.4): names alone.
    elements = [Element(one.name, tuple(sorted(one.key.items()))) for one in message.elem]
    elements = elements or [Element(name) for name in message.element]
    try:
        return checked(GnmiPath(tuple(elements), message.target, message.origin))
    except BadPath as error:
        raise Refused("INVALID_ARGUMENT", f"a path cannot be read: {error}") from None


def path_message(path: GnmiPath) -> Any:
    """A path as a message."""
    message = Path(origin=path.origin, target=path.target)
    for element in path.elements:
        message.elem.add(name=element.name).key.update(dict(element.keys))
    return message


def _asked(message: Any, prefix: GnmiPath) -> GnmiPath:
    path = path_of(message)
    if path.target and prefix.target and path.target != prefix.target:
        raise Refused("INVALID_ARGUMENT", "a path has another target than the prefix")
    if path.origin and prefix.origin and path.origin != prefix.origin:
        raise Refused("INVALID_ARGUMENT", "a path has another origin than the prefix")
    whole = path.below(prefix)
    origins = SONIC_ORIGINS if whole.target == TARGET else ORIGINS
    if whole.origin not in origins:
        what = f'the origin "{whole.origin[:64]}" is not served; leave it out or give {origins[-1]}'
        raise Refused("UNIMPLEMENTED", what)
    return whole


def _narrow(paths: tuple[GnmiPath, ...]) -> tuple[GnmiPath, ...]:
    wide = sum(path.target != TARGET and not first_key(path.elements) for path in paths)
    wide += sum(path.target == TARGET and len(path.elements) < 2 for path in paths)
    if wide > MOST_WIDE_PATHS:
        what = f"{wide} paths name no port; at most {MOST_WIDE_PATHS} such are served at once"
        raise Refused("RESOURCE_EXHAUSTED", what)
    return paths


def _streamed(message: Any, path: GnmiPath) -> SubscribedPath:
    if message.mode not in set(SubscriptionMode):
        raise Refused("INVALID_ARGUMENT", f"{message.mode} is no mode of a subscription: use SAMPLE")
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
            raise Refused("INVALID_ARGUMENT", f"{path}: a {name} of {value} ns; from {limits} is served")
    return SubscribedPath(path, sample_ns, message.suppress_redundant, heartbeat_ns)


def _encoding(number: int) -> Encoding:
    if number not in ENCODINGS:
        names = ", ".join(one.name for one in ENCODINGS)
        raise Refused("UNIMPLEMENTED", f"the encoding {number} is not served; use {names}")
    return Encoding(number)


def _bounded(messages: Iterable[Any], what: str) -> tuple[Any, ...]:
    found = tuple(messages)
    if len(found) > MOST_PATHS:
        raise Refused("RESOURCE_EXHAUSTED", f"{len(found)} {what}; at most {MOST_PATHS} are served at once")
    return found


def _known_models(models: Iterable[Any]) -> None:
    known = {name for name, _, _ in MODELS}
    for one in models:
        if one.name not in known:
            raise Refused(
                "UNIMPLEMENTED",
                f'the model "{one.name[:64]}" is not served; Capabilities lists those that are',
            )

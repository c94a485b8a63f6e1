"""Where a request that cannot be read as one is to be answered, if it says so at all. Pure; trusts nothing.

A client without the properties of MQTT 5 names its response topic in the body. The refusal has to reach it most of all when
something is wrong with that body: a key too many, a control character, half of a message.
"""

from __future__ import annotations

import re
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.serialization import MAX_VALUES, Unreadable, parse_msgpack
from etloop.controller.rack.mqtt.encoding import ContentType
from etloop.controller.rack.mqtt.message_parts import MOST_CORRELATION, MOST_TOPIC

_TOPIC: Final = re.compile(rb'"response_topic"\s{0,64}:\s{0,64}"([^"\\\x00-\x1f]{1,%d})"' % (4 * MOST_TOPIC))
_CORRELATION: Final = re.compile(
    rb'"correlation"\s{0,64}:\s{0,64}"([^"\\\x00-\x1f]{1,%d})"' % (4 * MOST_CORRELATION)
)


@dataclass(frozen=True, slots=True)
class ReturnAddress:
    """What a body names: the topic to answer on, and what to return with the answer; "" each if it does not."""

    response_topic: str = ""
    correlation: str = ""


def return_address(body: bytes, form: ContentType) -> ReturnAddress:
    """Return what can be made out; of what is named twice, and differs, nothing."""
    if form is ContentType.JSON:
        return ReturnAddress(_only(_TOPIC, body, MOST_TOPIC), _only(_CORRELATION, body, MOST_CORRELATION))
    try:
        value = parse_msgpack(body, MAX_VALUES)
    except Unreadable:
        return ReturnAddress()
    named = value if isinstance(value, dict) else {}
    return ReturnAddress(
        _text(named.get("response_topic"), MOST_TOPIC), _text(named.get("correlation"), MOST_CORRELATION)
    )


def _only(pattern: re.Pattern[bytes], body: bytes, most: int) -> str:
    found = set(pattern.findall(body))
    return _text(found.pop().decode(errors="replace"), most) if len(found) == 1 else ""


def _text(value: Any, most: int) -> str:
    return value if isinstance(value, str) and len(value) <= most and "\ufffd" not in value else ""

"""Finds the response topic of a request that cannot be decoded, if its body names one. Pure; trusts no input.

A client without MQTT 5 properties names its response topic in the body. It needs the refusal most when that body is
wrong: an unknown key, a control character, half of a message.
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
    """Response topic and correlation of a body; "" each if it has none."""

    response_topic: str = ""
    correlation: str = ""


def return_address(body: bytes, form: ContentType) -> ReturnAddress:
    """Return the response topic and correlation that can be found; "" for a value given twice with differing content."""
    if form is ContentType.JSON:
        return ReturnAddress(_only(_TOPIC, body, MOST_TOPIC), _only(_CORRELATION, body, MOST_CORRELATION))
    try:
        value = parse_msgpack(body, MAX_VALUES)
    except Unreadable:
        return ReturnAddress()
    fields = value if isinstance(value, dict) else {}
    return ReturnAddress(
        _text(fields.get("response_topic"), MOST_TOPIC), _text(fields.get("correlation"), MOST_CORRELATION)
    )


def _only(pattern: re.Pattern[bytes], body: bytes, most: int) -> str:
    matches = set(pattern.findall(body))
    return _text(matches.pop().decode(errors="replace"), most) if len(matches) == 1 else ""


def _text(value: Any, most: int) -> str:
    return value if isinstance(value, str) and len(value) <= most and "\ufffd" not in value else ""

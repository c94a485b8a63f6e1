"""Which version of MQTT a broker speaks: 5, or 3.1.1 where it refuses that, as the embedded one does."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class MqttVersion(IntEnum):
    """By the number that CONNECT carries (MQTT 3.1.1 and 5, section 3.1.2.2)."""

    V311 = 4
    V5 = 5

    def __str__(self) -> str:
        """As people write it."""
        return "3.1.1" if self is MqttVersion.V311 else "5"


_REFUSALS: Final = frozenset({1, 132})
"""CONNACK of MQTT 3.1.1 (section 3.2.2.3) and of MQTT 5 (section 3.2.2.2)."""


def is_version_refusal(connack_code: int | None) -> bool:
    """Whether a broker says by this code that it does not speak the version that it was asked for."""
    return connack_code in _REFUSALS

"""Which version of MQTT is spoken to a broker: how people write it, and how a broker says that it does not speak it."""

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


_AUTO: Final = "auto"
VERSION_CHOICES: Final = (_AUTO, *map(str, (MqttVersion.V5, MqttVersion.V311)))
"""What a user may say; the first means that the broker is asked."""
_REFUSALS: Final = frozenset({1, 132})
"""CONNACK of MQTT 3.1.1 (section 3.2.2.3) and of MQTT 5 (section 3.2.2.2)."""


def version_of(choice: str) -> MqttVersion | None:
    """One of `VERSION_CHOICES`; None: 5, or 3.1.1 of a broker that refuses it."""
    return None if choice == _AUTO else next(each for each in MqttVersion if str(each) == choice)


def is_version_refusal(connack_code: int | None) -> bool:
    """Whether a broker says by this code that it does not speak the version that it was asked for."""
    return connack_code in _REFUSALS

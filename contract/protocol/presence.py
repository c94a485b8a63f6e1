"""Presence of an agent's process on MQTT: the message, its topic, its bytes. Pure.

The controller publishes the state of agents in the rack (`agents/NAME/status`). This message is published by the process
itself, with a last will that the broker publishes for it, and exists without a controller.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.codec import plain
from etloop.contract.protocol.serialization import json_bytes
from etloop.contract.protocol.typed_form import field

FORMAT: Final = 1


class ProcessState(StrEnum):
    """State of an agent's process."""

    ALIVE = "alive"
    STOPPED = "stopped"
    """The process ended in good order."""
    LOST = "lost"
    """Published by the broker: the process, its host or the network to it is gone."""


@dataclass(frozen=True, slots=True)
class AgentProcess:
    """A process of an agent; retained. `lost` is the last will."""

    format: int = field("Version of these messages.")
    name: str = field("Name of the agent, as in the rig file.")
    state: ProcessState = field("alive, stopped, or lost (published by the broker).")
    host: str = field("Name of its host.")
    process_id: int = field("Process id there.")
    version: str = field("Version of etloop.")
    started_at: str = field("UTC, ISO 8601.")


def process_topic(rack: str, agent: str) -> str:
    """Return the topic on which an agent's process publishes its presence."""
    return f"etloop/v1/{rack}/agents/{agent}/process"


def process_bytes(process: AgentProcess) -> bytes:
    """Return the JSON of the message."""
    return json_bytes(plain(process))

"""Messages between controller and agents <-> bytes: `messages` as msgpack, columns as their bytes. Pure."""

from __future__ import annotations

from typing import Final, cast, get_args

from etloop.contract.protocol.message_set import MessageSet, Protocol
from etloop.contract.protocol.messages import (
    MAX_TEXT_CHARS,
    MAX_TO_AGENT_BYTES,
    MAX_TO_CONTROLLER_BYTES,
    PROTOCOL_VERSION,
    AgentMessage,
    ControllerMessage,
    Flows,
)
from etloop.contract.protocol.typed_form import Rules

_MAX_ITEMS: Final = 1 << 20
"""Most elements of one tuple (not of a numpy column): a million communicator slots."""
_MAX_VALUES_TO_CONTROLLER: Final = 1 << 20
_MAX_VALUES_TO_AGENT: Final = 1 << 24
"""Most values of an assignment: its ranks with their communicators and peers."""

_PROTOCOL: Final = Protocol(
    PROTOCOL_VERSION,
    "install the same etloop on the controller and on every agent",
    Rules(text_chars=MAX_TEXT_CHARS, items=_MAX_ITEMS, binary=True),
)
_FROM_AGENT: Final = MessageSet[AgentMessage](
    _PROTOCOL,
    AgentMessage,
    "an agent",
    max_bytes=MAX_TO_CONTROLLER_BYTES,
    max_values=_MAX_VALUES_TO_CONTROLLER,
    # A thousand ports that exchange with each other have 200 MB of counters, most of them 0.
    deflated=(Flows,),
)
_FROM_CONTROLLER: Final = MessageSet[ControllerMessage](
    _PROTOCOL,
    ControllerMessage,
    "a controller",
    max_bytes=MAX_TO_AGENT_BYTES,
    max_values=_MAX_VALUES_TO_AGENT,
)
_AGENT_KINDS: Final = frozenset(get_args(AgentMessage))

decode_from_agent: Final = _FROM_AGENT.decode
decode_from_controller: Final = _FROM_CONTROLLER.decode


def encode(message: AgentMessage | ControllerMessage) -> bytes:
    """Return the bytes of a message of either side. Raises as `MessageSet.encode`."""
    if type(message) in _AGENT_KINDS:
        return _FROM_AGENT.encode(cast("AgentMessage", message))
    return _FROM_CONTROLLER.encode(cast("ControllerMessage", message))

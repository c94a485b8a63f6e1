"""Remembers which minor version each connection speaks, so that every answer is said in the version of the question."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from etloop.contract.protocol.codec import encode, read_from_agent
from etloop.contract.protocol.messages import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from etloop.contract.protocol.messages import AgentMessage, ControllerMessage

_MOST_PEERS: Final = 16_384
"""Connections remembered, those last heard: heartbeats keep every agent among them, whoever else knocks."""


class Peers:
    """The connections of one controller."""

    def __init__(self) -> None:
        self._minors: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._minors)

    def read(self, identity: bytes, body: bytes) -> AgentMessage:
        """The message a connection sent. Raises `ProtocolError`."""
        message, minor = read_from_agent(body)
        self._minors[identity] = minor
        self._minors.move_to_end(identity)
        if len(self._minors) > _MOST_PEERS:
            self._minors.popitem(last=False)
        return message

    def keep(self, identities: AbstractSet[bytes]) -> None:
        """Forgets all other connections: nothing will be said to them any more."""
        for identity in self._minors.keys() - identities:
            del self._minors[identity]

    def minor(self, identity: bytes) -> int:
        """What a connection speaks; our own version if it never said anything that could be read."""
        return self._minors.get(identity, PROTOCOL_VERSION.minor)

    def write(self, identity: bytes, message: AgentMessage | ControllerMessage) -> bytes:
        """The bytes of a message for a connection. Raises as `contract.codec.encode`."""
        return encode(message, self.minor(identity))

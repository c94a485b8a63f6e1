"""Decides which peers an encrypted controller admits: by which key, under which name, on which connection, until when.

A key belongs to one agent: the name of its file is the only name that its holder may use in Hello. A connection belongs
to the key that opened it. Removing a key from the list ends its connections at once. Pure: keys, addresses and times
come in as values; `runtime.key_directory` reads the files and `router` owns the sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass

MOST_CONNECTIONS: Final = 8192
"""Connections followed at once: 64 slots of 128 agents. Beyond it the one silent for longest is forgotten."""
FORGET_AFTER_NS: Final = 600 * NS_PER_S
"""Silence after which another key may use the connection id: far longer than any run waits for an agent."""


KEY_NOT_ALLOWED: Final = "key_not_allowed"
HANDSHAKE: Final = "handshake"
CONNECTION_OF_ANOTHER: Final = "connection_of_another"
ADMISSION_REFUSALS: Final = (KEY_NOT_ALLOWED, HANDSHAKE, CONNECTION_OF_ANOTHER)
"""Reasons for refusals that are counted here."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the operator about admission."""

    kind: str
    """Event and peer; the log limits lines of one kind together."""
    text: str


@dataclass(frozen=True, slots=True)
class Revoked:
    """A connection whose key was removed from the list."""

    identity: bytes
    name: str


@dataclass(slots=True)
class _Connection:
    key: str
    heard_ns: int


class Admission:
    """The admitted keys, and the connections on which they were used."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._connections: dict[bytes, _Connection] = {}
        """The connection heard last comes last."""
        self._notices: list[Notice] = []
        self.refused: Counter[str] = Counter()
        """Reason -> connections refused since the start."""

    def admits(self, key: str, address: str) -> bool:
        """Return whether a connection that proved possession of `key` is admitted; count and report a refusal."""
        if key in self._names:
            return True
        remedy = "etloop keys allow NAME.key with the file of that key admits its agent"
        self._refuse(
            KEY_NOT_ALLOWED,
            f"refused a connection from {address}",
            f"refused a connection from {address}: its key {key} is not on the list of agents' keys; {remedy}",
        )
        return False

    def on_broken_handshakes(self, count: int) -> None:
        """Count handshakes that failed: no key, another controller's public key, or no data in time."""
        self._refuse(
            HANDSHAKE,
            "a connection failed in its handshake",
            "a connection failed in its handshake: it has no key, uses another controller's public key, or is not an agent",
            count,
        )

    def accepts(self, identity: bytes, key: str, now_ns: int) -> bool:
        """Return whether to read a message: its key is listed, and the connection was opened with that key."""
        if key not in self._names:
            return False  # Revoked; the agent has been notified.
        connection = self._connections.pop(identity, None)
        if (
            connection is not None
            and connection.key != key
            and now_ns - connection.heard_ns < FORGET_AFTER_NS
        ):
            self._connections[identity] = connection
            name = self._names[key]
            self._refuse(
                CONNECTION_OF_ANOTHER,
                f"agent '{name}' on the connection of another agent",
                f"dropped a message of agent '{name}' on the connection of another agent",
            )
            return False
        self._connections[identity] = _Connection(key, now_ns)
        if len(self._connections) > MOST_CONNECTIONS:
            del self._connections[next(iter(self._connections))]
        return True

    def name_problem(self, identity: bytes, name: str) -> str:
        """Return why the agent on a connection may not call itself `name`; "" if it may."""
        connection = self._connections.get(identity)
        own = self._names.get(connection.key) if connection is not None else None
        if own == name:
            return ""
        if own is None:
            return "the key of this connection was removed from the list of agents' keys"
        return (
            f"its key belongs to agent '{own}', but it uses the name '{name[:64]}'; start it with --name {own}, "
            f"or with the key of '{name[:64]}'"
        )

    def follows(self, identity: bytes) -> bool:
        """Return whether messages of this connection have been accepted and it is still followed."""
        return identity in self._connections

    def renew(self, names: Mapping[str, str]) -> tuple[Revoked, ...]:
        """Replace the list of keys by `names` (key -> agent name), and return the connections that have to end."""
        old_names, self._names = self._names, dict(names)
        added_agents = sorted(set(names.values()) - set(old_names.values()))
        removed_agents = sorted(set(old_names.values()) - set(names.values()))
        rekeyed_agents = sorted(
            name for key, name in names.items() if key not in old_names and name not in added_agents
        )
        for verb, agents in (
            ("now admitted", added_agents),
            ("revoked", removed_agents),
            ("has another key", rekeyed_agents),
        ):
            if agents:
                self._notices.append(Notice("keys", f"agents' keys: {verb}: {', '.join(agents)}"))
        revoked = [
            Revoked(identity, old_names[connection.key])
            for identity, connection in self._connections.items()
            if connection.key in old_names and names.get(connection.key) != old_names[connection.key]
        ]
        for connection in revoked:
            del self._connections[connection.identity]
        return tuple(revoked)

    def on_reload(self, unreadable: str) -> None:
        """Report the result of a requested reload; `unreadable` is why the list could not be read, "" if it was."""
        text = f"agents' keys reloaded: {len(self._names)} are admitted"
        if unreadable:
            text = f"agents' keys unchanged, {len(self._names)} are admitted: {unreadable}"
        self._notices.append(Notice("keys reloaded", text))

    def note(self, text: str) -> None:
        """Report a remark about the key list itself, such as a file that holds no key."""
        self._notices.append(Notice("keys", text))

    def take_notices(self) -> tuple[Notice, ...]:
        """Return the notices since the last call."""
        notices, self._notices = tuple(self._notices), []
        return notices

    def _refuse(self, why: str, kind: str, text: str, count: int = 1) -> None:
        self.refused[why] += count
        if len(self._notices) < MOST_NOTICES:
            self._notices.append(Notice(kind, text))


MOST_NOTICES: Final = 256
"""Notices kept until they are read; refusals beyond it are still counted."""

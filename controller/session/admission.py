"""Decides whom an encrypted controller admits: which key, under which name, on which connection, and until when.

A key is its agent's: the name of its file is the one name that whoever holds it may say. A connection belongs to the key
that it began with. Keys that are taken off the list end their connections at once. Pure: keys, addresses and time come in
as values; files are `runtime.key_directory`'s and sockets `router`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass

MOST_CONNECTIONS: Final = 8192
"""Followed at once: 64 slots of 128 agents. Beyond it the one that was silent for longest is forgotten."""
FORGET_AFTER_NS: Final = 600 * NS_PER_S
"""Silence after which a connection may be another key's: far beyond what any run waits for an agent."""


KEY_NOT_ALLOWED: Final = "key_not_allowed"
HANDSHAKE: Final = "handshake"
CONNECTION_OF_ANOTHER: Final = "connection_of_another"
ADMISSION_REFUSALS: Final = (KEY_NOT_ALLOWED, HANDSHAKE, CONNECTION_OF_ANOTHER)
"""Why connections are refused here."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about admission that people should know."""

    kind: str
    """What happened and to whom; lines of one kind are limited together."""
    text: str


@dataclass(frozen=True, slots=True)
class Revoked:
    """A connection whose key is on the list no more."""

    identity: bytes
    name: str


@dataclass(slots=True)
class _Connection:
    key: str
    heard_ns: int


class Admission:
    """The keys that are admitted now, and the connections that they were used on."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._connections: dict[bytes, _Connection] = {}
        """In the order in which they were last heard."""
        self._notices: list[Notice] = []
        self.refused: Counter[str] = Counter()
        """Why -> how many connections, since the start."""

    def admits(self, key: str, address: str) -> bool:
        """Whether a connection that proved to hold `key` may come in; one that may not is counted and told."""
        if key in self._names:
            return True
        remedy = "etloop keys allow NAME.key with the file of that key lets its agent in"
        self._refuse(
            KEY_NOT_ALLOWED,
            f"refused a connection from {address}",
            f"refused a connection from {address}: its key {key} is not on the list of agents' keys; {remedy}",
        )
        return False

    def on_broken_handshakes(self, count: int) -> None:
        """Note connections of peers that have no key, or not this controller's, or sent nothing in time."""
        self._refuse(
            HANDSHAKE,
            "a connection broke off in its handshake",
            "a connection broke off in its handshake: it has no key, not this controller's public key, or is no agent's",
            count,
        )

    def heard(self, identity: bytes, key: str, now_ns: int) -> bool:
        """Whether what came on a connection is to be read: its key is listed, and it began with that key."""
        if key not in self._names:
            return False  # Revoked; whoever it was has been told.
        known = self._connections.pop(identity, None)
        if known is not None and known.key != key and now_ns - known.heard_ns < FORGET_AFTER_NS:
            self._connections[identity] = known
            name = self._names[key]
            self._refuse(
                CONNECTION_OF_ANOTHER,
                f"agent '{name}' on another's connection",
                f"dropped what agent '{name}' said on a connection that is not its own",
            )
            return False
        self._connections[identity] = _Connection(key, now_ns)
        if len(self._connections) > MOST_CONNECTIONS:
            del self._connections[next(iter(self._connections))]
        return True

    def misnamed(self, identity: bytes, name: str) -> str:
        """Why the agent on a connection may not call itself `name`; "" if it may."""
        known = self._connections.get(identity)
        own = self._names.get(known.key) if known is not None else None
        if own == name:
            return ""
        if own is None:
            return "the key of this connection is on the list of agents' keys no more"
        return (
            f"its key is that of agent '{own}', and it says it is '{name[:64]}'; start it with --name {own}, "
            f"or with the key of that agent"
        )

    def follows(self, identity: bytes) -> bool:
        """Whether a connection is one of those that were heard."""
        return identity in self._connections

    def renew(self, names: Mapping[str, str]) -> tuple[Revoked, ...]:
        """Takes a new list; the connections that must end by it."""
        before, self._names = self._names, dict(names)
        came = sorted(set(names.values()) - set(before.values()))
        gone = sorted(set(before.values()) - set(names.values()))
        changed = sorted(name for key, name in names.items() if key not in before and name not in came)
        for verb, agents in (("admitted from now on", came), ("revoked", gone), ("has another key", changed)):
            if agents:
                self._notices.append(Notice("keys", f"agents' keys: {verb}: {', '.join(agents)}"))
        ended = [
            Revoked(identity, before[each.key])
            for identity, each in self._connections.items()
            if each.key in before and names.get(each.key) != before[each.key]
        ]
        for each in ended:
            del self._connections[each.identity]
        return tuple(ended)

    def on_reload(self, unreadable: str) -> None:
        """Answer a request to read the list again; `unreadable`: why it could not be read, "" if it was."""
        text = f"agents' keys read again: {len(self._names)} are admitted"
        if unreadable:
            text = f"agents' keys stay as they were, {len(self._names)} are admitted: {unreadable}"
        self._notices.append(Notice("keys read again", text))

    def note(self, text: str) -> None:
        """Something that was found in the list itself."""
        self._notices.append(Notice("keys", text))

    def take_notices(self) -> tuple[Notice, ...]:
        """What there is to tell since the last call."""
        taken, self._notices = tuple(self._notices), []
        return taken

    def _refuse(self, why: str, kind: str, text: str, count: int = 1) -> None:
        self.refused[why] += count
        if len(self._notices) < MOST_NOTICES:
            self._notices.append(Notice(kind, text))


MOST_NOTICES: Final = 256
"""Kept for whoever tells them; the count of refusals goes on."""

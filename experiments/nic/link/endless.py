"""A write without end, acknowledged as it comes: what reactions of a requester are seen on."""

from __future__ import annotations

from etloop.experiments.nic.link.probe import Connection, is_data


def acknowledged(connection: Connection, most: int, until_ns: int | None) -> list[int]:
    """Return when packets came, acknowledged at once; `until_ns` None: until none comes any more."""
    fast = connection.acknowledge_all(most, until_ns)
    if fast is not None:
        return fast
    found: list[int] = []
    while len(found) < most:
        arrival = connection.until(is_data) if until_ns is None else connection.receive(until_ns)
        if arrival is None:
            break
        if is_data(arrival):
            found.append(arrival.at_ns)
            connection.answer(arrival.packet.psn)
    return found

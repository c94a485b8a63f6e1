"""Receives and acknowledges an endless write, on which reactions of a requester are observed."""

from __future__ import annotations

from etloop.experiments.nic.link.probe import Connection, is_data


def acknowledge_packets(connection: Connection, most: int, until_ns: int | None) -> list[int]:
    """Acknowledge packets as they arrive; return their arrival times in ns. `until_ns` None: until no more arrive."""
    native_times_ns = connection.acknowledge_all(most, until_ns)
    if native_times_ns is not None:
        return native_times_ns
    arrival_times_ns: list[int] = []
    while len(arrival_times_ns) < most:
        arrival = connection.until(is_data) if until_ns is None else connection.receive(until_ns)
        if arrival is None:
            break
        if is_data(arrival):
            arrival_times_ns.append(arrival.at_ns)
            connection.answer(arrival.packet.psn)
    return arrival_times_ns

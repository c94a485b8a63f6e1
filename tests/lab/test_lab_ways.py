"""Ways of flows through a lab that hashes queue pairs and weighs its links: as the model predicts, frame for frame."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace

import numpy as np
import pytest

from etloop.contract.model.switch_presets import ROCE_DSCP
from etloop.contract.model.topology import HashField
from etloop.lab.namespaces import inside
from etloop.traffic import _native
from tests.lab.test_lab_truths import (
    ECT,
    MASK,
    NO_NAMESPACES,
    PORT,
    bench,
    namespaces_are_allowed,
    received,
    two_spines,
)

pytestmark = pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)


def queue_pair_key(key: int, dest_qp: int) -> int:
    """The switches' key of a hash that covers the queue pair alone, worked out again."""

    def mixed(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31

    number = tuple(HashField).index(HashField.DEST_QP)
    return mixed(mixed(key + number + 1 & MASK) + dest_qp & MASK)


def test_queue_pairs_of_one_five_tuple_part_where_the_hash_covers_them_and_by_weight() -> None:
    topology = two_spines()
    leaf = replace(topology.switches[0], hash_fields=(HashField.DEST_QP,))
    # Three quarters of the second leaf's spines: ports 2 and 3 lead to spine 0 and 1.
    ports = tuple(replace(port, weight=3 if number == 3 else 1) for number, port in enumerate(leaf.ports))
    weighted = replace(topology, switches=(replace(leaf, ports=ports), *topology.switches[1:]))
    keys = np.array([queue_pair_key(0x9E3779B97F4A7C15, qp) for qp in range(64)], np.uint64)
    members = np.array([2, 3, 3, 3])
    chosen = members[np.frombuffer(_native.ecmp_choices(keys, leaf.seed, len(members)), np.int32)]
    with bench(weighted) as lab, lab.sink(2) as sink:

        def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ROCE_DSCP << 2 | ECT)
                sender.bind((lab.plan.ports[0].addresses[0], 50_000))
                for qp in range(64):
                    bth = struct.pack(">BBHII", 0x0A, 0, 0xFFFF, qp, 0)
                    sender.sendto(bth + bytes(40), (lab.plan.ports[2].addresses[0], PORT))

        inside(lab.place.agents["h0"], send)
        after = lab.settled(64)
        taken = [int(after.switch_ports[spine]["rx_packets"].sum()) for spine in (2, 3)]
        assert taken == [int((chosen == 2).sum()), int((chosen == 3).sum())]
        assert 0 < taken[0] < taken[1], "all of one five-tuple, and the heavier way has more"
        assert len(received(sink)) == 64

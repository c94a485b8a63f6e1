"""Our queue pair and one of the kernel's Soft-RoCE device: each does to the other all that a reliable connection can.

Every frame that comes from the device has its ICRC checked; the device drops a frame of ours whose ICRC is wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.traffic import _native
from tests.interop.machine import Machine
from tests.interop.soft_end import RxePeer, Setting, SoftEnd, joined, pattern

pytestmark = pytest.mark.timeout(300)

WAYS = [
    pytest.param(Setting(path_mtu=1024), id="IPv4, MTU 1024"),
    pytest.param(Setting(path_mtu=4096), id="IPv4, MTU 4096"),
    pytest.param(Setting(path_mtu=1024, ipv6=True), id="IPv6, MTU 1024"),
    pytest.param(Setting(path_mtu=4096, ipv6=True), id="IPv6, MTU 4096"),
]
MEMORY_VA = 0x7F00_0000_0000
MEMORY_RKEY = 0x77
ACK, ATOMIC_ACK = 0x11, 0x12
NAK_SEQUENCE, RNR = 0x60, 0x20


def syndromes(end: SoftEnd) -> list[int]:
    """Of the acknowledgements that the device sent."""
    return [payload[12] for payload in end.received if payload[0] == ACK]


def sizes(path_mtu: int) -> tuple[int, ...]:
    """Around every limit: nothing, padding, one packet, one more, many."""
    return (0, 1, 3, path_mtu - 1, path_mtu, path_mtu + 1, 2 * path_mtu, 100_001)


def write_and_compare(end: SoftEnd, peer: RxePeer, count: int, seed: int = 1) -> None:
    """We write; the bytes stand in the device's region."""
    content = pattern(count, seed)
    mark = end.queue_pair.post("write", va=peer.va + 64, rkey=peer.rkey, content=content)
    assert not end.complete(mark)[1]
    assert peer.peek(64, count) == content


@pytest.mark.parametrize("setting", WAYS)
def test_we_write(machine: Machine, rxe_peer: Path, setting: Setting) -> None:
    """WRITE of every length around the path MTU: the bytes stand where they belong, and nothing was sent twice."""
    with joined(machine, rxe_peer, setting) as (end, peer):
        for seed, count in enumerate(sizes(setting.path_mtu), 1):
            write_and_compare(end, peer, max(count, 1), seed)
        counters = end.counters()
        assert (counters["retransmitted_packets"], counters["naks_rx"]) == (0, 0)


@pytest.mark.parametrize("setting", WAYS)
def test_we_write_with_immediate(machine: Machine, rxe_peer: Path, setting: Setting) -> None:
    """WRITE_WITH_IMM, with nothing in it too: the device's receive completes with length and immediate."""
    with joined(machine, rxe_peer, setting) as (end, peer):
        for count in sizes(setting.path_mtu):
            peer.do("receive", 0, 0)
            content = pattern(count, 5)
            mark = end.queue_pair.post(
                "write_imm", va=peer.va, rkey=peer.rkey, content=content, imm=0xFEDC0000 + count
            )
            end.complete(mark)
            assert peer.command_peer("poll 5000") == f"{peer.qpn} 129 success | {count} {0xFEDC0000 + count}"
            assert count == 0 or peer.peek(0, count) == content


@pytest.mark.parametrize("setting", WAYS)
def test_it_writes(machine: Machine, rxe_peer: Path, setting: Setting) -> None:
    """The device writes to us, with immediate and without: memory and message agree, its request completes."""
    with joined(machine, rxe_peer, setting) as (end, peer):
        for seed, count in enumerate(sizes(setting.path_mtu), 1):
            content = peer.fill(0, count, seed)
            peer.do("write", 0, count, MEMORY_VA + 128, MEMORY_RKEY)
            assert end.peer_done() == f"{peer.qpn} 1 success | {count} -1"
            end.queue_pair.post_receive(0)
            peer.do("write", 0, count, MEMORY_VA + 300_000, MEMORY_RKEY, 77 + count)
            assert end.peer_done() == f"{peer.qpn} 1 success | {count} -1"
            assert end.queue_pair.memory(128, count) == content
            assert end.queue_pair.memory(300_000, count) == content
            assert end.messages[-2:] == [
                (MEMORY_VA + 128, count, None, False),
                (MEMORY_VA + 300_000, count, 77 + count, False),
            ]


@pytest.mark.parametrize("setting", WAYS)
def test_sends_both_ways(machine: Machine, rxe_peer: Path, setting: Setting) -> None:
    """SEND lands in the next receive, with and without an immediate."""
    with joined(machine, rxe_peer, setting) as (end, peer):
        for count in sizes(setting.path_mtu):
            peer.do("receive", 0, 200_000)
            content = pattern(count, 9)
            end.complete(end.queue_pair.post("send_imm", content=content, imm=3))
            assert peer.command_peer("poll 5000") == f"{peer.qpn} 128 success | {count} 3"
            assert count == 0 or peer.peek(0, count) == content
            end.queue_pair.post_receive(200_000)
            peer.do("send", 0, count)
            assert end.peer_done().startswith(f"{peer.qpn} 0 success")
            assert end.messages[-1][1:] == (count, None, True)


@pytest.mark.parametrize("setting", WAYS)
def test_reads_both_ways(machine: Machine, rxe_peer: Path, setting: Setting) -> None:
    """READ of every length: what comes back is what stands there."""
    with joined(machine, rxe_peer, setting) as (end, peer):
        for seed, count in enumerate((each for each in sizes(setting.path_mtu) if each), 1):
            content = peer.fill(4096, count, seed)
            mark = end.queue_pair.post("read", va=peer.va + 4096, rkey=peer.rkey, read_bytes=count)
            assert end.complete(mark)[2] == content
            end.queue_pair.set_memory(512, pattern(count, seed + 40))
            peer.do("read", 300_000, count, MEMORY_VA + 512, MEMORY_RKEY)
            assert end.peer_done().startswith(f"{peer.qpn} 2 success")
            assert peer.peek(300_000, count) == pattern(count, seed + 40)


def test_atomics_both_ways(machine: Machine, rxe_peer: Path) -> None:
    """FETCH_ADD and CMP_SWAP return what stood there and change it once."""
    with joined(machine, rxe_peer, Setting()) as (end, peer):
        qp = end.queue_pair
        peer.command_peer("poke 800 " + (1000).to_bytes(8, "little").hex())
        assert (
            end.complete(qp.post_atomic("fetch_add", va=peer.va + 800, rkey=peer.rkey, swap_add=5))[3] == 1000
        )
        assert (
            end.complete(
                qp.post_atomic("compare_swap", va=peer.va + 800, rkey=peer.rkey, compare=1005, swap_add=7)
            )[3]
            == 1005
        )
        assert (
            end.complete(
                qp.post_atomic("compare_swap", va=peer.va + 800, rkey=peer.rkey, compare=1005, swap_add=9)
            )[3]
            == 7
        )
        assert int.from_bytes(peer.peek(800, 8), "little") == 7
        qp.set_memory(800, (50).to_bytes(8, "little"))
        peer.do("add", 0, MEMORY_VA + 800, MEMORY_RKEY, 6)
        assert end.peer_done().startswith(f"{peer.qpn} 4 success")
        assert int.from_bytes(peer.peek(0, 8), "little") == 50
        peer.do("swap", 0, MEMORY_VA + 800, MEMORY_RKEY, 56, 99)
        assert end.peer_done().startswith(f"{peer.qpn} 3 success")
        assert int.from_bytes(qp.memory(800, 8), "little") == 99


def test_it_is_not_ready_to_receive(machine: Machine, rxe_peer: Path) -> None:
    """No receive at the device: it says RNR, we wait its timer and send again, and nothing is lost."""
    with joined(machine, rxe_peer, Setting(min_rnr_timer=16)) as (end, peer):
        mark = end.queue_pair.post("send", content=pattern(3000, 2))
        end.until(lambda: end.counters()["rnr_nak_retry_err"] > 0, "a receiver-not-ready NAK")
        assert {each for each in syndromes(end) if each & 0xE0 == RNR} == {RNR | 16}
        peer.do("receive", 0, 4096)
        end.complete(mark)
        assert peer.command_peer("poll 5000").startswith(f"{peer.qpn} 128 success | 3000")
        assert peer.peek(0, 3000) == pattern(3000, 2)


def test_we_are_not_ready_to_receive(machine: Machine, rxe_peer: Path) -> None:
    """No receive here: the device hears RNR, waits and sends again."""
    with joined(machine, rxe_peer, Setting()) as (end, peer):
        peer.fill(0, 3000, 4)
        peer.do("send", 0, 3000)
        end.until(lambda: end.counters()["out_of_buffer"] > 1, "the device asking twice")
        assert end.messages == []
        end.queue_pair.post_receive(4096)
        assert end.peer_done().startswith(f"{peer.qpn} 0 success")
        assert [each[1] for each in end.messages] == [3000]


def test_it_reports_a_gap(machine: Machine, rxe_peer: Path) -> None:
    """A packet of ours is lost: one NAK names it, we send again from there, the bytes are right."""
    with joined(machine, rxe_peer, Setting()) as (end, peer):
        lost: list[bytes] = []

        def drop_the_fifth(sent: list[bytes]) -> list[bytes]:
            kept = [each for each in sent if lost or each[9:12] != (4).to_bytes(3, "big")]
            lost.extend(each for each in sent if each not in kept)
            return kept

        end.tamper = drop_the_fifth
        write_and_compare(end, peer, 20_000)
        assert len(lost) == 1
        naks = [payload for payload in end.received if payload[0] == ACK and payload[12] == NAK_SEQUENCE]
        assert [int.from_bytes(nak[9:12], "big") for nak in naks] == [4]
        counters = end.counters()
        assert (counters["packet_seq_err"], counters["local_ack_timeout_err"]) == (1, 0)
        assert counters["retransmitted_packets"] > 0


def test_we_report_a_gap(machine: Machine, rxe_peer: Path) -> None:
    """A packet of the device is lost: it hears one NAK, sends again, and the bytes are right."""
    with joined(machine, rxe_peer, Setting()) as (end, peer):
        lost: list[bytes] = []

        def lose_the_fifth(payload: bytes) -> bool:
            hit = not lost and payload[0] in (0x06, 0x07) and payload[9:12] == (4).to_bytes(3, "big")
            lost.extend([payload] if hit else [])
            return hit

        end.lose = lose_the_fifth
        content = peer.fill(0, 20_000, 3)
        peer.do("write", 0, 20_000, MEMORY_VA, MEMORY_RKEY)
        assert end.peer_done().startswith(f"{peer.qpn} 1 success")
        assert len(lost) == 1
        assert end.queue_pair.memory(0, 20_000) == content
        assert end.counters()["naks_tx"] == 1
        assert end.counters()["out_of_sequence"] >= 1


def test_it_drops_a_bad_icrc_in_silence(machine: Machine, rxe_peer: Path) -> None:
    """A wrong ICRC on the only packet: no answer at all; our timeout sends it again."""
    with joined(machine, rxe_peer, Setting(timeout_ns=300_000_000)) as (end, peer):
        sent: list[bytes] = []

        def spoil_the_first(datagrams: list[bytes]) -> list[bytes]:
            spoilt = [each if sent else each[:-1] + bytes([each[-1] ^ 1]) for each in datagrams]
            sent.extend(datagrams)
            return spoilt

        end.tamper = spoil_the_first
        mark = end.queue_pair.post("write", va=peer.va, rkey=peer.rkey, content=pattern(500, 8))
        end.settle(0.15)
        assert end.received == []
        end.complete(mark)
        assert len(sent) == 2
        assert peer.peek(0, 500) == pattern(500, 8)
        assert end.counters()["local_ack_timeout_err"] == 1


def test_sequence_numbers_wrap(machine: Machine, rxe_peer: Path) -> None:
    """Requests, responses and acknowledgements pass 2^24 in both directions."""
    with joined(machine, rxe_peer, Setting(psn=0xFFFFF0)) as (end, peer):
        write_and_compare(end, peer, 40_000)
        content = peer.fill(0, 40_000, 6)
        assert (
            end.complete(end.queue_pair.post("read", va=peer.va, rkey=peer.rkey, read_bytes=40_000))[2]
            == content
        )
        peer.do("write", 0, 40_000, MEMORY_VA, MEMORY_RKEY)
        assert end.peer_done().startswith(f"{peer.qpn} 1 success")
        assert end.queue_pair.memory(0, 40_000) == content
        assert end.counters()["retransmitted_packets"] == 0


def test_acknowledgements_are_asked_for_sparingly(machine: Machine, rxe_peer: Path) -> None:
    """Both sides acknowledge what asks for it and little else: far fewer answers than packets."""
    with joined(machine, rxe_peer, Setting(ack_every=16)) as (end, peer):
        sent: list[bytes] = []

        def watch(datagrams: list[bytes]) -> list[bytes]:
            sent.extend(datagrams)
            return datagrams

        end.tamper = watch
        write_and_compare(end, peer, 60 * 1024)
        assert len(sent) == 60
        assert len(syndromes(end)) == sum(each[8] >> 7 for each in sent) == 4
        peer.fill(0, 60 * 1024, 1)
        peer.do("write", 0, 60 * 1024, MEMORY_VA, MEMORY_RKEY)
        assert end.peer_done().startswith(f"{peer.qpn} 1 success")
        asked = sum(payload[8] >> 7 for payload in end.received if payload[0] != ACK)
        assert end.counters()["acks_tx"] == asked <= 2


def test_what_comes_twice_counts_once(machine: Machine, rxe_peer: Path) -> None:
    """Every packet of ours reaches the device twice: it acknowledges, and adds once."""
    with joined(machine, rxe_peer, Setting()) as (end, peer):
        end.tamper = lambda sent: [each for each in sent for _ in range(2)]
        peer.command_peer("poke 500000 " + (0).to_bytes(8, "little").hex())
        for expected in range(5):
            assert (
                end.complete(
                    end.queue_pair.post_atomic("fetch_add", va=peer.va + 500_000, rkey=peer.rkey, swap_add=1)
                )[3]
                == expected
            )
        write_and_compare(end, peer, 10_000)
        end.settle()
        assert int.from_bytes(peer.peek(500_000, 8), "little") == 5
        assert end.queue_pair.fault == ""


def test_what_it_sends_twice_counts_once(machine: Machine, rxe_peer: Path) -> None:
    """Our acknowledgement is lost: the device sends again, and the atomic is not done twice."""
    with joined(machine, rxe_peer, Setting()) as (end, peer):
        lost: list[bytes] = []

        def lose_the_first(sent: list[bytes]) -> list[bytes]:
            kept = [each for each in sent if lost or each[0] != ATOMIC_ACK]
            lost.extend(each for each in sent if each not in kept)
            return kept

        end.tamper = lose_the_first
        end.queue_pair.set_memory(0, (10).to_bytes(8, "little"))
        peer.do("add", 0, MEMORY_VA, MEMORY_RKEY, 1)
        assert end.peer_done().startswith(f"{peer.qpn} 4 success")
        assert len(lost) == 1
        assert int.from_bytes(peer.peek(0, 8), "little") == 10
        assert int.from_bytes(end.queue_pair.memory(0, 8), "little") == 11
        assert end.counters()["duplicate_request"] >= 1


def test_it_refuses_a_wrong_key(machine: Machine, rxe_peer: Path) -> None:
    """A WRITE with a key that the device did not give: a remote access NAK, and our queue pair stops."""
    with joined(machine, rxe_peer, Setting()) as (end, peer):
        mark = end.queue_pair.post("write", va=peer.va, rkey=peer.rkey ^ 0xFF00, content=pattern(100, 1))
        assert end.complete(mark)[1]
        assert syndromes(end) == [0x62]
        assert "access" in end.queue_pair.fault


def test_we_refuse_a_wrong_key(machine: Machine, rxe_peer: Path) -> None:
    """A WRITE of the device with a key that we did not give ends its queue pair with a remote access error."""
    with joined(machine, rxe_peer, Setting()) as (end, peer):
        peer.do("write", 0, 100, MEMORY_VA, MEMORY_RKEY + 1)
        assert "remote access error" in end.peer_done()
        assert peer.state() == "ERR"
        assert end.queue_pair.fault == "the peer asked for memory that it may not reach"


def test_the_golden_frames_mean_to_it_what_they_mean_to_us(machine: Machine, rxe_peer: Path) -> None:
    """The device's packets decode to what the test asked for: opcode, addresses, immediate, padding."""
    with joined(machine, rxe_peer, Setting(path_mtu=4096)) as (end, peer):
        end.queue_pair.post_receive(0)
        peer.fill(0, 5001, 1)
        peer.do("write", 0, 5001, MEMORY_VA + 16, MEMORY_RKEY, 0x01020304)
        end.peer_done()
        first, last = (_native.decode(payload) for payload in end.received if payload[0] != ACK)
        assert (first[0].opcode, first[0].va, first[0].rkey, first[0].dma_bytes) == (
            0x06,
            MEMORY_VA + 16,
            MEMORY_RKEY,
            5001,
        )
        assert (last[0].opcode, last[0].imm, len(last[1])) == (0x09, 0x01020304, 5001 - 4096)
        assert first[1] + last[1] == pattern(5001, 1)

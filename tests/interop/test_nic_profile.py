"""`etloop nic profile` of the kernel's Soft-RoCE: what the battery finds is what the kernel's source says.

Source: Linux 6.1, drivers/infiniband/sw/rxe (rxe_param.h, rxe_req.c, rxe_resp.c, rxe_comp.c). Times have a kernel in software
emulation between them, so bounds are wide where the source has jiffies.
"""

from __future__ import annotations

import json
import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from etloop.experiments.nic.battery import BATTERY
from etloop.experiments.nic.document import NicProfile
from etloop.experiments.nic.link.figures import Figure
from etloop.experiments.nic.run import read_profile
from tests.interop.machine import GUEST_ADDRESSES, HOST_ADDRESSES, Machine

pytestmark = pytest.mark.timeout(400)
AGENT = str(Path(sys.executable).with_name("etloop-agent"))
ETLOOP = str(Path(sys.executable).with_name("etloop"))
PORT = 7430


@pytest.fixture(scope="module")
def found(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, NicProfile]:
    """The profile that a user makes: one command on either host."""
    out = tmp_path_factory.mktemp("nic") / "rxe"
    options = ("--device", "rxe0", "--address", GUEST_ADDRESSES[0], "--peer", ",".join(HOST_ADDRESSES[:2]))
    with machine.running(AGENT, "nic-peer", *options) as peer:
        line = peer.line()
        assert line is not None
        assert "accepts orders from" in line, peer.lines
        done = subprocess.run(
            (
                "ip",
                "netns",
                "exec",
                machine.namespace,
                ETLOOP,
                "nic",
                "profile",
                "--peer",
                f"{GUEST_ADDRESSES[0]}:{PORT}",
                "--out",
                str(out),
            ),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return out, read_profile(out)


def figure(found: tuple[Path, NicProfile], name: str) -> Figure:
    return found[1].figures()[name]


WORDS = {
    "recovery": ("go_back_n", "rxe_req.c: req_retry goes back to the first unacknowledged packet"),
    "naks_per_gap": ("once", "rxe_resp.c: sent_psn_nak"),
    "early_packets": ("dropped", "rxe_resp.c: check_psn drops what is ahead"),
    "unasked_requests": ("not answered", "rxe_resp.c: acknowledge answers packets with AckReq"),
    "cnp_scope": ("none", "rxe sends no congestion notifications"),
    "damaged_packet": ("dropped in silence", "rxe_icrc.c: rxe_icrc_check"),
    "duplicate": ("acknowledged up to the newest", "rxe_resp.c: duplicate_request"),
    "other_partition": ("dropped in silence", "rxe_recv.c: check_keys counts a bad P_Key and drops"),
    "read_of_several": ("answered whole", "rxe_resp.c: read_reply"),
    "duplicate_read": ("answered again", "rxe_resp.c: duplicate_request, replay of a READ"),
    "fetch_add": ("answered", "rxe_resp.c: process_atomic"),
    "trimmed_new_lengths": ("dropped in silence", "rxe_icrc.c: what was cut has no ICRC that fits"),
    "trimmed_old_lengths": ("dropped in silence", "ip_rcv drops what is shorter than it says"),
    "marked_acknowledgements": ("ignored", "rxe sends no congestion notifications"),
    "zero_length_write": ("accepted", "rxe_resp.c: check_rkey passes what has no bytes"),
    "psn_wrap": ("passes", "psn_compare is of 24 bits"),
    "not_ready": ("rnr nak with its code, then accepted", "rxe_resp.c: RESPST_ERR_RNR"),
    "foreign_key": ("nak remote access error; queue pair ERR", "rxe_resp.c: RESPST_ERR_RKEY_VIOLATION"),
    "after_retries": ("error", "rxe_comp.c: retries are exceeded"),
    "dscp": ("as asked", "rxe_net.c: prepare4 takes the traffic class of the address"),
    "ecn": ("as asked", "likewise"),
    "ttl": (
        "changed by the card: always 64",
        "core/verbs.c: ib_resolve_unicast_gid_dmac takes the route's hop limit",
    ),
    "timeout_retries": ("as asked", "rxe_comp.c: retry_cnt"),
    "timeout_code": ("as asked", "rxe_qp.c: 4.096 us * 2^code in jiffies"),
}


@pytest.mark.parametrize("name", WORDS)
def test_what_it_does_is_what_the_source_says(found: tuple[Path, NicProfile], name: str) -> None:
    word, source = WORDS[name]
    assert figure(found, name).word == word, source


def test_its_window_and_where_it_asks(found: tuple[Path, NicProfile]) -> None:
    """RXE_MAX_UNACKED_PSNS is 128, and a packet asks once more than RXE_MAX_PKT_PER_ACK (64) went without."""
    assert figure(found, "unacknowledged_window").value in (128, 129)
    assert figure(found, "ack_request_every").value in (64, 65, 66)
    assert figure(found, "requests_per_ack").value == 1


def test_its_timers(found: tuple[Path, NicProfile]) -> None:
    """4.096 us * 2^14 = 67 ms in jiffies of 4 ms, without growth; RNR waits are the table's, a jiffy or two longer."""
    timeout = figure(found, "timeout")
    assert timeout.value is not None
    assert 60e6 <= timeout.value <= 100e6
    growth = figure(found, "timeout_growth")
    assert growth.low is not None and growth.high is not None  # noqa: PT018 -- one thing for the type checker
    assert growth.low <= 1 <= growth.high
    wait = figure(found, "rnr_wait_10240us")
    assert wait.value is not None
    assert 10.24e6 <= wait.value <= 25e6


def test_a_virtual_link_knows_no_pauses(found: tuple[Path, NicProfile]) -> None:
    """Whatever else stops its packets is not taken for one."""
    said = figure(found, "pauses").word
    assert said.startswith(("ignored", "unknown")), said


def test_how_much_it_sends_by_many_queue_pairs(found: tuple[Path, NicProfile]) -> None:
    """One thread a queue pair serves them all; each burst is seen whole, and our socket had room for it."""
    most = figure(found, "rate_of_most_pairs")
    assert most.low is not None
    assert most.low > 0
    assert most.word == "256 queue pairs"
    assert figure(found, "message_rate").samples >= 256


def test_it_answers_both_addresses_that_nic_peer_names(found: tuple[Path, NicProfile]) -> None:
    """Its queue pairs may be joined to either, as the scope of notifications needs."""
    capture = (found[0] / "notifications.pcapng").read_bytes()
    card = IPv4Address(GUEST_ADDRESSES[0]).packed
    for ours in HOST_ADDRESSES[:2]:
        assert card + IPv4Address(ours).packed in capture, ours
    assert card + IPv4Address(HOST_ADDRESSES[2]).packed not in capture


def test_nothing_is_said_of_a_rate_that_nobody_sees_evenly(found: tuple[Path, NicProfile]) -> None:
    """rxe_recv.c drops notifications; in software emulation its packets come too unevenly to say so, and that is said."""
    cut = figure(found, "cnp_cut")
    assert (cut.samples, cut.value) == (0, None) or cut.low == 0
    assert "varies" in cut.word or "did not change" in cut.word


def test_every_experiment_leaves_what_crossed(found: tuple[Path, NicProfile]) -> None:
    out, profile = found
    assert len(profile.experiments) == len(BATTERY)
    for one in profile.experiments:
        capture = (out / f"{one.name}.pcapng").read_bytes()
        assert capture[:4] == b"\x0a\x0d\x0d\x0a"
        assert one.frames_sent + one.frames_received > 0


def test_the_profile_is_one_of_a_device_under_test(found: tuple[Path, NicProfile]) -> None:
    done = subprocess.run(
        (ETLOOP, "dut", "show", str(found[0] / "profile.yaml"), "--json"), capture_output=True, check=True
    )
    shown: dict[str, Any] = json.loads(done.stdout)
    assert "go_back_n" in json.dumps(shown)

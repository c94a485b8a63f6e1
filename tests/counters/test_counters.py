"""Counters of devices: the canonical list, what sources' own names come to, what a rig may say of sources. No device is
needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.cli.text.counters import reading_json, reading_text, values_of
from etloop.contract.base.errors import ConfigError, ProtocolError
from etloop.contract.model.counters import (
    BY_OBJECT_AND_NAME,
    CountedObject,
    CounterBatch,
    CounterFailure,
    CounterObject,
    CounterReading,
    FailureKind,
    counters_of,
    reading_mistake,
)
from etloop.contract.model.switch_counters import (
    CARD_COUNTERS,
    GROUP_COUNTERS,
    QUEUE_COUNTERS,
    SOFT_PORT_COUNTERS,
    SWITCH_PORT_COUNTERS,
)
from etloop.contract.protocol.lab import (
    FROM_LAB,
    AttachmentStatus,
    LabCounters,
    SoftSwitchStatus,
    SwitchPortStatus,
    SwitchStatus,
)
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.counters.readers.lab_values import lab_readings
from etloop.counters.readers.linux_names import NotCounters, linux_readings
from etloop.counters.readers.linux_process import rdma_counters
from etloop.counters.settings import LinuxSource, Side, SoftSwitchSource

PORT: Final = CountedObject(CounterObject.PORT, "Ethernet0")
KEYS: Final = (
    "switches name ports queues pfc_rx attachments soft_switch end version interfaces link ethtool rdma pause"
    " rx_packets rx_prio3_pause complaints"
).split()
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


def test_the_list_has_every_counter_once_and_all_of_the_switch_model() -> None:
    assert len(BY_OBJECT_AND_NAME) == sum(len(counters_of(kind)) for kind in CounterObject)
    for kind, layout in ((CounterObject.QUEUE, QUEUE_COUNTERS), (CounterObject.GROUP, GROUP_COUNTERS)):
        assert layout.names is not None
        assert [name for name in layout.names if (kind, name) not in BY_OBJECT_AND_NAME] == []


@pytest.mark.parametrize(
    ("reading", "mistake"),
    [
        (CounterReading(PORT, "rx_packets", 1), ""),
        (CounterReading(PORT, "packets", 1), '"packets" is not a counter of a port'),
        (CounterReading(CountedObject(CounterObject.QUEUE, "e"), "packets", 1), "e: queue -1 cannot be"),
        (CounterReading(CountedObject(CounterObject.QUEUE, "e", 64), "packets", 1), "e: queue 64 cannot be"),
        (CounterReading(CountedObject(CounterObject.PORT, "e", 1), "rx_packets", 1), "e: port 1 cannot be"),
        (CounterReading(PORT, "rx_packets", -1), "Ethernet0: rx_packets is -1, not a value of 64 bits"),
        (CounterReading(PORT, "rx_packets", 1 << 32, 32), "Ethernet0: rx_packets is 4294967296, not a value of 32 bits"),
        (CounterReading(CountedObject(CounterObject.PORT, "a\nb"), "rx_packets", 1),
         "an object's name is empty, too long or not printable"),
    ],
)  # fmt: skip
def test_a_reading_that_cannot_be_is_told(reading: CounterReading, mistake: str) -> None:
    assert reading_mistake(reading) == mistake


def lab_answer() -> LabCounters:
    row = np.zeros(1, SWITCH_PORT_COUNTERS)
    row["rx_packets"], row["rx_bytes"], row["tx_packets"], row["tx_bytes"] = 7, 700, 5, 500
    row["pfc_tx"][0, 3] = 9
    soft = np.zeros(1, SOFT_PORT_COUNTERS)
    soft["socket_dropped_frames"] = soft["memory_dropped_frames"] = 1
    card = np.zeros(1, CARD_COUNTERS)
    return LabCounters(
        at_ns=2,
        age_ns=1,
        switches=(SwitchStatus("s", 1, 2, (SwitchPortStatus("0", True, row[0]),)),),
        attachments=(AttachmentStatus("a/p0", "s/0", card[0], soft[0]),),
        soft_switch=SoftSwitchStatus(2, 0, 0, 0, 0, 0, 0, 0, False),
    )


def reported(readings: tuple[CounterReading, ...]) -> dict[tuple[str, str], int]:
    return {(str(one.object), one.counter): one.value for one in readings}


def test_a_labs_answer_becomes_readings_by_switch_and_port() -> None:
    readings, complaints = lab_readings(lab_answer())
    found = reported(readings)
    assert complaints == ()
    assert found["s/0", "rx_packets"] == 7
    assert found["s/0 priority 3", "pfc_tx"] == 9
    assert found["pool s", "watermark_bytes"] == 2
    assert found["s/0", "overload_frames"] == 2
    assert len(found) == len(readings) == 2 + 8 + 16 + 8 * 14 + 8 * 6 + 2


def test_what_in_a_labs_answer_is_no_value_is_left_out_and_told() -> None:
    answer = lab_answer()
    answer.switches[0].ports[0].counters["tx_bytes"] = -1
    readings, complaints = lab_readings(answer)
    assert ("s/0", "tx_bytes") not in reported(readings)
    assert complaints == ("s/0: tx_bytes is -1, not a value of 64 bits",)


def changed(**port: object) -> bytes:
    """A lab's answer as it travels, with another value at a counter of its port."""
    version, name, fields = json.loads(FROM_LAB.encode(lab_answer()))
    counters = fields["switches"][0]["ports"][0]["counters"]
    counters |= port
    return json.dumps([version, name, fields]).encode()


ROW = "LabCounters.switches[0].ports[0].counters"
REFUSED = {
    "text for a number": (
        {"rx_packets": "many"},
        f"{ROW}.rx_packets: expected an integer of -9223372036854775808 to",
    ),
    "a number beyond 64 bits": ({"rx_packets": 1 << 63}, f"{ROW}.rx_packets: expected an integer of"),
    "true for a number": ({"rx_packets": True}, "9223372036854775807, got true"),
    "a list that is none": ({"pfc_rx": None}, f"{ROW}.pfc_rx: expected a list of 8, got null"),
    "a list too short": ({"pfc_rx": [0]}, f"{ROW}.pfc_rx: expected a list of 8, got a list of 1"),
    "another number within": ({"pfc_rx": [0] * 7 + [0.5]}, f"{ROW}.pfc_rx[7]: expected an integer"),
    "a row that is none": ({"queues": [1] * 8}, f"{ROW}.queues[0]: expected an object, got 1"),
    "a row of something else": (
        {"groups": [{"depth": 1}] * 8},
        f"{ROW}.groups[0].dropped_packets: is missing",
    ),
    "a counter of another version": ({"rx_frames": 1}, f"{ROW}.rx_frames: is not a key here"),
}


@pytest.mark.parametrize(("port", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_row_of_counters_is_refused_by_its_path(port: dict[str, object], expected: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        FROM_LAB.decode(changed(**port))
    assert expected in str(caught.value)


@given(JSON, JSON)
def test_no_answer_of_a_lab_does_more_than_be_refused(switches: object, attachments: object) -> None:
    version, name, fields = json.loads(FROM_LAB.encode(lab_answer()))
    fields |= {"switches": switches, "attachments": attachments}
    try:
        answer = FROM_LAB.decode(json.dumps([version, name, fields]).encode())
    except ProtocolError:
        return
    assert isinstance(answer, LabCounters)
    readings, complaints = lab_readings(answer)
    assert not any(map(reading_mistake, readings))
    assert len(complaints) <= 8


MLX5: Final = {
    "link": {"rx_packets": 10, "rx_bytes": 1000, "tx_packets": 20, "tx_bytes": 2000, "rx_dropped": 3},
    "ethtool": {
        "rx_packets_phy": 110, "rx_bytes_phy": 11000, "tx_bytes_phy": 12000, "rx_prio3_pause": 4,
        "tx_prio3_pause_duration": 5, "rx_prio3_packets": 100, "rx_discards_phy": 2, "rx0_packets": 10, "negative": -1,
    },
    "rdma": {"np_cnp_sent": 6, "port_rcv_data": 25, "out_of_sequence": 1, "unknown": 9, "rx_packets": 77},
}  # fmt: skip
BNXT: Final = {
    "ethtool": {
        "rx_total_frames": 8,
        "rx_bytes": 800,
        "tx_pfc_ena_frames_pri5": 2,
        "pfc_pri5_rx_duration_us": 7,
    },
}


@pytest.mark.parametrize(
    ("what", "groups", "expected"),
    [
        ("mlx5: the physical port goes before the stack, microseconds become nanoseconds, words bytes", MLX5, {
            ("p0", "rx_packets"): 110, ("p0", "rx_bytes"): 11000, ("p0", "tx_bytes"): 12000,
            ("p0 priority 3", "pfc_rx"): 4, ("p0 priority 3", "pfc_tx_paused_ns"): 5000,
            ("p0 priority 3", "rx_packets"): 100, ("p0", "rx_dropped_packets"): 2, ("p0", "tx_packets"): 20,
            ("p0", "np_cnp_sent"): 6, ("p0", "roce_rx_bytes"): 100, ("p0", "out_of_sequence"): 1,
        }),
        ("bnxt_en: rx_bytes is the port's only where rx_total_frames stands beside it", BNXT, {
            ("p0", "rx_packets"): 8, ("p0", "rx_bytes"): 800, ("p0 priority 5", "pfc_tx"): 2,
            ("p0 priority 5", "pfc_rx_paused_ns"): 7000,
        }),
        ("another driver's rx_bytes is its own affair", {"ethtool": {"rx_bytes": 800}}, {}),
        ("veth: what the kernel counts, without check sequences", {"link": {"rx_bytes": 90, "multicast": 1}}, {
            ("p0", "rx_bytes_without_fcs"): 90, ("p0", "rx_multicast_packets"): 1,
        }),
    ],
)  # fmt: skip
def test_linux_names_become_canonical(what: str, groups: dict[str, Any], expected: dict[Any, int]) -> None:
    readings, complaints = linux_readings({"version": 1, "interfaces": {"p0": groups}})
    assert reported(readings) == expected, what
    assert complaints == ()


@pytest.mark.parametrize("answer", [[], {}, {"version": 2}, {"version": 1, "interfaces": []}, "x", None])
def test_what_no_reading_command_writes_is_refused(answer: object) -> None:
    with pytest.raises(NotCounters):
        linux_readings(answer)


@given(JSON)
def test_no_text_of_a_reading_command_does_more_than_be_refused(answer: object) -> None:
    try:
        readings, _ = linux_readings({"version": 1, "interfaces": answer})
    except NotCounters:
        return
    assert not any(map(reading_mistake, readings))
    keys = [(one.object, one.counter) for one in readings]
    assert len(keys) == len(set(keys))


def test_rdma_counters_are_found_by_the_interface_under_the_device(tmp_path: Path) -> None:
    port = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    for name, text in (
        ("gid_attrs/ndevs/0", "p0\n"), ("hw_counters/np_cnp_sent", "3\n"), ("hw_counters/lifespan", "10\n"),
        ("counters/port_rcv_data", "4\n"), ("counters/link_downed", "not a number"),
    ):  # fmt: skip
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(text)
    soft = tmp_path / "infiniband" / "rxe0"
    (soft / "ports" / "1" / "hw_counters").mkdir(parents=True)
    (soft / "parent").write_text("p1\n")
    (soft / "ports" / "1" / "hw_counters" / "sent_pkts").write_text("8")
    assert rdma_counters(tmp_path, "p0") == {"np_cnp_sent": 3, "port_rcv_data": 4}
    assert rdma_counters(tmp_path, "p1") == {"sent_pkts": 8}
    assert rdma_counters(tmp_path, "p2") == {}


RIG: Final = """\
security: {insecure: true}
agents:
  - {name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps}]}
  - {name: b, ports: [{name: p0, addresses: 10.0.0.2, link: 1Gbps}]}
dut:
  profile: soft-switch
  counters:
"""


def rig_of(counters: str) -> Rig:
    return parse_rig((RIG + counters).encode(), "rig.yaml", Path())


def test_a_rig_says_where_counters_are_read() -> None:
    rig = rig_of("""\
    - {reader: soft_switch, lab: mine, interval: 100ms, ports: {a/p0: switch/0, b/p0: switch/1}}
    - {reader: linux, name: hosts, timeout: 10s, side: host, command: [ssh, h, etloop, dut, linux-counters]}
""")
    assert rig.dut is not None
    one, two = rig.dut.counters
    assert (one.name, one.reader_settings, one.interval_ns) == (
        "soft_switch",
        SoftSwitchSource("mine"),
        100_000_000,
    )
    assert one.ports == {"a/p0": "switch/0", "b/p0": "switch/1"}
    assert two.reader_settings == LinuxSource(("ssh", "h", "etloop", "dut", "linux-counters"), Side.HOST)
    assert (two.name, two.interval_ns, two.timeout_ns) == ("hosts", None, 10_000_000_000)


@pytest.mark.parametrize(
    ("counters", "message"),
    [
        ("    []\n", "rig.yaml:6: dut.counters: is missing or empty; list at least one, or remove counters"),
        ("    - {lab: x}\n", "rig.yaml:8: dut.counters[0].reader: is missing; write one of "),
        ("    - {reader: telnet}\n", 'dut.counters[0].reader: "telnet" is not one of the choices'),
        ("    - {reader: linux, interval: 1ms}\n", 'dut.counters[0].interval: "1ms" is out of range; write a value from 20ms'),
        ("    - {reader: linux, timeout: 10min}\n", "dut.counters[0].timeout"),
        ("    - {reader: soft_switch, lab: ../x}\n", 'dut.counters[0].lab: "../x" is not a name'),
        ("    - {reader: soft_switch, command: x}\n", "dut.counters[0].command: unknown key"),
        ("    - {reader: linux, ports: {c/p0: x}}\n", 'linux names port "c/p0", which no agent of the rig has'),
        ("    - {reader: linux, ports: {a/p0: x, b/p0: x}}\n", "linux: 2 ports of the rig are connected to x; give each"),
        ("    - {reader: linux}\n    - {reader: linux}\n", '2 sources are called "linux"; give each a name of its own'),
        ("    - {reader: linux, side: middle}\n", '"middle" is not one of the choices; write host or device'),
    ],
)  # fmt: skip
def test_a_mistake_about_sources_is_told_with_place_and_remedy(counters: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rig_of(counters)
    assert message in str(refused.value)


def batch(**values: int) -> CounterBatch:
    return CounterBatch(
        0, 2_500_000, tuple(CounterReading(PORT, name, value) for name, value in values.items())
    )


def test_a_reading_is_told_in_full_then_by_what_moved() -> None:
    first, second = batch(rx_packets=5, tx_packets=0), batch(rx_packets=9, tx_packets=0)
    peers = {"Ethernet0": "a/p0"}
    assert reading_text("tor", first, peers, None) == (
        "tor: 2 counters, 1 that are not 0; their moment known to 1250.0 us\n  Ethernet0 (a/p0)  rx_packets 5\n"
    )
    assert "1 that moved" in reading_text("tor", second, peers, values_of(first))
    assert "rx_packets 4\n" in reading_text("tor", second, peers, values_of(first))
    values = reading_json("tor", first, peers)
    assert json.loads(json.dumps(values))["counters"][0] == {
        "object": "Ethernet0", "kind": "port", "port": "Ethernet0", "number": -1, "peer": "a/p0",
        "counter": "rx_packets", "unit": "packets", "value": 5,
    }  # fmt: skip


def test_a_reading_that_failed_is_told_as_such() -> None:
    failure = CounterFailure(FailureKind.REFUSED, "the device knows no such user")
    assert reading_text("tor", failure, {}, None) == "tor: refused: the device knows no such user\n"
    assert reading_json("tor", failure, {})["failure"] == {"kind": "refused", "what": failure.text}

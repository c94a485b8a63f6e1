"""gNMI's messages, paths and names: held against another package's messages, and there and back again. Pure."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygnmi.spec.v080 import gnmi_pb2

from etloop.contract.model.counters import CountedObject, CounterObject, CounterReading, reading_mistake
from etloop.counters.gnmi import openconfig, sonic
from etloop.counters.gnmi.messages import POOL, Encoding, Notification, TypedValue, Update
from etloop.counters.gnmi.paths import BadPath, Element, GnmiPath, matched_length
from etloop.counters.gnmi.requests import path_message
from etloop.counters.gnmi.requests import path_of as path_of_message
from etloop.counters.gnmi.values import BadValue, Value, counter_value, read_json, typed_leaf, value_of
from etloop.counters.readers.gnmi_values import (
    Unreadable,
    collect,
    readings_of,
    sonic_groups,
    updates_of,
)
from etloop.dut_profiles.model.profile import CounterPaths
from tests.support.counters.gnmi_by_hand import PORTS, path_of, reading, switch_readings

# ---- messages


def test_every_field_is_that_of_another_packages_messages() -> None:
    other = gnmi_pb2.DESCRIPTOR
    ours = POOL.FindFileByName("etloop/gnmi.proto")

    def shape(field: Any) -> tuple[str, int, int, bool]:
        return field.name, field.number, field.type, field.is_repeated

    for name, message in ours.message_types_by_name.items():
        theirs = other.message_types_by_name[name]
        assert {shape(field) for field in message.fields} <= {shape(field) for field in theirs.fields}, name
    for name, enum in ours.enum_types_by_name.items():
        theirs = other.enum_types_by_name[name]
        assert [(one.name, one.number) for one in enum.values] == [
            (one.name, one.number) for one in theirs.values
        ]


def test_bytes_are_another_packages_bytes() -> None:
    path = path_of("/interfaces/interface[name=s0\\/0]/state", target="t", origin="openconfig")
    theirs = gnmi_pb2.Path(origin="openconfig", target="t")
    theirs.elem.add(name="interfaces")
    theirs.elem.add(name="interface").key["name"] = "s0\\/0"
    theirs.elem.add(name="state")
    # In brackets a slash needs no backslash: what stands there is taken away as an escape.
    theirs.elem[1].key["name"] = "s0/0"
    assert path_message(path).SerializeToString() == theirs.SerializeToString()
    assert path_of_message(path_message(path)) == path


# ---- paths


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("/", ()),
        ("", ()),
        ("/a/b", (Element("a"), Element("b"))),
        ("a/b/", (Element("a"), Element("b"))),
        ("/a[k=v][j=w]/b", (Element("a", (("j", "w"), ("k", "v"))), Element("b"))),
        ("/a[k=x/y]", (Element("a", (("k", "x/y"),)),)),
        (r"/a[k=x\]y\\]", (Element("a", (("k", "x]y\\"),)),)),
        (r"/a\/b", (Element("a/b"),)),
        ("/a/*/...", (Element("a"), Element("*"), Element("..."))),
        ("/a[k=v=w]", (Element("a", (("k", "v=w"),)),)),
    ],
)
def test_a_path_is_read_as_the_specification_writes_it(text: str, elements: tuple[Element, ...]) -> None:
    assert path_of(text).elements == elements


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("/a//b", "empty, too long or not printable"),
        ("/a[=v]", "empty, too long or not printable"),
        ("/a[k=]", "empty, too long or not printable"),
        ("/" + "/".join("a" * 33), "33 elements"),
        ("/a" + "".join(f"[k{n}=v]" for n in range(9)), "more than 8 keys"),
        ("/a[k=v][k=w]", "one of them twice"),
        ("/" + "a" * 257, "too long"),
        ("/a\x1b", "printable"),
    ],
)
def test_what_is_no_path_says_why(text: str, reported: str) -> None:
    with pytest.raises(BadPath, match=r".") as raised:
        path_of(text)
    assert reported in str(raised.value)


NAMES: Final = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=12).filter(
    str.isprintable
)
ELEMENTS: Final = st.builds(
    lambda name, keys: Element(name, tuple(sorted(keys.items()))),
    NAMES,
    st.dictionaries(NAMES, NAMES, max_size=3),
)


@settings(max_examples=40)
@given(st.lists(ELEMENTS, max_size=6))
def test_every_path_is_read_as_it_is_written(elements: list[Element]) -> None:
    # A key's name is an identifier in every model; the text form has no escape for an equals sign in it.
    path = GnmiPath(
        tuple(
            Element(
                one.name,
                tuple(
                    sorted(
                        {key.replace("=", "_").replace("\\", "_"): value for key, value in one.keys}.items()
                    )
                ),
            )
            for one in elements
        )
    )
    assert path_of(str(path)) == path
    assert path_of_message(path_message(path)) == path


@pytest.mark.parametrize(
    ("pattern", "covers"),
    [
        ("/", 0),
        ("/interfaces", 1),
        ("/interfaces/interface", 2),
        ("/interfaces/interface[name=*]", 2),
        ("/interfaces/interface[name=s0/0]/state", 3),
        ("/interfaces/interface[name=other]/state", -1),
        ("/interfaces/interface[id=*]", -1),
        ("/*/interface/*/counters", 4),
        ("/interfaces/.../in-octets", 5),
        ("/.../counters", 4),
        ("/...", 5),
        ("/interfaces/.../nothing", -1),
        ("/interfaces/interface/state/counters/in-octets/more", -1),
        ("/.../.../.../.../.../.../.../.../.../.../in-octets", 5),
    ],
)
def test_what_a_pattern_covers_of_a_leafs_path(pattern: str, covers: int) -> None:
    leaf = path_of("/interfaces/interface[name=s0/0]/state/counters/in-octets")
    assert matched_length(leaf.elements, path_of(pattern).elements) == covers


# ---- values


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ("7", 7),
        (2**64 - 1, 2**64 - 1),
        (str(2**64 - 1), 2**64 - 1),
        (2**64, None),
        (-1, None),
        ("-1", None),
        (" 7", None),
        ("7.0", None),
        (7.0, None),
        (True, None),
        (None, None),
        ("٣", None),
        ("9" * 21, None),
        ([7], None),
    ],
)
def test_what_is_a_counter_of_64_bits(value: Value, number: int | None) -> None:
    assert counter_value(value) == number


@pytest.mark.parametrize("encoding", [Encoding.JSON, Encoding.JSON_IETF, Encoding.PROTO])
@given(number=st.integers(0, 2**64 - 1))
def test_every_counter_comes_back_from_every_encoding(encoding: Encoding, number: int) -> None:
    message = TypedValue.FromString(typed_leaf(number, encoding).SerializeToString())
    assert counter_value(value_of(message)) == number


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 5000, b"nul"])
def test_what_is_no_json_is_told(content: bytes) -> None:
    with pytest.raises(BadValue, match="not JSON"):
        read_json(content)


# ---- names, there and back


def test_openconfig_and_back() -> None:
    readings = switch_readings()
    leaves = [(GnmiPath(place), value) for place, value in openconfig.leaves_of(readings)]
    back, complaints = openconfig.readings_of(leaves)
    assert complaints == ()
    there = (CounterObject.PORT, CounterObject.QUEUE)
    assert set(back) == {one for one in readings if one.object.kind in there}
    texts = [str(path) for path, _ in leaves]
    assert (
        "/qos/interfaces/interface[interface-id=s0/1]/output/queues/queue[name=3]/state/max-queue-len"
        in texts
    )
    assert "/interfaces/interface[name=s0/0]/ethernet/state/counters/out-mac-pause-frames" in texts
    assert "/interfaces/interface[name=s0/0]/state/name" in texts


def test_every_leaf_is_of_a_canonical_counter_and_each_has_its_own() -> None:
    for leaf in openconfig.LEAVES:
        number = 3 if leaf.kind is CounterObject.QUEUE else -1
        assert reading_mistake(reading(leaf.kind, "p", leaf.counter, 0, number)) == ""
    assert len({(leaf.kind, leaf.counter) for leaf in openconfig.LEAVES}) == len(openconfig.LEAVES)
    for kind, fields in sonic.FIELDS.items():
        number = 3 if kind in (CounterObject.QUEUE, CounterObject.GROUP) else -1
        for counter in fields.values():
            assert reading_mistake(reading(kind, "p", counter, 0, number)) == "", (kind, counter)


def test_a_subtree_as_devices_write_it() -> None:
    """IETF's JSON has modules before names and texts for numbers; JSON has neither. Lists name their entries inside."""
    whole: Value = {
        "openconfig-interfaces:interface": [
            {
                "name": "Ethernet1",
                "config": {"mtu": 9000},
                "state": {"counters": {"in-octets": "18446744073709551615", "in-fcs-errors": "1"}},
                "openconfig-if-ethernet:ethernet": {"state": {"counters": {"in-mac-pause-frames": 5}}},
            },
            {"name": ["nonsense"], "state": {"counters": {"in-octets": "1"}}},
            "nonsense",
        ]
    }
    queues: Value = {"queue": [{"name": "UC3", "state": {"transmit-pkts": 7, "dropped-pkts": "x"}}]}
    readings, complaints = openconfig.readings_of(
        (
            (path_of("/interfaces"), whole),
            (path_of("/qos/interfaces/interface[interface-id=Ethernet1]/output/queues"), queues),
        )
    )
    assert set(readings) == {
        reading(CounterObject.PORT, "Ethernet1", "rx_bytes", 2**64 - 1),
        reading(CounterObject.PORT, "Ethernet1", "rx_pause_frames", 5),
        reading(CounterObject.QUEUE, "Ethernet1", "packets", 7, 3),
    }
    (complaint,) = complaints
    assert "dropped-pkts is 'x', which is not a counter value" in complaint


def test_two_queues_of_one_number_are_not_mixed_up() -> None:
    state = "/qos/interfaces/interface[interface-id=p]/output/queues/queue[name={}]/state/transmit-pkts"
    readings, complaints = openconfig.readings_of(
        [(path_of(state.format("UC3")), 1), (path_of(state.format("MC3")), 2)]
    )
    assert readings == (reading(CounterObject.QUEUE, "p", "packets", 1, 3),)
    assert complaints == ("p queue 3: two queues of the device have that number; MC3 is omitted",)


def sonic_answer(tables: Any, path: GnmiPath) -> Value:
    answer = sonic.answer(tables, path.names)
    assert answer is not None, path
    return answer


@pytest.mark.parametrize("ports", [(), PORTS])
def test_sonic_and_back(ports: tuple[str, ...]) -> None:
    readings = switch_readings()
    tables = sonic.tables_of(readings)
    names = {
        CounterObject.GROUP: sonic.identifiers(sonic_answer(tables, sonic.path(sonic.GROUP_MAP))),
        CounterObject.POOL: sonic.identifiers(sonic_answer(tables, sonic.path(sonic.POOL_MAP))),
    }
    groups, identified = sonic_groups(ports, names)
    updates = [(path, sonic_answer(tables, path)) for group in groups for path in group.paths]
    back, complaints = readings_of(updates, CounterPaths.SONIC, identified)
    assert complaints == ()
    assert set(back) == set(readings)


def test_sonic_as_a_switch_has_it() -> None:
    """Rows as SONiC's telemetry document shows them: texts, N/A where a platform has no counter, totals as portstat has them."""
    row: Value = {
        "SAI_PORT_STAT_IF_IN_OCTETS": "900",
        "SAI_PORT_STAT_IF_IN_UCAST_PKTS": "7",
        "SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS": "2",
        "SAI_PORT_STAT_ETHER_STATS_RX_NO_ERRORS": "0",
        "SAI_PORT_STAT_PFC_3_RX_PKTS": "4",
        "SAI_PORT_STAT_PFC_3_ON2OFF_RX_PKTS": "2",
        "SAI_PORT_STAT_ECN_MARKED_PACKETS": "N/A",
        "SAI_PORT_STAT_PAUSE_RX_PKTS": "many",
        "SAI_PORT_STAT_ETHER_IN_PKTS_64_OCTETS": "1",
    }
    queues: Value = {
        "Ethernet0:3": {"SAI_QUEUE_STAT_PACKETS": "8"},
        "Ethernet0": {"SAI_QUEUE_STAT_PACKETS": "1"},
    }
    pool: Value = {"SAI_BUFFER_POOL_STAT_WATERMARK_BYTES": "77"}
    readings, complaints = sonic.readings_of(
        (
            (sonic.path("COUNTERS", "Ethernet*"), {"Ethernet0": row, "Ethernet4": "nonsense"}),
            (sonic.path("COUNTERS", "Ethernet0", "Queues"), queues),
            (sonic.path("COUNTERS", "oid:0x18000000000a01"), pool),
            (sonic.path("COUNTERS", "Ethernet8"), "nonsense"),
        ),
        sonic.objects_by_identifier({"ingress_lossless_pool": "oid:0x18000000000a01"}, CounterObject.POOL),
    )
    assert {(str(one.object), one.counter): one.value for one in readings} == {
        ("Ethernet0", "rx_bytes"): 900,
        ("Ethernet0", "rx_unicast_packets"): 7,
        ("Ethernet0", "rx_packets"): 9,
        ("Ethernet0 priority 3", "pfc_rx"): 4,
        ("Ethernet0 queue 3", "packets"): 8,
        ("pool ingress_lossless_pool", "watermark_bytes"): 77,
    }
    assert complaints == (
        "Ethernet0: SAI_PORT_STAT_PAUSE_RX_PKTS is 'many', expected a counter value",
        "/COUNTERS/Ethernet8: the response has no rows of counters",
    )


# ---- hostile answers


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.integers().map(str),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["interface", "queue", "state", "counters", "in-octets", "name", "Ethernet0:1", "a:name"]
            )
            | st.sampled_from(sorted(sonic.FIELDS[CounterObject.PORT])),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
PATHS: Final = st.sampled_from(
    [
        path_of("/"),
        path_of("/interfaces"),
        path_of("/interfaces/interface[name=p]/state/counters/in-octets"),
        path_of("/interfaces/interface/state/counters/in-octets"),
        path_of(
            "/qos/interfaces/interface[interface-id=p]/output/queues/queue[name=99999]/state/transmit-pkts"
        ),
        sonic.path("COUNTERS", "Ethernet*"),
        sonic.path("COUNTERS", "Ethernet*", "Queues"),
        sonic.path("COUNTERS", "x" * 200),
        sonic.path("COUNTERS", "oid:0x1"),
    ]
)


@given(
    st.lists(st.tuples(PATHS, JSON), max_size=4),
    st.sampled_from([CounterPaths.OPENCONFIG, CounterPaths.SONIC]),
)
def test_any_updates_give_readings_that_can_be(
    updates: list[tuple[GnmiPath, Value]], paths: CounterPaths
) -> None:
    identified = {"oid:0x1": CountedObject(CounterObject.GROUP, "p", 1)}
    readings, complaints = readings_of(updates, paths, identified)
    assert all(reading_mistake(one) == "" for one in readings)
    assert len({(one.object, one.counter) for one in readings}) == len(readings)
    assert len(complaints) <= 8


@given(st.binary(max_size=200))
def test_any_bytes_are_a_notification_or_none(content: bytes) -> None:
    from google.protobuf.message import DecodeError

    try:
        notification = Notification.FromString(content)
        list(updates_of(notification))
    except (DecodeError, Unreadable):
        pass


def test_an_answer_without_end_is_cut_short() -> None:
    update = Update(path=path_message(path_of("/a")), val=TypedValue(uint_val=1))
    with pytest.raises(Unreadable, match="more than 200 updates"):
        collect((Notification(update=[update] * 100) for _ in range(3)), most=200)
    assert len(collect((Notification(update=[update] * 100) for _ in range(2)), most=200)) == 200
    with pytest.raises(Unreadable, match="invalid path"):
        collect([Notification(update=[Update(path=path_message(GnmiPath((Element("x" * 300),))))])])


def test_a_reading_is_a_value() -> None:
    assert reading(CounterObject.QUEUE, "p", "packets", 1, 3) == CounterReading(
        CountedObject(CounterObject.QUEUE, "p", 3), "packets", 1
    )

"""Counters by SNMP: against Debian's agent over real sockets, against hostile answers byte by byte, and the pure tables.

Of the agent, interfaces and their counters are the kernel's own. Debian's has no PFC: rows of IEEE8021-PFC-MIB,
CISCO-PFC-EXT-MIB and CISCO-SWITCH-QOS-MIB are served by a script behind it (`pass_persist`), so that transport, walks and
types are real there and the values are made up.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.model.counters import (
    CountedObject,
    CounterBatch,
    CounterFailure,
    CounterObject,
    CounterReading,
    FailureKind,
    reading_mistake,
)
from etloop.counters.readers.snmp import SnmpCounters
from etloop.counters.readers.snmp_objects import COLUMNS, IF_NAME, SYS_UPTIME
from etloop.counters.readers.snmp_rows import (
    Interface,
    asked_first,
    candidates,
    choose_interfaces,
    instances_of,
    interfaces_of,
    readings_of,
    restart_complaint,
    served_columns,
)
from etloop.counters.readers.snmp_settings import SnmpSource
from tests.support.counters.snmp_by_hand import (
    COMMUNITY,
    END_OF_VIEW,
    NO_SUCH_INSTANCE,
    PASSWORDS,
    Agent,
    Behaviour,
    Request,
    counter32,
    counter64,
    number,
    oid,
    response,
    scripted,
    secret_file,
    snmpd,
    text,
    tlv,
    write_table,
)

KERNEL: Final = Path("/sys/class/net")
PFC: Final = "1.3.111.2.802.1.1.21.1.1.1"
CISCO_PFC: Final = "1.3.6.1.4.1.9.9.813.1.2.1"
CISCO_QOS: Final = "1.3.6.1.4.1.9.9.580.1.5.5.1.4"
LO: Final = int((KERNEL / "lo" / "ifindex").read_text())
IN_OCTETS: Final = "1.3.6.1.2.1.31.1.1.1.6"

TABLE: Final[dict[str, tuple[str, int | str]]] = {
    f"{PFC}.2.{LO}": ("counter", 2**32 - 3),
    f"{PFC}.3.{LO}": ("counter", 9),
    f"{CISCO_PFC}.2.{LO}.3": ("counter64", 2**63 + 7),
    f"{CISCO_PFC}.3.{LO}.3": ("counter64", 11),
    f"{CISCO_QOS}.{LO}.2.4.1": ("counter64", 1000),
    f"{CISCO_QOS}.{LO}.2.4.5": ("counter64", 5),
}


def values(batch: CounterBatch | CounterFailure) -> dict[tuple[str, str], int]:
    assert isinstance(batch, CounterBatch), batch
    assert [reading_mistake(one) for one in batch.readings if reading_mistake(one)] == []
    found = {(str(one.object), one.counter): one.value for one in batch.readings}
    assert len(found) == len(batch.readings), "a counter of an object appears once in a batch"
    return found


# ---- against Debian's agent


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with snmpd(tmp_path_factory.mktemp("snmpd"), TABLE) as running:
        yield running


async def opened(source: SnmpSource, *ports: str) -> SnmpCounters:
    reader = SnmpCounters(source, ports)
    failure = await reader.open()
    assert failure is None, failure
    return reader


@pytest.mark.parametrize("version", ["2c", "3"])
async def test_the_agents_interface_counters_are_the_kernels(tmp_path: Path, version: str) -> None:
    files = {
        "rx_bytes": "rx_bytes",
        "tx_bytes": "tx_bytes",
        "tx_unicast_packets": "tx_packets",
        "rx_dropped_packets": "rx_dropped",
        "tx_error_packets": "tx_errors",
    }

    def kernel() -> dict[str, int]:
        # The agent's 32 bits are what is left of the kernel's 64.
        return {
            name: int((KERNEL / "lo" / "statistics" / file).read_text())
            % (1 << (32 if file[3:] not in ("bytes", "packets") else 64))
            for name, file in files.items()
        }

    before = kernel()
    with snmpd(tmp_path, {}) as agent:
        reader = await opened(agent.source(agent.user if version == "3" else None), "lo")
        batch = await reader.read()
        after = kernel()
        await reader.close()
    read = values(batch)
    for name in files:
        assert before[name] <= read["lo", name] <= after[name], name
    assert read["lo", "rx_packets"] == sum(
        read["lo", f"rx_{kind}_packets"] for kind in ("unicast", "multicast", "broadcast")
    )
    assert {name for name, _ in read} == {"lo"}


async def test_every_interface_is_read_where_none_is_named(agent: Agent) -> None:
    reader = await opened(agent.source(agent.user))
    read = values(await reader.read())
    assert ("lo", "rx_bytes") in read
    # Names that two interfaces share are left out, and interfaces may come and go while others test here.
    assert {name for name, _ in read} & {path.name for path in KERNEL.iterdir()}


@pytest.mark.parametrize("version", ["2c", "3"])
async def test_pfc_and_queues_come_from_their_mibs(agent: Agent, version: str) -> None:
    write_table(agent, TABLE)
    reader = await opened(agent.source(agent.user if version == "3" else None), "lo")
    first = await reader.read()
    read = values(first)
    assert read["lo", "tx_pause_frames"] == 2**32 - 3
    assert read["lo", "rx_pause_frames"] == 9
    assert read["lo priority 3", "pfc_tx"] == 2**63 + 7
    assert read["lo priority 3", "pfc_rx"] == 11
    assert read["lo queue 3", "packets"] == 1000
    assert read["lo queue 3", "dropped_packets"] == 5
    assert ("lo priority 4", "pfc_tx") not in read

    # A counter of 32 bits begins anew, and says how wide it is, so that whoever takes differences can tell.
    write_table(agent, TABLE | {f"{PFC}.2.{LO}": ("counter", 4)})
    second = await reader.read()
    assert isinstance(second, CounterBatch)
    (wrapped,) = (one for one in second.readings if one.counter == "tx_pause_frames")
    assert (wrapped.value, wrapped.width_bits) == (4, 32)

    # A row that goes away is a value less, not the end of the reading.
    write_table(agent, {oid: row for oid, row in TABLE.items() if not oid.startswith(CISCO_PFC)})
    third = values(await reader.read())
    assert ("lo priority 3", "pfc_tx") not in third
    assert third["lo queue 3", "packets"] == 1000


async def test_wrong_secrets_are_told_apart_as_far_as_agents_tell(agent: Agent, tmp_path: Path) -> None:
    user = f"user: alice\nauth: sha256\nauth_password: {PASSWORDS[0]}\nprivacy: aes128\nprivacy_password: {PASSWORDS[1]}\n"
    cases = (
        ("community: wrong-community\n", FailureKind.UNREACHABLE, "a wrong community"),
        (user.replace("alice", "mallory"), FailureKind.REFUSED, "does not accept the user or its keys"),
        (user.replace(PASSWORDS[0], "not the password"), FailureKind.REFUSED, "does not accept the user"),
        (user.replace(PASSWORDS[1], "not the password"), FailureKind.UNREACHABLE, "a wrong key of privacy"),
    )
    for number_, (secret, kind, reported) in enumerate(cases):
        place = secret_file(tmp_path / f"{number_}.yaml", secret)
        failure = await SnmpCounters(agent.source(place, response_timeout_ns=100_000_000, tries=2), ()).open()
        assert failure is not None, secret
        assert (failure.kind, reported in failure.text) == (kind, True), failure
        assert not any(word in failure.text for word in ("mallory", "not the password", *PASSWORDS, "wrong-"))


async def test_a_port_that_is_not_there_is_named_with_those_that_are(agent: Agent) -> None:
    failure = await SnmpCounters(agent.source(), ("lo", "Ethernet0")).open()
    assert failure is not None
    assert failure.kind is FailureKind.REFUSED
    assert 'no interface is named "Ethernet0"; it has lo' in failure.text


async def test_an_agent_that_ends_is_told_and_comes_back(tmp_path: Path) -> None:
    with snmpd(tmp_path, {}) as agent:
        reader = await opened(agent.source(), "lo")
        values(await reader.read())
    failure = await reader.read()
    assert isinstance(failure, CounterFailure)
    assert failure.kind is FailureKind.UNREACHABLE
    assert failure.text.startswith("no SNMP agent listens on UDP 127.0.0.1:")
    await reader.close()
    assert await reader.read() == CounterFailure(FailureKind.ENDED, f"127.0.0.1:{agent.port} is not open")
    with snmpd(tmp_path, {}, agent.port):
        assert await reader.open() is None
        values(await reader.read())


# ---- hostile answers

NAMES: Final = {f"{IF_NAME}.1": text("p0"), "1.3.6.1.2.1.31.1.1.1.2.1": number(0, 0x41)}


def honest(request: Request) -> bytes:
    if request.is_bulk:
        return request.answer(NAMES)
    rows = {f"{IF_NAME}.1": text("p0"), SYS_UPTIME: number(100, 0x43), f"{IN_OCTETS}.1": counter64(5)}
    return request.answer({oid: rows.get(oid, NO_SUCH_INSTANCE) for oid in request.oids})


def cut_off(request: Request) -> bytes:
    """A length that says two more bytes tell it, and ends there: gufo-snmp 0.13.0 panics (src/ber/header.rs:96)."""
    row = tlv(0x30, oid(f"{IF_NAME}.1") + b"\x04\x82")
    answer = number(request.request_id) + number(0) + number(0) + tlv(0x30, row)
    return tlv(0x30, number(1) + text(COMMUNITY) + tlv(0xA2, answer))


def endless(request: Request) -> bytes:
    index = max(
        (int(oid.rsplit(".", 1)[1]) for oid in request.oids if oid.startswith(f"{IF_NAME}.")), default=0
    )
    return request.answer({f"{IF_NAME}.{index + step}": text(f"p{index + step}") for step in range(1, 25)})


HOSTILE: Final[tuple[tuple[str, Behaviour, FailureKind, str], ...]] = (
    ("no answer at all", lambda _: (), FailureKind.UNREACHABLE, "no answer from 127.0.0.1"),
    ("not SNMP", lambda _: b"\x30\x82\xff\xff" + bytes(40), FailureKind.NONSENSE, "invalid SNMP message"),
    ("an answer to another request", lambda r: response(r.request_id ^ 1, NAMES), FailureKind.UNREACHABLE, "no answer"),
    ("a walk that stands still", lambda r: r.answer({f"{IF_NAME}.1": text("p0")}), FailureKind.NONSENSE, "out of order"),
    (
        "a walk that goes back",
        lambda r: r.answer({f"{IF_NAME}.2": text("p2"), f"{IF_NAME}.1": text("p1")}),
        FailureKind.NONSENSE,
        "out of order",
    ),
    ("a walk without end", endless, FailureKind.NONSENSE, "more than 8192 rows"),
    ("a length that is cut off", cut_off, FailureKind.NONSENSE, "the SNMP library cannot handle: index out of bounds"),
    ("no interfaces", lambda r: r.answer({f"{IF_NAME}.1": END_OF_VIEW}), FailureKind.REFUSED, "no interfaces"),
    ("an error instead", lambda r: r.answer({}, error=5), FailureKind.REFUSED, "shows no interfaces"),
    (
        "names that are none",
        lambda r: r.answer(
            {f"{IF_NAME}.{row}": text(name) for row, name in enumerate(("\x1b[31m", "", "x" * 200), 1)}
            | {"1.4.1": text("")}
        ),
        FailureKind.REFUSED,
        "no interface has a unique name",
    ),
    (
        "interfaces without counters",
        lambda r: r.answer(NAMES) if r.is_bulk else r.answer({f"{IF_NAME}.1": text("p0")}),
        FailureKind.REFUSED,
        "no counters of p0",
    ),
    (
        "texts for counters",
        lambda r: r.answer(NAMES) if r.is_bulk else r.answer(dict.fromkeys(r.oids, text("9"))),
        FailureKind.REFUSED,
        "no counters of p0",
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "behaviour", "kind", "reported"), HOSTILE, ids=[case[0] for case in HOSTILE]
)
async def test_hostile_answers_are_a_failure_with_a_reason(
    sentence: str, behaviour: Behaviour, kind: FailureKind, reported: str, tmp_path: Path
) -> None:
    async with scripted(tmp_path, behaviour) as source:
        failure = await SnmpCounters(source, ()).open()
    assert failure is not None, sentence
    assert (failure.kind, reported in failure.text) == (kind, True), failure
    assert COMMUNITY not in str(failure)


async def test_lost_requests_are_sent_again(tmp_path: Path) -> None:
    seen: list[Request] = []

    def losing(request: Request) -> bytes | tuple[bytes, ...]:
        seen.append(request)
        return honest(request) if len(seen) % 2 == 0 else ()

    async with scripted(tmp_path, losing) as source:
        reader = SnmpCounters(source, ("p0",))
        assert await reader.open() is None
        assert values(await reader.read()) == {("p0", "rx_bytes"): 5}


async def test_an_agent_that_takes_few_values_at_once_is_asked_for_few(tmp_path: Path) -> None:
    sizes: list[int] = []

    def small(request: Request) -> bytes:
        sizes.append(len(request.oids))
        if len(request.oids) > 5:
            return request.answer({}, error=1)  # tooBig
        return honest(request)

    async with scripted(tmp_path, small) as source:
        reader = SnmpCounters(source, ("p0",))
        assert await reader.open() is None
        assert values(await reader.read()) == {("p0", "rx_bytes"): 5}
    assert max(sizes) > 5


async def test_nonsense_midway_is_a_failure_or_a_complaint_and_the_reader_lives(tmp_path: Path) -> None:
    behaviour: list[Behaviour] = [honest]

    def as_now(request: Request) -> bytes | tuple[bytes, ...]:
        return behaviour[-1](request)

    async with scripted(tmp_path, as_now) as source:
        reader = SnmpCounters(source, ("p0",))
        assert await reader.open() is None

        behaviour[-1] = lambda request: request.answer(dict.fromkeys(request.oids, text("9")))
        failure = await reader.read()
        assert isinstance(failure, CounterFailure)
        assert failure.kind is FailureKind.NONSENSE

        behaviour[-1] = honest
        assert values(await reader.read()) == {("p0", "rx_bytes"): 5}

        behaviour[-1] = lambda request: honest(request).replace(number(100, 0x43), number(50, 0x43))
        batch = await reader.read()
        assert isinstance(batch, CounterBatch)
        assert batch.complaints[0].startswith("the SNMP agent restarted 0 s ago")


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Up to three bytes changed, taken away or added."""
    found = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(found) + 1)
        match rng.randrange(3):
            case 0:
                found[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[place : place + rng.randrange(1, 5)]
            case _:
                found[place:place] = rng.randbytes(rng.randrange(1, 5))
    return bytes(found)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_bytes_come_the_reader_answers_with_values(
    seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The library's own decoder panics at some of these, which Python sees as no Exception at all."""
    rng = random.Random(seed)

    def sometimes(request: Request) -> bytes:
        answer = honest(request)
        return mutated(answer, rng) if is_hostile[-1] and rng.random() < 0.5 else answer

    is_hostile = [True]
    kinds = set()
    async with scripted(tmp_path, sometimes) as source:
        hasty = replace(source, response_timeout_ns=5_000_000, tries=1)
        for _ in range(60):
            reader = SnmpCounters(hasty, ("p0",))
            outcome: object = await reader.open() or await reader.read()
            assert isinstance(outcome, CounterBatch | CounterFailure)
            kinds.add(outcome.kind if isinstance(outcome, CounterFailure) else "batch")
        is_hostile.append(False)
        reader = SnmpCounters(replace(source, tries=10), ("p0",))
        assert await reader.open() is None
        assert values(await reader.read()) == {("p0", "rx_bytes"): 5}
    capfd.readouterr()  # what Rust says of a panic
    assert FailureKind.NONSENSE in kinds


# ---- pure


def test_every_column_is_of_a_canonical_counter() -> None:
    for column in COLUMNS:
        number_ = -1 if column.kind is CounterObject.PORT else 0
        reading = CounterReading(
            CountedObject(column.kind, "p", number_), column.counter, 0, column.width_bits
        )
        assert reading_mistake(reading) == "", column
    assert len({column.oid(1, 0) for column in COLUMNS}) == len(COLUMNS)


@pytest.mark.parametrize(
    ("counter", "number_", "expected"),
    [
        ("rx_bytes", -1, "1.3.6.1.2.1.31.1.1.1.6.7"),
        ("pfc_tx", 3, "1.3.6.1.4.1.9.9.813.1.2.1.2.7.3"),
        ("dropped_bytes", 3, "1.3.6.1.4.1.9.9.580.1.5.5.1.4.7.2.4.6"),
    ],
)
def test_instances_as_agents_spell_them(counter: str, number_: int, expected: str) -> None:
    (column,) = (one for one in COLUMNS if one.counter == counter)
    assert column.oid(7, number_) == expected


def test_of_columns_with_the_same_counter_the_first_served_counts() -> None:
    instances = candidates(Interface(1, "p"))
    dot1, dot3 = f"{PFC}.3.1", "1.3.6.1.2.1.10.7.10.1.5.1"
    assert [one.name for one, _ in served_columns(instances, {dot1: 1, dot3: 2})] == [
        "ieee8021PfcIndications"
    ]
    assert [one.name for one, _ in served_columns(instances, {dot3: 2})] == ["dot3HCInPauseFrames"]


def test_who_is_asked_first_is_spread_over_all() -> None:
    many = tuple(Interface(index, f"p{index}") for index in range(1, 101))
    assert [one.index for one in asked_first(many)] == [1, 34, 67, 100]
    assert asked_first(many[:1]) == many[:1]
    assert asked_first(many[:2]) == many[:2]


def test_names_that_stand_twice_mean_no_interface() -> None:
    both = (Interface(1, "uplink"), Interface(2, "uplink"), Interface(3, "p"))
    assert choose_interfaces(both, ()) == ((Interface(3, "p"),), "")
    assert choose_interfaces(both, ("p", "uplink"))[1].startswith('2 interfaces are named "uplink"')


def test_values_wider_than_their_type_are_complained_about() -> None:
    columns = [(one, -1) for one in COLUMNS if one.name in ("ifInErrors", "ifHCInOctets")]
    instances = instances_of([Interface(1, "p")], columns)
    answers = {instances[0].oid: 7, instances[1].oid: 2**32}
    readings, complaints = readings_of(instances, answers, octets_include_fcs=False)
    assert [(one.counter, one.value) for one in readings] == [("rx_bytes_without_fcs", 7)]
    assert complaints == (
        "IF-MIB ifInErrors of p: p: rx_error_packets is 4294967296, not a value of 32 bits",
    )


def test_an_agents_restart_is_told() -> None:
    assert restart_complaint(1000, 900).startswith("the SNMP agent restarted 9 s ago")
    assert restart_complaint(900, 1000) == restart_complaint(None, 5) == restart_complaint(5, b"x") == ""


ANSWERS: Final = (
    st.none() | st.integers(-(2**70), 2**70) | st.binary(max_size=8) | st.text(max_size=8) | st.floats()
)


@given(st.lists(st.tuples(st.text(max_size=40) | st.integers().map(lambda n: f"{IF_NAME}.{n}"), ANSWERS)))
def test_any_walk_gives_interfaces_that_can_be(
    rows: list[tuple[str, str | bytes | int | float | None]],
) -> None:
    for one in interfaces_of(rows, IF_NAME):
        assert 0 < one.index < 2**31
        assert (
            reading_mistake(CounterReading(CountedObject(CounterObject.PORT, one.name), "rx_bytes", 0)) == ""
        )


@given(st.data())
def test_any_answers_give_readings_that_can_be(data: st.DataObject) -> None:
    instances = candidates(Interface(1, "p"))
    answers = {one.oid: data.draw(ANSWERS) for one in data.draw(st.lists(st.sampled_from(instances)))}
    readings, complaints = readings_of(instances, answers, octets_include_fcs=data.draw(st.booleans()))
    assert all(reading_mistake(one) == "" for one in readings)
    assert len(complaints) <= 8


def test_counter_bytes_are_what_the_standard_says() -> None:
    """Of the tests' own encoder: RFC 2578 has counters unsigned, so the largest needs a leading zero."""
    assert counter32(2**32 - 1) == bytes.fromhex("4105 00ffffffff")
    assert counter64(2**64 - 1) == bytes.fromhex("4609 00ffffffffffffffff")
    assert number(127) == b"\x02\x01\x7f"
    assert number(128) == b"\x02\x02\x00\x80"

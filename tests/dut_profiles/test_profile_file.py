"""What a profile file may say: values with basis and source, maps, and every mistake of a file with its remedy."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.topology import HashField
from etloop.dut_profiles.model.profile import Breakout, DutKind, DutProfile, WatchdogAction
from etloop.dut_profiles.model.stated import Basis, Claim, Stated, stated_values
from etloop.dut_profiles.reading.catalogue import find_profile, profile_names
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.dut_profiles.rules.contradictions import check_profile

T = TypeVar("T")

HEAD = """
profile: p
kind: switch
summary: a switch of the tests
sources:
  sheet: {title: a datasheet, url: "https://example.org/sheet", date: 2025-01-31}
  run: {title: a measurement of ours, date: 2026-01-01}
"""
NIC_HEAD = HEAD.replace("switch\n", "nic\n", 1)


def read(body: str, head: str = HEAD) -> DutProfile:
    return parse_profile((head + body).encode(), "p.yaml")


def claim(stated: Stated[T]) -> Claim[T]:
    """What is believed, where something is known to be stated."""
    assert stated.best is not None
    return stated.best


def mistakes(body: str, head: str = HEAD) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(body, head)
    return [str(problem) for problem in caught.value.problems]


def test_a_plain_value_takes_basis_and_source_of_its_section() -> None:
    total = read("buffer: {basis: configured, source: sheet, total: 64MB}").buffer.total_bytes
    assert (total.value, total.basis) == (64_000_000, Basis.CONFIGURED)
    assert claim(total).source.title == "a datasheet"
    assert claim(total).where == "p.yaml:8: buffer.total"


def test_basis_and_source_of_the_file_hold_where_sections_have_none() -> None:
    profile = read(
        "basis: declared\nsource: sheet\nports: [{name: a, count: 4}]\npfc: {source: run, priorities: [3]}"
    )
    assert claim(profile.ports[0].count).source.name == "sheet"
    assert claim(profile.pfc.priorities).source.name == "run"


def test_declared_configured_and_measured_stand_beside_each_other_and_the_measured_one_is_believed() -> None:
    body = """
buffer:
  total:
    source: sheet
    declared: 64MB
    configured: 60MB
    measured: {value: 59MB, source: run}
"""
    total = read(body).buffer.total_bytes
    assert [(basis, claim.value) for basis, claim in total.claims()] == [
        (Basis.MEASURED, 59_000_000),
        (Basis.CONFIGURED, 60_000_000),
        (Basis.DECLARED, 64_000_000),
    ]
    assert total.value == 59_000_000
    assert claim(total).source.name == "run"


def test_what_is_not_stated_has_no_value() -> None:
    assert read("").buffer.total_bytes.value is None
    assert [path for path, stated in stated_values(read("")) if stated.best is not None] == []


def test_every_section_of_a_switch_is_read() -> None:
    profile = read("""
basis: declared
source: sheet
ports: [{name: front, count: 32, speed: 400Gbps, breakouts: [4x100Gbps], ip_mtu: 9100B, cable_metres: 5}]
groups: [{group: [3, 5-6], lossless: true, alpha: 1/8, headroom: 612140B, xoff: 1MB, xon: 900kB}]
queues: [{queue: 3, scheduler: dwrr, weight: 50, ecn: {enabled: true, kmin: 150kB, kmax: 1500kB, pmax: 5%}}]
pfc: {priorities: [3], watchdog_detect: 200ms, watchdog_action: drop}
balancing: {mode: ecmp, hash_fields: [src_port, dest_qp], flowlet_gap: 10us}
trimming: {enabled: true, size: 256B, dscp: 1}
latency: {mode: cut_through, port_to_port: 800ns}
telemetry: [int, gnmi]
counters: {access: [{reader: gnmi, paths: sonic, objects: [queue], interval: 10s}], tolerance: 0.1%}
checks: [{check: "ops.failed == 0", why: jobs end}]
notes: [one]
""")
    assert profile.ports[0].breakouts.value == (Breakout(4, 100_000_000_000),)
    assert [group.group for group in profile.groups] == [3, 5, 6]
    assert profile.group(5).alpha.value == Fraction(1, 8)
    assert profile.queue(3).ecn.pmax_per_million.value == 50_000
    assert profile.pfc.watchdog_action.value is WatchdogAction.DROP
    assert profile.balancing.hash_fields.value == (HashField.SRC_PORT, HashField.DEST_QP)
    assert profile.telemetry.value == ("int", "gnmi")
    assert profile.counters.tolerance_per_million.value == 1000
    assert profile.counters.access[0].interval_ns.value == 10_000_000_000
    assert profile.checks[0].where == "p.yaml:20: checks[0].check"
    assert (profile.group(7).lossless.value, profile.queue(7).ecn.enabled.value) == (None, None)


def test_nothing_is_a_statement_as_well() -> None:
    assert read("pfc: {priorities: {configured: [], source: sheet}}").pfc.priorities.value == ()
    assert read("").pfc.priorities.value is None


@pytest.mark.parametrize(
    ("sentence", "written", "expected"),
    [
        ("ranges and a default", "{default: 1, 3: 3, 24-26: 2}", {0: 1, 3: 3, 24: 2, 26: 2, 27: 1}),
        ("later classes", "{default: 0, 48: 8}", {48: 8, 0: 0}),
    ],
)
def test_maps_of_dscp(sentence: str, written: str, expected: dict[int, int]) -> None:
    profile = read(f"maps: {{dscp_to_class: {{declared: {written}, source: sheet}}}}")
    mapped = claim(profile.maps.dscp_to_class).value
    assert len(mapped) == 64
    assert {key: mapped[key] for key in expected} == expected, sentence


def test_a_map_may_go_on_beyond_the_eighth_class() -> None:
    body = "maps: {basis: declared, source: sheet, class_to_queue: {0-7: 1, 8: 8}, class_to_group: identity}"
    maps = read(body).maps
    assert maps.class_to_queue.value == (1, 1, 1, 1, 1, 1, 1, 1, 8)
    assert maps.class_to_group.value == (0, 1, 2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "buffer: {total: 64MB}",
            (
                "p.yaml:8: buffer.total: is stated without a basis; "
                "write {declared: VALUE, source: NAME}, or give the section a basis and a source"
            ),
        ),
        (
            "buffer: {basis: declared, total: 64MB}",
            (
                "p.yaml:8: buffer.total: is stated without a source; "
                "write {declared: VALUE, source: NAME}, or give the section a basis and a source"
            ),
        ),
        (
            "buffer: {total: {measured: 64MB}}",
            "p.yaml:8: buffer.total.measured: is stated without a source; add source: NAME, a name of sources",
        ),
        (
            "buffer: {total: {measured: 64MB, source: runs}}",
            'p.yaml:8: buffer.total.source: "runs" is not one of the choices; write sheet or run (did you mean run?)',
        ),
        (
            "buffer: {total: {measured: 64MB, source: run, declared: 1}}",
            'p.yaml:8: buffer.total.declared: "1" has no unit; write a size with its unit, such as "64MiB"',
        ),
        (
            "groups: [{group: 8}]",
            'p.yaml:8: groups[0].group: "8" is not a number of these; write a number from 0 to 7, or a range such as 0-7',
        ),
        (
            "queues: [{queue: 1}, {queue: 0-2}]",
            "p.yaml:8: queues[1].queue: queue 1 is described twice; describe it once",
        ),
        (
            "queues: [{scheduler: {declared: wrr, source: run}}]",
            "p.yaml:8: queues[0].queue: is missing; write queue: 3, or queue: [3, 4]",
        ),
        (
            "maps: {basis: declared, source: run, dscp_to_class: {0-5: 1}}",
            "p.yaml:8: maps.dscp_to_class: 58 of 64 are not mapped, such as 6; add default: N",
        ),
        (
            "maps: {basis: declared, source: run, pcp_to_class: {0-7: 1, 3: 3}}",
            "p.yaml:8: maps.pcp_to_class.3: 3 is mapped twice; map every number once",
        ),
        (
            "ports: [{name: a, basis: declared, source: run, breakouts: [4:100G]}]",
            'p.yaml:8: ports[0].breakouts[0]: "4:100G" is not a breakout; write count and speed, such as "4x100Gbps"',
        ),
        ("cnp: {}", "p.yaml:8: cnp: only a NIC has this; remove it, or write kind: nic"),
        (
            "checks: [{check: x > 1}]",
            "p.yaml:8: checks[0].why: is missing; say why a device that breaks it is not good enough",
        ),
        ("bufer: {}", "p.yaml:8: bufer: unknown key; did you mean buffer?"),
        (
            "counters: {access: [{reader: gnmi, paths: sonic}]}",
            "p.yaml:8: counters.access[0].objects: is missing; list some of port, priority, queue, group, pool",
        ),
    ],
)
def test_a_mistake_is_told_with_its_remedy(body: str, message: str) -> None:
    assert mistakes(body) == [message]


def test_all_mistakes_of_a_file_come_together() -> None:
    assert len(mistakes("buffer: {total: 1}\nqueues: [{queue: 99}]\nlatency: {mode: slow}\nnope: 1")) >= 4


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            "profile: p\nkind: nic\nsummary: s",
            "p.yaml:1: sources: no source is given; write NAME: {title: ..., url: ..., date: 2025-01-31}",
        ),
        (
            HEAD.replace("2025-01-31", "January"),
            'p.yaml:6: sources.sheet.date: "January" is not a date; write it as 2025-01-31',
        ),
        (
            HEAD.replace("https:", "file:"),
            (
                'p.yaml:6: sources.sheet.url: "file://example.org/sheet" is not an address; '
                'write one such as "https://example.org/sheet"'
            ),
        ),
        (
            HEAD.replace("summary: a switch of the tests\n", ""),
            "p.yaml:2: summary: is missing; say in a line what device this is",
        ),
    ],
)
def test_a_profile_without_what_every_profile_has(head: str, message: str) -> None:
    assert mistakes("", head) == [message]


def test_a_nic_has_sections_of_its_own() -> None:
    profile = read(
        """
basis: configured
source: run
transport: {path_mtu: 4096, retransmission: go_back_n, message_rate: 200000000/s, dscp: 26}
cnp: {interval: 4us, scope: port, dscp: 48}
congestion_control: {algorithm: dcqcn, parameters: {rpg_gd: "11", odd: {measured: 3, source: run}}}
""",
        NIC_HEAD,
    )
    assert profile.kind is DutKind.NIC
    assert profile.transport.message_rate_per_s.value == 200_000_000
    assert [(each.name, each.setting.value) for each in profile.congestion.parameters] == [
        ("rpg_gd", "11"),
        ("odd", "3"),
    ]


@given(st.text(max_size=300))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_profile(HEAD.encode() + text.encode("utf-8", "ignore"), "p.yaml")


@given(st.recursive(
    st.sampled_from(["1", "3-4", "64MB", "true", "declared", "run", "5%", ""]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from("total name declared measured value source basis pools ecn kmin group queue default 3".split()),
        inner, max_size=3),
    max_leaves=12,
), st.sampled_from("buffer groups queues maps pfc ports counters checks notes sources telemetry".split()))  # fmt: skip
def test_no_shape_does_more_than_be_refused(shape: object, key: str) -> None:
    with contextlib.suppress(ConfigError):
        read(f"{key}: {str(shape).replace(chr(39), chr(34))}")


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_is_sound(name: str) -> None:
    profile = find_profile(name)
    assert profile.name == name
    assert check_profile(profile).contradictions == ()
    used = {claim.source.name for _, stated in stated_values(profile) for _, claim in stated.claims()}
    assert used <= {source.name for source in profile.sources}
    # A value without an address is ours: said of our own switch, or chosen for a device that is nobody's.
    own = {source.name for source in profile.sources if not source.url and source.name in used}
    assert (
        not own or profile.name == "soft-switch" or (profile.name.startswith("generic-") and own == {"own"})
    )
    assert profile.counters.access
    assert profile.counters.tolerance_per_million.value is not None


def test_the_shipped_profiles_are_those_that_the_docs_name() -> None:
    assert set(profile_names()) == {
        *("loopback", "soft-switch", "sonic-tomahawk5", "sonic-spectrum4"),
        *("connectx-6-dx", "connectx-7", "bluefield-3", "thor2"),
        *(f"generic-{speed}g-{kind}" for speed in (25, 100, 200, 400, 800) for kind in ("switch", "nic")),
    }


def test_a_shipped_profile_states_what_its_source_does() -> None:
    """Spot checks against the sources themselves (facts of sonic-buildimage, at the commits that the profile names)."""
    profile = find_profile("sonic-tomahawk5")
    assert profile.buffer.pools[0].size_bytes.value == 165_660_324
    assert profile.buffer.headroom_bytes.value == 29_423_360
    assert profile.group(3).headroom_bytes.value == 612_140
    assert claim(profile.maps.dscp_to_class).value[26] == 1
    assert profile.queue(3).ecn.kmin_bytes.value == 1 << 20
    spectrum = find_profile("sonic-spectrum4")
    assert [claim(spectrum.maps.dscp_to_class).value[dscp] for dscp in (0, 3, 6, 7, 10, 11, 40, 48, 51)] == [
        *(0, 2, 3, 0, 0, 4, 4, 5, 0)
    ]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (
            "conectx-7",
            'profile: "conectx-7" is not a shipped profile; write connectx-7 if you mean that, or name a file',
        ),
        ("./nowhere.yaml", "nowhere.yaml: cannot be read: No such file or directory; check the name"),
    ],
)
def test_a_profile_that_is_not_there(named: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"not a shipped|cannot be read") as caught:
        find_profile(named)
    assert message in str(caught.value)

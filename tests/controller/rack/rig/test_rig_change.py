"""Which rigs may take the place of the one that is served: not under a job, not where the controller listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.rig.rig_change import difference, rack_ports, refusals, slots_of

P0 = "{name: p0, addresses: 127.0.0.1, link: 100Gbps}"
P1 = "{name: p1, addresses: 127.0.0.2, link: 400Gbps}"


def rig(
    ports: str = f"{P0}, {P1}", more: str = "", bind: str = "tcp://127.0.0.1:7420", host: str = "x"
) -> Rig:
    """A rig of agent a with these ports."""
    text = f"controller: {{bind: {bind}}}\nagents:\n- {{name: a, host: {host}, ports: [{ports}]}}\n{more}"
    return parse_rig(text.encode(), "rig.yaml", Path())


SECOND = "- {name: b, host: y, ports: [{name: p0, addresses: 127.0.0.9, link: 100Gbps}]}\n"


def test_ports_and_slots_are_those_of_the_rig() -> None:
    assert rack_ports(rig()) == (
        RackPort("a/p0", "a", 100 * 10**9, "udp", ("127.0.0.1",)),
        RackPort("a/p1", "a", 400 * 10**9, "udp", ("127.0.0.2",)),
    )
    assert slots_of(rig(more=SECOND), 8) == {"a": 2, "b": 1}
    assert slots_of(rig(), 1) == {"a": 1}


@pytest.mark.parametrize(
    ("wanted", "leases", "said"),
    [
        (rig(), {"a/p0": "j1"}, ""),
        (rig(more=SECOND), {"a/p0": "j1"}, ""),
        (rig(P0), {"a/p0": "j1"}, ""),
        (rig(P1), {"a/p0": "j1"}, "port a/p0: was removed while job j1 runs on it; etloop rack drain a/p0"),
        (rig(P1), {}, ""),
        (rig(P0.replace(".1", ".7")), {"a/p0": "j1"}, "port a/p0: was changed while job j1 runs on it"),
        (rig(P0.replace("100G", "25G")), {"a/p0": "j1"}, "port a/p0: was changed"),
        (rig(host="z"), {"a/p1": "j1"}, "port a/p1: was changed"),
        (rig(P0.replace(".1", ".7")), {}, ""),
        (
            rig(bind="tcp://127.0.0.1:1"),
            {},
            "controller.bind: is tcp://127.0.0.1:1; this controller listens at tcp://127.0.0.1:7420",
        ),
        (rig(more="security: {insecure: true}\n"), {}, "security: differs from the controller's start"),
    ],
)
def test_a_rig_is_refused_for_what_it_would_take_from_jobs_or_what_takes_a_restart(
    wanted: Rig, leases: dict[str, str], said: str
) -> None:
    found = [str(problem) for problem in refusals(rig(), wanted, leases)]
    assert len(found) == bool(said)
    assert said in "".join(found)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (rig(), "the rig is unchanged"),
        (rig(P1), "gone: a/p0"),
        (rig(P0, more=SECOND), "new: b/p0; gone: a/p1"),
        (rig(f"{P0.replace('.1', '.7')}, {P1}"), "changed: a/p0"),
        (rig(more="lab: mine\n"), "the ports are unchanged"),
    ],
)
def test_people_are_told_in_what_rigs_differ(wanted: Rig, said: str) -> None:
    assert difference(rig(), wanted) == said


def test_many_ports_are_counted() -> None:
    many = ", ".join(P0.replace("p0", f"q{k}").replace("127.0.0.1", f"127.0.1.{k + 1}") for k in range(20))
    assert difference(rig(), rig(f"{P0}, {P1}, {many}")).endswith("a/q7 and 12 more")

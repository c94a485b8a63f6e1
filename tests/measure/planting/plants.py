"""Plants one cause in a healthy fabric or job: a function of a random source for each cause.

Decides which values are drawn, and between which limits. All places are drawn among those that the job's load crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from etloop.results.schema.findings import FindingKind as Kind
from tests.measure.planting.cases import (
    Case,
    Expected,
    collective,
    dcqcn,
    incast,
    no_control,
    scenario,
    size_text,
)
from tests.measure.planting.fabric import (
    DATA_QUEUE,
    IN_LAB,
    IN_TWIN,
    MIB,
    Cable,
    Draw,
    Fabric,
    Size,
    Wish,
    draw_fabric,
    fat_tree,
    links_between_switches,
    ring,
)
from tests.measure.planting.straggler import straggler_files

EXCHANGES: Final = ("all_to_all", "all_reduce", "all_gather", "reduce_scatter")
TIERED: Final = ("leaf_spine", "dumbbell")
DATA_DSCP: Final = 26
CNP_DSCP: Final = 48

Plant = Callable[[Draw], Case]


def _case(fabric: Fabric, job: Mapping[str, Any], expected: Expected, planted: str, **more: Any) -> Case:
    return Case("", 0, fabric, job, expected, planted, **more)


def _at(kind: Kind, *names: str) -> Expected:
    return Expected((kind,), frozenset(names))


def _exchange(rng: Draw, fabric: Fabric, kinds: tuple[str, ...] = EXCHANGES) -> dict[str, Any]:
    return collective(rng, len(fabric.hosts), kinds)


def _slower(rng: Draw, fabric: Fabric, cable: Cable, job: Mapping[str, Any]) -> Case:
    share = rng.uniform(0.40, 0.95)
    changed = fabric.with_cable(cable, rate_mbps=int(cable.rate_mbps * share))
    planted = f"{cable.near} - {cable.far} at {share:.0%} of its rate"
    return _case(changed, job, _at(Kind.SLOW_LINK, *cable.ends), planted)


def slow_host_port(rng: Draw) -> Case:
    """Give the cable of one host 5 to 60 % less than the rig states."""
    fabric = draw_fabric(rng, Wish())
    cable = rng.choice(fabric.attachments)
    load = rng.choice((_exchange(rng, fabric), _exchange(rng, fabric), incast(rng, len(fabric.hosts))))
    if "incast" in load:
        cable = fabric.attachments[0]
    transport = rng.choice((dcqcn(), dcqcn(), no_control(), {"cc": {"algorithm": "swift"}}))
    return _slower(rng, fabric, cable, scenario(fabric, load, transport))


def slow_fabric_link(rng: Draw) -> Case:
    """Give one link between switches 5 to 60 % less than its peers, where such links are the bottleneck."""
    fabric = draw_fabric(rng, Wish(TIERED, (16, 24, 32), oversubscribed=True))
    cable = rng.choice(list(links_between_switches(fabric)))
    transport = rng.choice((dcqcn(), no_control()))
    return _slower(rng, fabric, cable, scenario(fabric, _exchange(rng, fabric, ("all_to_all",)), transport))


def _losing(rng: Draw, *, between_switches: bool, corrupt: bool) -> Case:
    fabric = draw_fabric(rng, Wish(TIERED if between_switches else ("single", *TIERED), (8, 12, 16)))
    chance = 10 ** rng.uniform(-4, -1.7)
    cables = list(links_between_switches(fabric)) if between_switches else list(fabric.attachments)
    cable = rng.choice(cables)
    port = rng.choice((cable.near, cable.far)) if between_switches else cable.near
    direction, switch = rng.choice(("in", "out")), port.partition("/")[0]
    number = port.partition("/")[2]
    fault = {direction: number, "chance": f"{chance * 100:.4f}%", **({"corrupt": True} if corrupt else {})}
    changed = fabric.with_settings([switch], {"faults": [fault]})
    # Twelve or more losses on the port: fewer are no evidence of anything.
    load = _exchange(rng, fabric, ("all_to_all",))
    ranks = len(fabric.hosts)
    packets = 16 / chance
    small = packets * 4096 > rng.size.run_bytes / ranks * 2
    mtu = 1024 if small else 4096
    size = max(int(packets * mtu), rng.size.run_bytes // ranks)
    if between_switches:
        size = size * len(cables) // ranks
    load["collective"] |= {"size": size_text(min(size, 384 * MIB) // 3), "count": 3}
    transport = rng.choice((dcqcn, no_control))(path_mtu=mtu)
    if rng.random() < 0.4:
        transport["retransmission"] = "selective_repeat"
    planted = f"{'corrupts' if corrupt else 'loses'} {chance:.2e} {direction} {port}"
    kind = Kind.DAMAGED_LINK if corrupt else Kind.LOSSY_LINK
    return _case(changed, scenario(fabric, load, transport), _at(kind, *cable.ends), planted)


def lossy_host_link(rng: Draw) -> Case:
    """Lose packets on the cable of one host."""
    return _losing(rng, between_switches=False, corrupt=False)


def lossy_fabric_link(rng: Draw) -> Case:
    """Lose packets on one cable between switches."""
    return _losing(rng, between_switches=True, corrupt=False)


def damaged_link(rng: Draw) -> Case:
    """Damage packets on one cable."""
    return _losing(rng, between_switches=rng.random() < 0.5, corrupt=True)


def mtu(rng: Draw) -> Case:
    """Let one switch drop frames of full size at a port to a host, as with a smaller MTU."""
    fabric = draw_fabric(rng, Wish(("single", *TIERED), (8, 12, 16)))
    cable = rng.choice(fabric.attachments)
    switch, _, number = cable.near.partition("/")
    path_mtu = rng.choice((1024, 2048, 4096))
    longest = rng.randint(path_mtu // 2, path_mtu)
    fault = {rng.choice(("in", "out")): number, "longer_than": f"{longest}B"}
    changed = fabric.with_settings([switch], {"faults": [fault]})
    transport = rng.choice((dcqcn, no_control))(
        path_mtu=path_mtu, timeout="5ms", timeout_floor="2ms", retries=3
    )
    planted = f"{cable.near}: no frame above {longest} B, path MTU {path_mtu}"
    return _case(
        changed, scenario(fabric, _exchange(rng, fabric), transport), _at(Kind.MTU, *cable.ends), planted
    )


def _congested(
    rng: Draw, transport: Mapping[str, Any], shapes: tuple[str, ...] = ("single", *TIERED)
) -> tuple[Fabric, dict[str, Any], str]:
    """Return a fabric with an incast that fills the queue to rank 0, its scenario, and the switch of that queue."""
    fabric = draw_fabric(rng, Wish(shapes, (12, 16, 24)))
    job = scenario(fabric, incast(rng, len(fabric.hosts)), transport)
    return fabric, job, fabric.switch_of(fabric.hosts[0])


def ecn_off_all(rng: Draw) -> Case:
    """Switch marking off everywhere, under DCQCN."""
    fabric, job, _ = _congested(rng, dcqcn())
    off = {"queues": {DATA_QUEUE: {"ecn": {"enabled": False}}}}
    changed = fabric.with_settings(tuple(fabric.switches), off)
    return _case(changed, job, _at(Kind.ECN_OFF), "no switch marks")


def ecn_off_one(rng: Draw) -> Case:
    """Switch marking off on the switch whose queue grows, under DCQCN."""
    fabric, job, switch = _congested(rng, dcqcn(), TIERED)
    changed = fabric.with_settings([switch], {"queues": {DATA_QUEUE: {"ecn": {"enabled": False}}}})
    return _case(changed, job, _at(Kind.ECN_OFF, switch), f"{switch} does not mark")


def _marking(rng: Draw, low_kb: float, high_kb: float, kind: Kind, **settings: object) -> Case:
    fabric, job, switch = _congested(rng, dcqcn())
    kmin_kb = int(rng.uniform(low_kb, high_kb) * max(fabric.stated_mbps, 20_000) / 100_000)
    factor = rng.choice((1.5, 2, 4))
    ecn = {"kmin": f"{max(kmin_kb, 1)}kB", "kmax": f"{max(int(kmin_kb * factor), 2)}kB", "pmax": "100%"}
    everywhere = rng.random() < 0.3 and len(fabric.switches) > 1
    names = tuple(fabric.switches) if everywhere else (switch,)
    changed = fabric.with_settings(names, {"queues": {DATA_QUEUE: {"ecn": ecn}}, **settings})
    expected = _at(kind) if everywhere else _at(kind, switch)
    planted = f"{'all switches' if everywhere else switch}: Kmin {ecn['kmin']}, Kmax {ecn['kmax']}"
    return _case(changed, job, expected, planted)


def ecn_early(rng: Draw) -> Case:
    """Mark at a few packets."""
    return _marking(rng, 4, 30, Kind.ECN_EARLY)


def ecn_late(rng: Draw) -> Case:
    """Mark only at lengths at which the switch pauses."""
    return _marking(rng, 3_000, 12_000, Kind.ECN_LATE)


def data_class(rng: Draw) -> Case:
    """Map data to another class on one switch."""
    fabric = draw_fabric(rng, Wish(TIERED, (8, 12, 16)))
    switch = rng.choice(tuple(fabric.switches))
    number = rng.choice((0, 1, 2, 4, 5, 7))
    changed = fabric.with_settings([switch], {"maps": {"dscp_to_class": {DATA_DSCP: number}}})
    job = scenario(fabric, _exchange(rng, fabric), dcqcn())
    return _case(changed, job, _at(Kind.DATA_CLASS, switch), f"{switch}: DSCP 26 to class {number}")


def pfc_priority(rng: Draw) -> Case:
    """Pause another priority than that of the data, on the switch that pauses."""
    fabric, job, switch = _congested(rng, no_control(), TIERED)
    number = rng.choice((0, 1, 2, 4, 5, 7))
    changed = fabric.with_settings([switch], {"maps": {"group_to_priority": {DATA_QUEUE: number}}})
    return _case(changed, job, _at(Kind.DATA_CLASS, switch), f"{switch} pauses priority {number}")


def cnp_class(rng: Draw) -> Case:
    """Map congestion notifications to the class of data."""
    fabric, job, switch = _congested(rng, dcqcn())
    everywhere = rng.random() < 0.5 or len(fabric.switches) == 1
    names = tuple(fabric.switches) if everywhere else (switch,)
    changed = fabric.with_settings(names, {"maps": {"dscp_to_class": {CNP_DSCP: DATA_QUEUE}}})
    expected = _at(Kind.CNP_CLASS) if everywhere else _at(Kind.CNP_CLASS, switch)
    planted = f"DSCP 48 to class 3 at {'all' if everywhere else switch}"
    return _case(changed, job, expected, planted)


def pfc_ignored(rng: Draw) -> Case:
    """Let one sender go on while it is paused."""
    fabric, job, switch = _congested(rng, no_control(retransmission="selective_repeat"))
    near = [cable for cable in fabric.attachments[1:] if cable.near.startswith(f"{switch}/")]
    senders = job["workload"]["incast"]["senders"]
    near = [cable for cable in near if fabric.hosts.index(cable.far) <= senders]
    cable = rng.choice(near)
    changed = fabric.with_cable(cable, settings={"honours_pause": False})
    return _case(changed, job, _at(Kind.PFC_IGNORED, *cable.ends), f"{cable.far} ignores pauses")


def headroom_small(rng: Draw) -> Case:
    """Leave less headroom than the cables need, on the switch that pauses."""
    fabric, job, switch = _congested(rng, no_control(retransmission="selective_repeat"))
    delay_ns = rng.choice((1_000, 2_000, 5_000))

    def longer(cables: tuple[Cable, ...]) -> tuple[Cable, ...]:
        return tuple(replace(cable, delay_ns=delay_ns) for cable in cables)

    fabric = replace(fabric, links=longer(fabric.links), attachments=longer(fabric.attachments))
    needed = fabric.stated_mbps * 2 * delay_ns // 8_000
    headroom = int(needed * rng.uniform(0.1, 0.5))
    changed = fabric.with_settings([switch], {"groups": {DATA_QUEUE: {"headroom": f"{headroom}B"}}})
    expected = _at(Kind.HEADROOM_SMALL, switch)
    return _case(changed, job, expected, f"{switch}: headroom {headroom} B of {needed} B in flight")


def alpha_small(rng: Draw) -> Case:
    """Give a queue, or a lossless group, a small share of the free buffer."""
    lossless = rng.random() < 0.5
    fabric = draw_fabric(rng, Wish(("single", *TIERED), (8, 12, 16), lossless=lossless))
    ranks = len(fabric.hosts)
    switch = fabric.switch_of(fabric.hosts[0])
    alpha = f"1/{rng.choice((32, 64, 128))}"
    settings = {"groups" if lossless else "queues": {DATA_QUEUE: {"alpha": alpha}}}
    changed = fabric.with_settings([switch], {**settings, "buffer": f"{rng.choice((16, 24, 32))}MiB"})
    transport = dcqcn() if lossless else dcqcn(retransmission="selective_repeat")
    job = scenario(fabric, incast(rng, ranks), transport)
    planted = f"{switch}: alpha {alpha} of a {'group' if lossless else 'queue'}"
    return _case(changed, job, _at(Kind.BUFFER_SHARE_SMALL, switch), planted)


def hash_collapse(rng: Draw) -> Case:
    """Hash fields that all flows share, on one leaf."""
    fabric = draw_fabric(rng, Wish(("leaf_spine", "dumbbell"), (16, 24, 32), oversubscribed=True))
    switch = rng.choice(tuple(fabric.hosts_by_switch()))
    fields = rng.choice((["protocol"], ["dst_port"], ["protocol", "dst_port"]))
    changed = fabric.with_settings([switch], {"hash": fields})
    job = scenario(fabric, _exchange(rng, fabric, ("all_to_all",)), rng.choice((dcqcn, no_control))())
    expected = _at(Kind.HASH_COLLAPSE, switch)
    return _case(changed, job, expected, f"{switch} hashes {', '.join(fields)}")


def hash_polarised(rng: Draw) -> Case:
    """Let the switches of all tiers hash alike."""
    fabric = fat_tree(rng, rng.choice((16, 32)), rng.choice((50_000, 100_000, 200_000)))
    seed = rng.randrange(1, 1 << 20)
    changed = fabric.with_settings(tuple(fabric.switches), {"seed": seed})
    job = scenario(fabric, _exchange(rng, fabric, ("all_to_all",)), dcqcn())
    uppers = tuple(name for name in fabric.switches if name.startswith("agg"))
    return _case(changed, job, _at(Kind.HASH_POLARISED, *uppers), "all switches hash alike")


def few_flows(rng: Draw) -> Case:
    """Send one flow from each host of a leaf to another leaf."""
    fabric = draw_fabric(rng, Wish(("leaf_spine",), (8, 12, 16)))
    by_switch = list(fabric.hosts_by_switch().values())
    # Neighbours in the ring are on different leaves.
    order = [hosts[number] for number in range(len(by_switch[0])) for hosts in by_switch]
    load = collective(rng, len(order), ("all_reduce", "all_gather", "reduce_scatter"))
    job = scenario(fabric, load, dcqcn())
    job["mapping"] = {"placement": "round_robin", "ports": order}
    job["collectives"] = {"channels": 1}
    return _case(fabric, job, _at(Kind.UNEVEN_LINKS), "a ring with one flow a host")


def link_flap(rng: Draw) -> Case:
    """Take one link down for a while."""
    fabric = draw_fabric(rng, Wish(("single", *TIERED), (8, 12, 16)))
    cable = rng.choice([*fabric.attachments, *links_between_switches(fabric)])
    start_us = rng.randint(50, 300) * rng.size.time_factor
    length_us = rng.randint(200, 5_000) * rng.size.time_factor
    changed, more = fabric, {}
    if rng.size is IN_LAB:
        # The outages of a topology count from the begin of the lab, the timeline of a scenario from that of the job.
        times = ((start_us, "down"), (start_us + length_us, "up"))
        more["timeline"] = [
            {"at": f"{at_us}us", "link": cable.near, "state": state} for at_us, state in times
        ]
    else:
        outage = {"port": cable.near, "from": f"{start_us}us", "until": f"{start_us + length_us}us"}
        changed = replace(fabric, extra={"outages": [outage]})
    job = scenario(fabric, _exchange(rng, fabric), dcqcn(timeout_floor="2ms"), **more)
    planted = f"{cable.near} - {cable.far} down for {length_us} us"
    return _case(changed, job, _at(Kind.LINK_FLAP, *cable.ends), planted)


def trims_dropped(rng: Draw) -> Case:
    """Give trimmed packets a DSCP that receivers do not know as trimmed."""
    fabric = draw_fabric(rng, Wish(("single", *TIERED), (12, 16, 24), lossless=False))
    given, known = rng.sample((8, 10, 12, 20, 30, 34), 2)
    changed = fabric.with_settings(
        tuple(fabric.switches), {"trimming": {"size": "64B", "dscp": given, "queue": 6}, "buffer": "4MiB"}
    )
    kind = rng.choice(("rocev2", "mrc", "uet"))
    transport: dict[str, Any] = {"trimming": {"dscp": known}, "lossless": False}
    if kind == "rocev2":
        transport |= dcqcn(retransmission="selective_repeat")
    else:
        transport |= {"kind": kind}
    job = scenario(fabric, incast(rng, len(fabric.hosts)), transport)
    return _case(changed, job, _at(Kind.TRIM_UNANSWERED), f"{kind}: trims have DSCP {given}, not {known}")


def watchdog(rng: Draw) -> Case:
    """Detect a storm sooner than an ordinary pause ends."""
    fabric, job, _ = _congested(rng, no_control(retransmission="selective_repeat"), TIERED)
    detect_us = rng.randint(10, 60) * rng.size.time_factor
    settings = {"pfc": {"watchdog": {"detect": f"{detect_us}us"}}}
    changed = fabric.with_settings(tuple(fabric.switches), settings)
    return _case(changed, job, _at(Kind.PFC_WATCHDOG), f"watchdog after {detect_us} us")


def deadlock(rng: Draw) -> Case:
    """Send around a ring of switches, two hops each."""
    switches = rng.choice((5, 6, 7))
    fabric = ring(rng, switches, rng.choice((2, 3)), rng.choice((50_000, 100_000, 200_000)))
    changed = fabric.with_settings(tuple(fabric.switches), {"buffer": f"{rng.choice((5, 6, 8))}MiB"})
    job = scenario(
        fabric,
        _exchange(rng, fabric, ("all_to_all",)),
        no_control(timeout="5ms", timeout_floor="2ms", retries=3),
    )
    return _case(changed, job, _at(Kind.PFC_DEADLOCK, *fabric.switches), f"a ring of {switches} switches")


def storm(rng: Draw) -> Case:
    """Let one host pause its port without end."""
    fabric = draw_fabric(rng, Wish(("single", *TIERED), (8, 12, 16)))
    cable = rng.choice(fabric.attachments)
    pause_ns = 65_535 * 512 * 1_000 // cable.rate_mbps
    every_us = max(1, int(pause_ns / 1_000 * rng.uniform(0.3, 0.9)))
    count = max(1, rng.randint(20_000, 60_000) // every_us)
    pause = {
        "do": "pause",
        "port": cable.far,
        "priority": DATA_QUEUE,
        "every": f"{every_us}us",
        "count": count,
    }
    fabric = replace(fabric, port_keys={"backend": "packet", "interface": "eth0"})
    job = scenario(fabric, _exchange(rng, fabric), dcqcn(faults=[pause], timeout_floor="200ms"))
    planted = f"{cable.far} pauses every {every_us} us, {count} times"
    return _case(fabric, job, _at(Kind.PFC_STORM, *cable.ends), planted)


def straggler(rng: Draw) -> Case:
    """Let one rank compute longer before every collective."""
    fabric = draw_fabric(rng, Wish(("single", *TIERED), (8, 16)))
    ranks = len(fabric.hosts)
    slow = rng.randrange(ranks)
    share = rng.uniform(0.2, 1.0)
    files = straggler_files(rng, ranks, slow, share)
    job = scenario(fabric, {"trace": "trace"}, dcqcn())
    planted = f"rank {slow} computes {share:.0%} longer"
    return _case(fabric, job, _at(Kind.STRAGGLER, str(slow), fabric.hosts[slow]), planted, files=files)


def job_incast(rng: Draw) -> Case:
    """Send from many to one on a healthy fabric."""
    transport = rng.choice((dcqcn(), no_control(), {"cc": {"algorithm": "swift"}}))
    if rng.size is IN_LAB and transport["cc"]["algorithm"] == "swift":
        transport = no_control()  # its targets are below the time of one packet there
    fabric, job, _ = _congested(rng, transport)
    return _case(fabric, job, _at(Kind.JOB_INCAST, *fabric.attachments[0].ends), "many to rank 0")


def placement(rng: Draw) -> Case:
    """Spread each of several jobs over leaves that could each hold one."""
    fabric = draw_fabric(rng, Wish(("leaf_spine",), (16, 24, 32), oversubscribed=True))
    leaves = list(fabric.hosts_by_switch().values())
    size = len(leaves[0])
    spread = [host for hosts in zip(*leaves, strict=True) for host in hosts]
    jobs = [
        {
            "name": f"job{number}",
            "workload": collective(rng, size, ("all_to_all",), 1 / len(leaves)),
            "mapping": {"placement": "round_robin", "ports": spread[number * size : (number + 1) * size]},
        }
        for number in range(len(leaves))
    ]
    job = {"jobs": jobs, "transport": dcqcn()}
    return _case(fabric, job, _at(Kind.PLACEMENT), f"{len(jobs)} jobs over {len(leaves)} leaves each")


def reordering(rng: Draw) -> Case:
    """Let one switch spray packets of a transport that needs their order."""
    fabric = draw_fabric(rng, Wish(TIERED, (8, 12, 16)))
    switch = rng.choice(tuple(fabric.hosts_by_switch()))
    changed = fabric.with_settings([switch], {"balancing": "spray"})
    job = scenario(fabric, _exchange(rng, fabric, ("all_to_all",)), dcqcn(out_of_order="nak"))
    return _case(changed, job, _at(Kind.REORDERING, switch), f"{switch} sprays")


PLANTS: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        slow_host_port,
        slow_fabric_link,
        lossy_host_link,
        lossy_fabric_link,
        damaged_link,
        mtu,
        ecn_off_all,
        ecn_off_one,
        ecn_early,
        ecn_late,
        data_class,
        pfc_priority,
        cnp_class,
        pfc_ignored,
        headroom_small,
        alpha_small,
        hash_collapse,
        hash_polarised,
        few_flows,
        link_flap,
        trims_dropped,
        watchdog,
        deadlock,
        storm,
        straggler,
        job_incast,
        placement,
        reordering,
    )
}
"""Cause -> its plant."""


IN_LABS: Final = (
    "slow_host_port",
    "lossy_host_link",
    "damaged_link",
    "mtu",
    "ecn_off_all",
    "ecn_early",
    "data_class",
    "cnp_class",
    "pfc_priority",
    "hash_collapse",
    "link_flap",
    "storm",
    "straggler",
    "job_incast",
    "reordering",
)
"""Causes that a lab on one machine can have."""


def planted_case(cause: str, seed: int, size: Size = IN_TWIN) -> Case:
    """Return the case of a cause and a seed, always the same."""
    rng = Draw(f"{cause} {seed}")
    rng.size = size
    return replace(PLANTS[cause](rng), cause=cause, seed=seed)

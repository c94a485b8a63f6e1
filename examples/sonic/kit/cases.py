"""The cases of sonic-mgmt's plans for RoCEv2 (#21514, #23240, #25347, #27040, #27207) and collectives (#27315). Pure.

Sizes and times are those of links of 100 Mb/s, on which a switch of software keeps up; limits are the plans' where they
state one.
"""

from __future__ import annotations

from typing import Any

from verdicts import Case, Check

Job = dict[str, Any]

PFC = "PORT_QOS_MAP|Ethernet*|pfc_enable"
WRED = "QUEUE|Ethernet*|3|wred_profile and its WRED_PROFILE"
MAPS = "DSCP_TO_TC_MAP and TC_TO_QUEUE_MAP"
HEADROOM = "BUFFER_PG|Ethernet*|3-4 and the xoff of its BUFFER_PROFILE"
SPEED = "PORT|Ethernet*|speed"
HASH = "SWITCH_HASH|GLOBAL|ecmp_hash"
SPRAY = "the balancing of equal-cost paths (packet spray)"
WEIGHT = "QUEUE|Ethernet*|0|scheduler and the weight of its SCHEDULER"
REROUTE = "how soon a link that is down leaves the ECMP group"
CABLES = "counters of errors at the ports (show interfaces counters errors)"

DELIVERED = (
    Check("lost_packets == 0", "every data packet is delivered", f"{PFC}; {HEADROOM}; {CABLES}"),
    Check("sum(flows.naks_rx) == 0", "no NAK and no sequence error", CABLES),
)
UNMARKED = Check("sum(switches.queue_ecn_marked_packets) == 0", "no ECN-CE", WRED)
UNPAUSED = Check("sum(switches.pfc_tx) == 0", "no PFC", HEADROOM)
MARKED = Check("sum(switches[cos == 3].queue_ecn_marked_packets) > 0", "ECN-CE in queue 3", WRED)
NOTIFIED = Check("sum(flows.np_cnp_sent) > 0", "receivers send CNPs", WRED)
FEW_PAUSES = Check("sum(switches.pfc_tx) <= 100", "few or no PFC", WRED)
QUEUED = Check(
    "sum(switches[cos == 3].queue_packets) >= 0.98 * (tx_packets - lost_packets)",
    "DSCP 3 travels in queue 3",
    MAPS,
)


SCALED_DCQCN = {
    "algorithm": "dcqcn",
    "preset": "connectx",
    "alpha_period": "250us",
    "rate_reduce_monitor_period": "1ms",
    "time_reset": "20ms",
    "ai_rate": "200kbps",
    "hai_rate": "1Mbps",
    "min_rate": "100kbps",
}
"""ConnectX's parameters, with the times and steps of links of 100 Mb/s."""


def transport(ecn: str, cc: str, **more: Any) -> Job:
    """Return the settings of every case: data with DSCP 3, CNPs 46, ACKs and NAKs 48, frames of a kilobyte."""
    return {
        "dscp": 3,
        "ecn": ecn,
        "path_mtu": 1024,
        "cnp": {"dscp": 46, "interval": "1ms"},
        "ack": {"dscp": 48, "ecn": "none"},
        "clear_to_send": {"dscp": 48, "ecn": "none"},
        "cc": SCALED_DCQCN if cc == "dcqcn" else {"algorithm": cc},
        "timeout_floor": "500ms",
    } | more


def incast(senders: int, size: str, bursts: int, ports: list[str], name: str = "data", **more: Any) -> Job:
    """Return a job in which the later ports send to the first."""
    load = {"senders": senders, "size": size, "bursts": bursts} | more
    return {
        "name": name,
        "workload": {"incast": load},
        "mapping": {"placement": "round_robin", "ports": ports},
    }


def many_to_one(senders: int, size: str) -> Job:
    """Return a job in which queue pairs of three ports send to a fourth at once."""
    share = senders // 3
    ranks = {f"{port * share + 1}-{(port + 1) * share}": LEAF[port + 1] for port in range(3)}
    mapping = {"placement": "explicit", "explicit": {"0": LEAF[0]} | ranks}
    return {"name": "data", "workload": {"incast": {"senders": senders, "size": size}}, "mapping": mapping}


def collective(kind: str, size: str, count: int, ports: list[str], name: str = "", **more: Any) -> Job:
    """Return a job of equal collectives over a rank at each port."""
    load = {"kind": kind, "ranks": len(ports), "size": size, "count": count}
    mapping = {"placement": "round_robin", "ports": ports}
    return {"name": name or kind, "workload": {"collective": load}, "mapping": mapping} | more


def scenario(jobs: list[Job], marks: Job, **more: Any) -> Job:
    """Return a scenario of these jobs."""
    return {
        "jobs": jobs,
        "collectives": {"shaping": "plain"},
        "transport": marks,
        "limits": {"stall_timeout": "30s"},
    } | more


SPINE_LINKS = 'max_to_mean(switches[cos == 3 and (switch == "spine0" or switch == "spine1")].queue_bytes)'
TIMES = "ops[tx_messages > 0].completed_ns"
OUT = 'sum(switches[cos == {} and peer == "a/p0"].queue_bytes)'
LEAF = ["a/p0", "b/p0", "c/p0", "d/p0"]
ALL = [*LEAF, "e/p0", "f/p0", "g/p0", "h/p0"]
QUIET, DCQCN = transport("none", "none"), transport("ect0", "dcqcn")
LARGE_QUIET, LARGE = (marks | {"path_mtu": 4096} for marks in (QUIET, DCQCN))
PAIRS = [
    incast(1, "256KiB", 24, ["c/p0", "a/p0"], "rank0-2", rate="30Mbps"),
    incast(1, "256KiB", 24, ["d/p0", "b/p0"], "rank1-3", rate="30Mbps"),
]


def background(name: str, dscp: int, ports: list[str], rate: str) -> Job:
    """Return a load of another class from the second port to the first."""
    load = {"senders": 1, "size": "64KiB", "rate": rate}
    return {
        "name": name,
        "incast": load,
        "dscp": dscp,
        "mapping": {"placement": "round_robin", "ports": ports},
    }


def stream(name: str, dscp: int, port: str, rate: str) -> Job:
    """Return plain UDP of another class to the first port, at a rate that nothing slows down."""
    return {"name": name, "udp": {"from": port, "to": "a/p0", "rate": rate, "size": "1000B"}, "dscp": dscp}


def storage(ports: list[str]) -> Job:
    """Return three clients that write to one server."""
    load = {"clients": 3, "servers": 1, "rate": "100Mbps", "sizes": ["1MiB"], "read": "0%", "transfers": 6}
    return {
        "name": "storage",
        "workload": {"storage": load},
        "mapping": {"placement": "round_robin", "ports": ports},
    }


ROCEV2 = (
    Case(
        "RoCEv2",
        "1",
        "no congestion",
        "leaf.topology.yaml",
        scenario(
            PAIRS,
            QUIET,
            background=[background(f"dscp{dscp}", dscp, ["c/p0", "a/p0"], "8Mbps") for dscp in (4, 0, 8)],
        ),
        (
            *DELIVERED,
            UNMARKED,
            UNPAUSED,
            QUEUED,
            Check("sum(switches[cos == 4].queue_packets) > 0", "DSCP 4 travels in queue 4", MAPS),
            Check(
                "sum(switches[cos == 6].queue_packets) >= sum(flows.acks_tx)", "ACKs travel in queue 6", MAPS
            ),
        ),
    ),
    Case(
        "RoCEv2",
        "2",
        "PFC incast",
        "leaf.topology.yaml",
        scenario([incast(3, "2MiB", 3, LEAF)], QUIET),
        (
            *DELIVERED,
            UNMARKED,
            QUEUED,
            Check("sum(switches[cos == 3].pfc_tx) > 0", "senders of queue 3 are paused", PFC),
            Check("sum(switches[cos == 3].queue_dropped_packets) == 0", "queue 3 drops nothing", PFC),
        ),
    ),
    Case(
        "RoCEv2",
        "3",
        "DCQCN incast",
        "leaf.topology.yaml",
        scenario([incast(3, "2MiB", 3, LEAF)], DCQCN),
        (*DELIVERED, MARKED, NOTIFIED, FEW_PAUSES, QUEUED),
    ),
    Case(
        "RoCEv2",
        "4a",
        "storage without DCQCN",
        "leaf.topology.yaml",
        scenario([storage(["b/p0", "c/p0", "d/p0", "a/p0"])], QUIET),
        (
            *DELIVERED,
            UNMARKED,
            Check("sum(switches[cos == 3].pfc_tx) > 0", "senders of queue 3 are paused", PFC),
        ),
    ),
    Case(
        "RoCEv2",
        "4b",
        "storage with DCQCN",
        "leaf.topology.yaml",
        scenario([storage(["b/p0", "c/p0", "d/p0", "a/p0"])], DCQCN),
        (*DELIVERED, MARKED, NOTIFIED, FEW_PAUSES),
    ),
    Case(
        "RoCEv2",
        "5",
        "PFC spreads",
        "fabric.topology.yaml",
        scenario([incast(4, "2MiB", 2, ["a/p0", *ALL[4:]])], QUIET),
        (
            *DELIVERED,
            Check(
                'sum(switches[switch == "spine0" or switch == "spine1"].pfc_tx) > 0',
                "spines pause the other leaf",
                PFC,
            ),
            Check("sum(switches.queue_dropped_packets) == 0", "no switch drops", HEADROOM),
        ),
    ),
    Case(
        "RoCEv2",
        "6",
        "QP fairness",
        "leaf.topology.yaml",
        scenario([many_to_one(12, "4MiB")], DCQCN),
        (
            *DELIVERED,
            MARKED,
            Check(
                f"max({TIMES}) <= 1.3 * min({TIMES})", "rates of queue pairs deviate by less than 30 %", SPEED
            ),
        ),
    ),
    Case(
        "RoCEv2",
        "7",
        "hashing",
        "fabric.topology.yaml",
        scenario(
            [collective("all_to_all", "1MiB", 3, ALL)],
            QUIET | {"qps_per_connection": 8, "split_data_on_qps": True},
        ),
        (*DELIVERED, Check(f"{SPINE_LINKS} <= 1.35", "uplinks carry alike with 8 QPs a pair", HASH)),
    ),
    Case(
        "RoCEv2",
        "8",
        "packet spray",
        "spray.topology.yaml",
        scenario([collective("all_to_all", "1MiB", 3, ALL)], QUIET | {"out_of_order": "accept"}),
        (*DELIVERED, UNMARKED, Check(f"{SPINE_LINKS} <= 1.1", "uplinks carry alike", SPRAY)),
    ),
    Case(
        "RoCEv2",
        "9",
        "QoS with background",
        "leaf.topology.yaml",
        scenario(
            [
                incast(1, "256KiB", 72, ["a/p0", "b/p0"], rate="30Mbps"),
                incast(1, "1KiB", 1, ["c/p0", "d/p0"], "places-ranks"),
            ],
            DCQCN,
            background=[
                stream("q0", 0, "c/p0", "90Mbps"),
                stream("q1", 8, "d/p0", "90Mbps"),
            ],
        ),
        (
            *DELIVERED,
            Check(f"{OUT.format(0)} > 0B", "the overloaded port counts queue 0", MAPS),
            Check(f"{OUT.format(0)} <= 1.05 * {OUT.format(1)}", "queue 0 gets its share", WEIGHT),
            Check(f"{OUT.format(1)} <= 1.05 * {OUT.format(0)}", "queue 1 gets its share", WEIGHT),
        ),
    ),
    Case(
        "RoCEv2",
        "10",
        "failover",
        "fabric.topology.yaml",
        scenario(
            [collective("all_to_all", "1MiB", 16, ALL)],
            QUIET,
            timeline=[{"at": "300ms", "link": "leaf0/4", "state": "down"}],
        ),
        (
            Check("jct_max_ns <= 6s", "the job goes on after a link went down", REROUTE),
            Check("timeouts <= 64", "few queue pairs wait for a timeout", REROUTE),
        ),
    ),
    Case(
        "RoCEv2",
        "11",
        "ACKs have priority",
        "leaf.topology.yaml",
        scenario(
            [incast(3, "1MiB", 3, LEAF, "4to1"), incast(1, "1MiB", 3, ["b/p0", "a/p0"], "1to4")],
            QUIET,
        ),
        (
            *DELIVERED,
            Check("timeouts == 0", "no queue pair waits for a timeout", MAPS),
            Check(
                "sum(switches[cos == 6].queue_packets) >= sum(flows.acks_tx)", "ACKs travel in queue 6", MAPS
            ),
        ),
    ),
)


def all_reduce(algorithm: str, ports: list[str], name: str = "all-reduce", count: int = 3) -> Job:
    """Return a job of all-reduces by one algorithm."""
    pinned = {"shaping": "plain", "all_reduce": {"algorithm": algorithm}}
    return collective("all_reduce", "2MiB", count, ports, name, collectives=pinned)


def all_to_all(ports: list[str], name: str = "all-to-all", count: int = 3) -> Job:
    """Return a job of all-to-alls."""
    return collective("all_to_all", "2MiB", count, ports, name)


SIDE = incast(1, "64KiB", 60, ["h/p0", "a/p0"], "point-to-point", rate="10Mbps")
RING, HALVING, SHUFFLE = all_reduce("ring", ALL), all_reduce("halving_doubling", ALL), all_to_all(ALL)
FULL_RATE = Check("min(kinds.busbw_bytes_per_s) >= 60Mbps", "collectives use the rate of the ports", SPEED)
SLOWED_15 = Check(
    "interference_max <= 1.15",
    "10 % of other traffic slows a collective by less than 15 %",
    f"{SPEED}; {WEIGHT}",
)
SLOWED_20 = Check("interference_max <= 1.20", "two jobs slow each other by less than 20 %", HASH)
SPINES = Check(f"{SPINE_LINKS} <= 1.1", "spine links deviate by less than 10 %", SPRAY)
STEADY = Check("jct_cv <= 5%", "iterations take the same time (CV below 5 %)", CABLES)


EDGES, MIDDLES = ["a/p0", "b/p0", "e/p0", "f/p0"], ["c/p0", "d/p0", "g/p0", "h/p0"]
SPRAYED = LARGE_QUIET | {"out_of_order": "accept"}


def both(first: Job, second: Job) -> Job:
    """Return a scenario in which each job runs alone and then next to the other."""
    return scenario([first, second], LARGE_QUIET, rounds=1)


def sequence(marks: Job) -> Job:
    """Return ten rounds of an all-to-all, an all-reduce, and both at once."""
    return scenario([all_to_all(ALL, count=1), all_reduce("ring", ALL, count=1)], marks, rounds=10)


CCL = (
    Case(
        "CCL",
        "1",
        "ring all-reduce",
        "leaf.topology.yaml",
        scenario([RING], LARGE),
        (*DELIVERED, FULL_RATE),
    ),
    Case(
        "CCL",
        "2",
        "halving-doubling all-reduce",
        "leaf.topology.yaml",
        scenario([HALVING], LARGE),
        (*DELIVERED, FULL_RATE),
    ),
    Case(
        "CCL",
        "3",
        "all-to-all M to M",
        "leaf.topology.yaml",
        scenario([SHUFFLE], LARGE),
        (*DELIVERED, FULL_RATE),
    ),
    Case(
        "CCL",
        "4",
        "all-to-all 6 to 2",
        "leaf.topology.yaml",
        scenario(
            [
                incast(3, "2MiB", 3, ["a/p0", *ALL[2:5]], "to0"),
                incast(3, "2MiB", 3, ["b/p0", *ALL[5:]], "to1"),
            ],
            LARGE,
        ),
        (*DELIVERED, MARKED, NOTIFIED),
    ),
    Case(
        "CCL",
        "5",
        "ring all-reduce with background",
        "leaf.topology.yaml",
        both(RING, SIDE),
        (*DELIVERED, SLOWED_15),
    ),
    Case(
        "CCL",
        "6",
        "halving-doubling with background",
        "leaf.topology.yaml",
        both(HALVING, SIDE),
        (*DELIVERED, SLOWED_15),
    ),
    Case(
        "CCL",
        "7",
        "all-to-all with background",
        "leaf.topology.yaml",
        both(SHUFFLE, SIDE),
        (*DELIVERED, SLOWED_15),
    ),
    Case(
        "CCL",
        "8",
        "two all-reduces at once",
        "spray.topology.yaml",
        scenario(
            [all_reduce("ring", EDGES, "first"), all_reduce("ring", MIDDLES, "second")], SPRAYED, rounds=1
        ),
        (*DELIVERED, SLOWED_20, SPINES),
    ),
    Case(
        "CCL",
        "9",
        "all-reduce and all-to-all at once",
        "spray.topology.yaml",
        scenario([all_reduce("ring", EDGES), all_to_all(MIDDLES)], SPRAYED, rounds=1),
        (*DELIVERED, SLOWED_20, SPINES),
    ),
    Case(
        "CCL",
        "10",
        "all-to-all then all-reduce",
        "leaf.topology.yaml",
        sequence(LARGE_QUIET),
        (*DELIVERED, STEADY),
    ),
    Case(
        "CCL",
        "11",
        "the same over spines",
        "spray.topology.yaml",
        sequence(LARGE_QUIET | {"out_of_order": "accept"}),
        (*DELIVERED, STEADY),
    ),
)

"""The file formats of the reference: their readers, and files that make each reader ask every question.

Decides the readings that a reference is made of. A file here need not be runnable: only its reader's questions count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import EtloopError
from etloop.contract.base.questions import Question, noted_questions
from etloop.contract.model.fault_rules import FaultAction
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.inputs.scenario.collectives import COLLECTIVE_KEYS
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.rack.config import RackConfig, parse_rack_config
from etloop.controller.rack.users.users import Users, parse_users
from etloop.controller.racks.racks_file import Racks, parse_racks
from etloop.dut_profiles.model.profile import CounterReader
from etloop.experiments.nic.cards.model import NicModel, parse_model
from etloop.experiments.sweep.file import Sweep, parse_sweep
from etloop.traffic.congestion import Need, built_in
from etloop.traffic.topology.topology_file import TopologyKeys, parse_topology
from tools.reference.type_fields import fill_in_meanings

_HERE: Final = Path()
_RANKS: Final = "[0-9]{1,6}(-[0-9]{1,6})?"
_ANY_PATH: Final = r"[^\s]+"
_LABEL: Final = r".{1,60}"


@dataclass(frozen=True, slots=True)
class Format:
    """One file format."""

    name: str
    """Name of the format in `etloop schema NAME`."""
    file: str
    """Usual name of such a file."""
    says: str
    """Description of the file, for the head of its page."""
    read: Callable[[bytes], object]
    readings: tuple[str, ...]
    """Files in YAML; where no type declares the keys, every question of the reader is asked in one of them."""
    open_keys: Mapping[str, str] = field(default_factory=dict)
    """Mappings whose keys the user chooses, with the pattern of a key, where no type declares them."""
    same_as: Mapping[str, str] = field(default_factory=dict)
    """Sections that are described by another one."""
    kind: type | None = None
    """The type that declares the keys; with `open_keys`, the reader asks for further ones."""


def questions_of(file_format: Format, text: str) -> list[Question]:
    """Return the questions that the reader of a format asks a file."""
    fill_in_meanings()
    # Mistakes of the file do not matter: every question was asked before they are raised.
    with noted_questions() as questions, suppress(EtloopError):
        file_format.read(text.encode())
    return questions


_PIN: Final = "{algorithm: ring, schedule: a.et, recorded: 1MiB}"
_GROUP: Final = ", ".join(f"{key}: {{channels: 2}}" for key in COLLECTIVE_KEYS if key != "send_recv")
_GROUPS: Final = f"communicators: [{{size: 2, channels: 2, {_GROUP}}}]"
_COLLECTIVES: Final = f"collectives: {{{', '.join(f'{key}: {_PIN}' for key in COLLECTIVE_KEYS)}, {_GROUPS}}}"
_RULES: Final = ", ".join(f"{{do: {action.name.lower()}, which: 1}}" for action in FaultAction)
_CONTROLS: Final = tuple(
    f"transport: {{cc: {{algorithm: {algorithm.name}}}}}"
    for algorithm in built_in()
    if Need.INT not in algorithm.needs
)
_ALGORITHMS: Final = (
    *_CONTROLS,
    *(f"{{jobs: [{{name: a, {control}}}], background: [{{name: b, {control}}}]}}" for control in _CONTROLS),
)
_UDP: Final = "{from: a/p0, to: b/p0, rate: 1Gbps}"
SCENARIO: Final = Format(
    "scenario",
    "scenario.yaml",
    "what is replayed, how it is mapped and scaled, how its traffic is carried, and when it has passed.",
    lambda text: parse_scenario(text, "scenario.yaml", _HERE),
    (
        "{seed: 1}",
        "workload: {trace: traces/}",
        "workload: {collective: {kind: all_reduce, ranks: 2, size: 1MiB}}",
        "workload: {incast: {senders: 2, size: 1MiB}}",
        "workload: {incast: {senders: 2, size: 1MiB, rate: 1Gbps}}",
        "workload: {flows: {file: flows.csv}}",
        "workload: {flows: {sizes: web_search, rate: 1Gbps, hosts: 2}}",
        "workload: {storage: {clients: 1, servers: 1, sizes: [1MiB], rate: 1Gbps}}",
        "workload: {serving: {model: llama-3.1-8b, requests: {rate: 1}}}",
        "workload: {serving: {model: llama-3.1-8b, requests: {trace: requests.jsonl}}}",
        "workload: {checkpoint: {file: llama3_8b.yaml, ranks: 8, servers: 2}}",
        "workload: {weight_update: {trainers: 1, workers: 2, size: 1MiB}}",
        "workload: {kv_offload: {file: log.csv, clients: 1, servers: 1}}",
        (
            f"{{rounds: 2, jobs: [{{name: a, workload: {{trace: t/}}, mapping: {{explicit: {{0-3: a/p0}}}}, {_COLLECTIVES}}},"
            " {name: b, workload: {collective: {kind: barrier, ranks: 2}}}, {name: c, workload: {incast: {senders: 1}}},"
            " {name: d, workload: {storage: {clients: 1}}}, {name: e, workload: {collective: {kind: all_reduce}}},"
            " {name: f, workload: {flows: {file: f.csv}}}, {name: g, workload: {flows: {sizes: hadoop}}},"
            " {name: h, workload: {checkpoint: {file: c.yaml}}}, {name: i, workload: {weight_update: {trainers: 1}}},"
            " {name: j, workload: {kv_offload: {file: l.csv}}}, {name: k, workload: {serving: {requests: {rate: 1}}}},"
            " {name: l, workload: {serving: {requests: {trace: t}}}}]}"
        ),
        (
            "background: [{name: a, incast: {senders: 2, size: 1MiB, period: 1ms}, mapping: {axes: {dp: 2}}},"
            f" {{name: b, storage: {{clients: 1}}}}, {{name: c, udp: {_UDP}}}, {{name: d, incast: {{rate: 1Gbps}}}}]"
        ),
        "timeline: [{at: 1s, link: leaf0/3, state: down}]",
        "mapping: {explicit: {0-3: a/p0}, axes: {dp: 2, tp: 4}, order: [tp, dp], hosts: [[0, 1]]}",
        (
            f"transport: {{faults: [{_RULES}, {{do: pause, priority: 3, every: 1ms}}], capture: {{ports: [a/p0]}},"
            " source_port: [50000]}"
        ),
        _COLLECTIVES,
        "verdict: {checks: [{check: retransmitted_packets == 0}]}",
        *_ALGORITHMS,
    ),
    {"mapping.explicit": _RANKS, "mapping.axes": _LABEL}
    | {f"{where}.mapping.explicit": _RANKS for where in ("jobs[]", "background[]")}
    | {f"{where}.mapping.axes": _LABEL for where in ("jobs[]", "background[]")},
    {
        "jobs[].workload": "workload",
        "jobs[].mapping": "mapping",
        "jobs[].collectives": "collectives",
        "background[].mapping": "mapping",
        "background[].transport": "jobs[].transport",
    }
    | {f"jobs[].transport.{key}": f"transport.{key}" for key in ("mrc", "uet", "cc", "cnp")}
    | {f"collectives.{key}": "collectives.all_reduce" for key in COLLECTIVE_KEYS if key != "all_reduce"}
    | {
        f"collectives.communicators[].{key}": "collectives.communicators[].all_reduce"
        for key in COLLECTIVE_KEYS
        if key not in ("all_reduce", "send_recv")
    },
)
_RIG: Final = "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 100Gbps}]}], dut: {profile: loopback, counters: "
RIG: Final = Format(
    "rig",
    "rig.yaml",
    "which agents there are, the ports they own towards the device, and how they reach the controller.",
    lambda text: parse_rig(text, "rig.yaml", _HERE),
    tuple(
        f"{{{_RIG}[{{reader: {reader}, ports: {{a/p0: swp1}}, tls: {{}}}}]}}}}" for reader in CounterReader
    ),
    kind=Rig,
)
_SINGLE: Final = "ports: [a/p0], rate: 100Gbps"
_SWITCH: Final = (
    "{pfc: {watchdog: {detect: 1ms}}, trimming: {size: 128B, dscp: 48}, faults: [{every: 10, in: a/p0, out: a/p0}],"
    " queues: {0: {ecn: {kmin: 1kB}}}, port_weights: {a/p0: 2}, usids: {a/p0: 0xe000}, buffer: 1MiB}"
)
TOPOLOGY: Final = Format(
    "topology",
    "topology.yaml",
    "switches, the links between them, the rig's ports on them, and the handling of links that go down.",
    lambda text: parse_topology(text, "topology.yaml"),
    (
        f"{{srv6: {{block: 'fc00:1::/32'}}, single: {{{_SINGLE}, switch: {_SWITCH}}}}}",
        f"{{single: {{{_SINGLE}}}, outages: [{{port: a/p0, from: 1s}}], routing: {{}}}}",
        "leaf_spine: {rate: 100Gbps, spines: 1, leaves: [{ports: [a/p0]}]}",
        "rail: {rate: 100Gbps, rails: [{ports: [a/p0]}]}",
        "dumbbell: {left: [a/p0], right: [b/p0], rate: 100Gbps}",
        "parking_lot: {hops: [{ports: [a/p0]}, {ports: [b/p0]}], rate: 100Gbps}",
        (
            f"{{switches: [{{name: a, {_SWITCH[1:-1]}}}, {{name: b}}], links: [{{from: a, to: b, rate: 100Gbps}}],"
            " attach: [{port: a/p0, to: a, rate: 100Gbps}]}"
        ),
    ),
    same_as=dict.fromkeys(
        (
            "single.switch",
            "leaf_spine.leaf",
            "leaf_spine.spine",
            "rail.rail",
            "rail.spine",
            "dumbbell.switch",
            "parking_lot.switch",
        ),
        "switches[]",
    ),
    kind=TopologyKeys,
)
SWEEP: Final = Format(
    "sweep",
    "sweep.yaml",
    "which values of a scenario, a rig and a topology are tried, how often, and in which order.",
    lambda text: parse_sweep(text, "sweep.yaml", _HERE),
    (
        "{scenario: s.yaml, axes: {seed: [1], kinds: {a: {seed: 1}}}, set: {seed: 1}, zip: [{seed: [1], iterations: [2]}]}",
        "{scenario: s.yaml, search: {path: seed, from: 1, to: 9}}",
    ),
    {"axes": _ANY_PATH, "axes.*": _LABEL, "axes.*.*": _ANY_PATH, "set": _ANY_PATH, "zip[]": _ANY_PATH},
    kind=Sweep,
)
CONTROLLER: Final = Format(
    "controller",
    "controller.yaml",
    "which rig a rack has, where jobs and results are kept, and which jobs the rack accepts.",
    lambda text: parse_rack_config(text, "controller.yaml", _HERE),
    (
        "{rig: r.yaml, state_dir: s, scenario_root: j}",
        "{rig: r.yaml, state_dir: s, scenario_root: j, mqtt: {tls: {ca: ca.pem}}, http: {port: 9420}, otel: {}}",
    ),
    kind=RackConfig,
)
USERS: Final = Format(
    "users",
    "users.yaml",
    "who may do what in a rack.",
    lambda text: parse_users(text, "users.yaml"),
    ("users: {alice: {role: user}}", "others: {role: viewer}"),
    same_as={"others": "users.*"},
    kind=Users,
)
CARD: Final = Format(
    "card",
    "card.yaml",
    "a modelled network card, which `etloop nic profile --simulated` asks.",
    lambda text: parse_model(text, "card.yaml"),
    ("{line: 10Gbps}",),
    kind=NicModel,
)
RACKS: Final = Format(
    "racks",
    "racks.yaml",
    "the racks that `etloop racks` and `submit --any` choose from.",
    lambda text: parse_racks(text, "racks.yaml", _HERE),
    ("racks: [{name: north, broker: '127.0.0.1:1883', labels: {site: berlin}}]",),
    kind=Racks,
)
FORMATS: Final = (SCENARIO, RIG, TOPOLOGY, SWEEP, CONTROLLER, USERS, RACKS, CARD)

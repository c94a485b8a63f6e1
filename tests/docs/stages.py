"""What the pages need besides what they show, and where their commands are made shorter for a test. No page means nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from tests.support.docs.stage import Stage, Step
from tests.support.sonic import leaf

AGENTS: Final = """\
etloop-agent run --controller {0} --name a --insecure --allow-peers 10.0.0.0/16 > a.log 2>&1 &
etloop-agent run --controller {0} --name b --insecure --allow-peers 10.0.0.0/16 > b.log 2>&1 &
"""
TWO_PORTS: Final = "echo 'single: {ports: [a/p0, b/p0], rate: 100Gbps}' > topology.yaml"

README: Final = Stage(
    before=f"""\
ip address add 192.168.0.10/24 dev lo
for last in 1 2 3 4 5 6 7 8; do ip address add 10.0.1.$last/24 dev lo; ip address add 10.0.2.$last/24 dev lo; done
etloop synth traces/ --layers 1
{TWO_PORTS}
cp topology.yaml t.yaml
""",
    steps={
        "make demo": Step(change={"make demo": "etloop demo --iterations 1"}),
        "etloop run": Step(before=AGENTS.format("tcp://192.168.0.10:7420")),
        "etloop dut check": Step(exits=(65,)),
        "etloop sweep": Step(
            before="""\
printf '%s\\n' 'scenario: scenario.yaml' 'rig: rig.yaml' 'topology: t.yaml' 'repeats: 2' \\
  'axes: {transport.cc.preset: [connectx, paper]}' > sweep.yaml
"""
        ),
        "etloop compare": Step(
            before="cp -r study/points/p000/r000 runs/before; cp -r study/points/p000/r000 runs/after"
        ),
    },
)

LOOPBACK_AGENT: Final = "etloop-agent run --controller tcp://127.0.0.1:7420 --name {0}"
LOOPBACK: Final = "".join(f"{LOOPBACK_AGENT.format(name)} > {name}.log 2>&1 &\n" for name in "ab")
FOUR_PORTS: Final = """\
printf '%s\\n' 'single: {rate: 200Mbps, ports: [a/p0, b/p0, c/p0, d/p0]}' > topology.yaml
"""
SMALL_JOB: Final = """\
etloop synth traces/ --sweep all_reduce --sizes 64KiB-128KiB --ranks {ranks}
printf '%s\\n' 'workload: {{trace: traces/}}' 'mapping: {{placement: round_robin}}' \\
  'transport: {{timeout_floor: 200ms}}' 'limits: {{gather_timeout: 20s}}' > scenario.yaml
"""
TWO_AGENTS: Final = """\
printf '%s\\n' 'security: {insecure: true}' 'agents:' \\
  '- {name: a, ports: [{name: p0, addresses: 127.0.1.1-127.0.1.4, link: 100Gbps}]}' \\
  '- {name: b, ports: [{name: p0, addresses: 127.0.2.1-127.0.2.4, link: 100Gbps}]}' > rig.yaml
"""

PASS_OR_MISSED: Final = (0, 30)
VERDICTS: Final = (0, 20, 30)
_HOWEVER_SLOW: Final = Step(change={"lab up": "lab up --allow-overcommit"})
"""Other tests run beside this one, and a lab promises no more than it measured as it came up."""
_SMALL: Final = Step(change={"etloop bench": "etloop bench wire --small --backend udp --queue-pairs 1"})
"""One bench of four for a moment; tests/bench runs them all."""

NAMES: Final = "echo 127.0.0.1 localhost rack-broker > hosts; mount --bind hosts /etc/hosts\n"
"""The broker of the pages is this machine, for as long as the page runs."""

_ENDED: Final = "$(ls examples/laptop/state/artifacts | head -1)"
"""A job of the laptop's rack that has ended."""
RACK: Final = Stage(
    before=NAMES + "cp examples/laptop/scenario.yaml S.yaml",
    steps={
        "etloop controller": Step(stays="broker joined"),
        "etloop-agent run": Step(stays="agent a"),
        "etloop submit examples": Step(before=LOOPBACK_AGENT.format("b > b.log 2>&1 &")),
        "etloop rack hold": Step(
            before="etloop submit S.yaml --label suite=nightly > job", change={"JOB": "$(cat job)"}
        ),
        "etloop rack priority": Step(change={"JOB": "$(cat job)"}),
        "etloop rack requeue": Step(change={"JOB": _ENDED}),
        "etloop rack reserve a": Step(
            change={
                "2026-11-24T08:00Z": "$(date -ud '1 day' +%FT%RZ)",
                "2026-11-24T18:00Z": "$(date -ud '2 days' +%FT%RZ)",
            }
        ),
        "etloop rack reserve b": Step(change={"2026-11-24T18:00": "$(date -d '1 day' +%FT%R)"}),
        "etloop rack unreserve": Step(
            change={"unreserve ID": "unreserve $(etloop rack status | awk '/^reservation/ {print $2}')"}
        ),
        "etloop submit --list": Step(before="etloop rack resume"),
        "etloop jobs --config": Step(change={"controller.yaml": "examples/laptop/controller.yaml"}),
        "etloop jobs --state-dir": Step(change={"DIR": "examples/laptop/state", "JOB": _ENDED}),
        "etloop rack fetch": Step(change={"JOB": _ENDED}),
        "curl -O": Step(change={"JOB": _ENDED}),
    },
)

PYTEST: Final = Stage(
    before=NAMES
    + """\
etloop synth job --sweep all_reduce --sizes 64KiB-128KiB --ranks 4
printf '%s\\n' 'workload: {trace: job}' 'mapping: {ranks_per_host: 2}' 'limits: {gather_timeout: 20s}' > scenario.yaml
"""
    + TWO_AGENTS
    + "echo 'controller: {bind: \"tcp://127.0.0.1:7422\"}' >> rig.yaml\n"
    + TWO_PORTS,
    steps={
        "import etloop": Step(writes="test_switch.py"),
        # A lab of this host has port 7420.
        "pytest test_switch.py": Step(
            before=LOOPBACK.replace("7420", "7422"), change={"pytest": "pytest -p no:cacheprovider"}
        ),
        "def test_the_switch_carries": Step(writes="test_rack.py"),
        "pytest test_rack.py": Step(
            before="""\
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=rack-broker -addext subjectAltName=DNS:rack-broker \
  -keyout ca.key -out ca.pem
chmod 644 ca.key
printf 'open sesame' > secret; chmod 600 secret
mosquitto_passwd -b -c passwords automation 'open sesame'; chmod 644 passwords
printf '%s\\n' 'listener 8883' 'allow_anonymous false' "password_file $PWD/passwords" "certfile $PWD/ca.pem" \\
  "keyfile $PWD/ca.key" 'user root' > mosquitto.conf
mosquitto -c mosquitto.conf > mosquitto.log 2>&1 &
etloop synth jobs/traces --sweep all_reduce --sizes 64KiB-128KiB --ranks 4
printf '%s\\n' 'workload: {trace: traces}' 'mapping: {placement: round_robin}' > all_reduce.yaml
sed 's/7420/7421/' examples/loopback/rig.yaml > other.yaml
printf '%s\\n' 'rack: rack1' 'rig: other.yaml' 'state_dir: state' 'scenario_root: jobs' 'limits: {free_disk: 1MiB}' \\
  'mqtt: {host: rack-broker, port: 8883, username: automation, password_file: secret, tls: {ca: ca.pem}}' > rack1.yaml
for name in a b; do etloop-agent run --controller tcp://127.0.0.1:7421 --name $name > $name.log 2>&1 & done
etloop controller --config rack1.yaml > rack1.log 2>&1 &
for glance in $(seq 200); do grep -q 'broker joined' rack1.log && break; sleep 0.05; done
sed -i '1i from pathlib import Path' test_rack.py
""",
            change={"pytest": "pytest -p no:cacheprovider"},
        ),
    },
)

RACKS: Final = Stage(
    before="""\
cp examples/laptop/scenario.yaml .
etloop synth examples/laptop/traces/job --layers 1
sed 's/7420/7421/' examples/loopback/rig.yaml > south.yaml
printf '%s\\n' 'rig: south.yaml' 'state_dir: south' 'scenario_root: examples/laptop/traces' 'limits: {free_disk: 1MiB}' \
  'mqtt: {port: 1884}' > controller.yaml
etloop controller --config examples/laptop/controller.yaml --embedded-broker > north.log 2>&1 &
etloop controller --config controller.yaml --embedded-broker > south.log 2>&1 &
for port in 7420 7421; do for name in a b; do
  etloop-agent run --controller tcp://127.0.0.1:$port --name $name > $port-$name.log 2>&1 &
done; done
for glance in $(seq 60); do
  etloop racks status --racks racks.yaml > status && ! grep -q absent status && break
  sleep 0.2
done
""",
    steps={
        "etloop rack cancel --label suite=nightly --state queued --racks racks.yaml --dry-run": Step(
            before="etloop rack pause --rack south; etloop submit scenario.yaml --rack south --label suite=nightly"
        ),
        "etloop racks serve": Step(stays="serving 2 racks"),
    },
)

STAGES: Final = {
    "README.md": README,
    "docs/benchmarks.md": Stage(
        steps={
            "etloop bench  ": _SMALL,
            "etloop bench wire --seconds": Step(
                change={"etloop bench": "etloop bench --small --backend udp --queue-pairs 1"}
            ),
            "etloop bench wire --backend": Step(change={"etloop bench": "etloop bench --small"}),
            "etloop bench wire --kind": Step(
                change={"etloop bench": "etloop bench --small --backend packet --queue-pairs 1"}
            ),
            "etloop bench --json": _SMALL,
            "etloop bench pacing --realtime  ": Step(
                change={"etloop bench": "etloop bench --small --backend udp"}
            ),
            "etloop bench pacing --realtime --clear": Step(
                change={"etloop bench": "etloop bench --small --backend udp"}, exits=PASS_OR_MISSED
            ),
            "etloop bench --check": replace(_SMALL, exits=PASS_OR_MISSED),
            "etloop bench --small": _SMALL,
        }
    ),
    "docs/closed_forms.md": Stage(),
    "docs/collective-benchmark.md": Stage(
        before=TWO_AGENTS,
        steps={
            "etloop collective all_reduce --loopback": Step(change={"-e 4M": "-e 64K"}),
            "etloop collective all_reduce,alltoall": Step(before=LOOPBACK, change={"-e 1G": "-e 2M"}),
        },
    ),
    "docs/congestion_control.md": Stage(
        before=TWO_AGENTS
        + TWO_PORTS
        + """
etloop synth traces/ --sweep all_reduce --sizes 1MiB-2MiB --ranks 2
sed -i '$a mapping: {placement: round_robin}' scenario.yaml
etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml --out run1
"""
    ),
    "docs/counters.md": Stage(
        before=SMALL_JOB.format(ranks=4)
        + FOUR_PORTS
        + "etloop lab up topology.yaml --allow-overcommit --rig-out rig.yaml --agents",
        steps={"etloop dut counters --rig rig.yaml --watch": Step(until="that moved")},
    ),
    "docs/device.md": Stage(before=SMALL_JOB.format(ranks=4) + TWO_AGENTS + TWO_PORTS),
    "docs/experiments.md": Stage(
        before=SMALL_JOB.format(ranks=4)
        + TWO_AGENTS
        + TWO_PORTS
        + """
sed -i 's/rate: 100Gbps/rate: 200Mbps/' topology.yaml
sed -i 's/iterations: 20/iterations: 2/' sweep.yaml
mkdir job; cp -r traces job/small; cp -r traces job/large
""",
        steps={
            "etloop sweep sweep.yaml --twin": Step(change={"--twin": "--twin --repeats 1"}),
            "etloop sweep sweep.yaml --lab": Step(
                before="""\
printf '%s\\n' 'scenario: scenario.yaml' 'topology: topology.yaml' 'rig: rig.yaml' 'repeats: 1' \\
  'set: {iterations: 2}' 'axes: {transport.cc.preset: [connectx, paper]}' > short.yaml
""",
                change={"sweep.yaml --lab": "short.yaml --lab --allow-overcommit"},
            ),
            "etloop sweep sweep.yaml --rig": Step(before=LOOPBACK, change={"sweep.yaml": "short.yaml"}),
            "etloop sweep sweep.yaml --out": Step(change={"--resume": "--twin --repeats 1 --resume"}),
            "etloop compare": Step(exits=VERDICTS),
        },
    ),
    "docs/credibility.md": Stage(
        before="""\
printf '%s\\n' 'workload: {incast: {senders: 3, size: 1MiB}}' 'transport: {kind: uet}' > scenario.yaml
echo 'single: {ports: [a/p, b/p, c/p, d/p], rate: 100Gbps, switch: {preset: lossy}}' > topology.yaml
""",
        steps={
            "etloop compare": Step(
                before="""\
awk -F, 'NR > 1 {printf "Flow f flowId %d s 0 finished at %d total\\n", $1 + 1, 300 + $1}' \\
  incast.htsim/messages.csv > incast.htsim/output.txt
"""
            ),
        },
    ),
    "docs/trend.md": Stage(
        before=SMALL_JOB.format(ranks=4)
        + TWO_AGENTS
        + TWO_PORTS
        + """
printf '%s\\n' 'scenario: scenario.yaml' 'topology: topology.yaml' 'rig: rig.yaml' 'repeats: 6' \\
  'order: listed' 'axes: {topology.single.switch.latency: [600ns, 60us]}' > sweep.yaml
etloop sweep sweep.yaml --twin --out runs --jobs 1; mkdir state
""",
        steps={
            "etloop trend runs#1": Step(exits=(30,)),
            "etloop trend runs#2": Step(exits=(30,)),
            "etloop trend state": Step(exits=(20,)),
            "etloop bisect": Step(
                before="""
printf '%s\\n' '#!/bin/sh' 'case $1 in 4.6) latency=60us;; *) latency=600ns;; esac' \\
  'echo "single: {ports: [a/p0, b/p0], rate: 100Gbps, switch: {latency: $latency}}" > topology.yaml' > install.sh
chmod +x install.sh
""",
                exits=(30,),
            ),
        },
    ),
    "docs/installation.md": Stage(),
    "docs/lab.md": Stage(
        before=SMALL_JOB.format(ranks=4),
        steps={
            "etloop lab up topology.yaml --rig-out": _HOWEVER_SLOW,
            "etloop lab exec": Step(change={"-i p0": "-i p0 -a duration:1"}),
            "etloop lab attach topology.yaml --port": Step(
                before="""\
printf '%s\\n' 'single: {rate: 200Mbps, ports: [a/p0, b/p0]}' > two.yaml
for one in 1 2; do ip link add eth$one mtu 4200 type veth peer name far$one mtu 4200; ip link set far$one up; done
""",
                change={"topology.yaml": "two.yaml --allow-overcommit"},
                stays="lab lab",
            ),
            "etloop lab plug": Step(
                before="""\
etloop lab down
for one in a b c d; do ip netns add $one; ip netns exec $one ip link set lo up; done
for one in b c d; do ip netns exec $one etloop lab plug topology.yaml $one --into $$; done
""",
                change={"etloop lab plug": "ip netns exec a etloop lab plug", "1234": "$$"},
            ),
            "etloop lab attach topology.yaml  ": Step(
                change={"topology.yaml": "topology.yaml --allow-overcommit"}, stays="lab lab"
            ),
            "etloop lab up topology.yaml --agents --gnmi": replace(_HOWEVER_SLOW, before="etloop lab down"),
            "etloop lab gnmi": Step(
                before="""\
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab -keyout key.pem -out cert.pem
printf '%s\\n' 'user: etloop' 'password: open sesame' > login.yaml; chmod 600 login.yaml key.pem
""",
                change={"0.0.0.0:9339": "0.0.0.0:9340"},
                stays="9340",
            ),
        },
    ),
    "docs/nic_profile.md": Stage(
        steps={
            "etloop nic compare": Step(exits=(30,)),
            "etloop nic show card/ --conditions": Step(exits=(30,)),
        },
    ),
    "docs/operations.md": Stage(
        before=SMALL_JOB.format(ranks=4)
        + TWO_AGENTS
        + LOOPBACK
        + """
mkdir jobs; mv traces jobs/
printf '%s\\n' 'rig: rig.yaml' 'state_dir: state' 'scenario_root: jobs' 'mqtt: {embedded: true}' \\
  'limits: {free_disk: 1MiB}' > controller.yaml
etloop controller --config controller.yaml > controller.log 2>&1 &
for glance in $(seq 200); do grep -q 'broker joined' controller.log && break; sleep 0.05; done
etloop submit scenario.yaml --wait
"""
    ),
    "docs/ports.md": Stage(
        before="etloop synth examples/loopback/job --layers 1; cp examples/loopback/rig.yaml two.yaml",
        steps={
            "etloop-agent run": Step(stays="agent a"),
            "etloop capture": Step(
                before=LOOPBACK_AGENT.format("b > b.log 2>&1 &")
                + "\netloop run examples/loopback/scenario.yaml --rig two.yaml --out run1"
            ),
        },
    ),
    "docs/import.md": Stage(before=f"cat > config_db.json <<'END'\n{json.dumps(leaf())}\nEND\n"),
    "docs/profiles.md": Stage(
        before=SMALL_JOB.format(ranks=4)
        + """
cp profile.yaml mine.yaml; cp scenario.yaml s.yaml
printf '%s\\n' 'security: {insecure: true}' \\
  'dut: {profile: loopback, counters: [{reader: linux, ports: {a/p0: lo}}]}' 'agents:' \\
  '- {name: a, ports: [{name: p0, addresses: 127.0.1.1-127.0.1.4, link: 100Gbps}]}' \\
  '- {name: b, ports: [{name: p0, addresses: 127.0.2.1-127.0.2.4, link: 100Gbps}]}' > rig.yaml
cat > infra.yaml <<'END'
name: two-hosts
devices:
- name: host
  components: [{name: xpu, choice: xpu, count: 1}, {name: nic, choice: nic, count: 1}]
  links: [{name: pcie}]
  edges: [{ep1: {component: xpu}, ep2: {component: nic}, scheme: one2one, link: pcie}]
- name: leaf
  components: [{name: asic, choice: cpu, count: 1}, {name: port, choice: port, count: 2}]
  links: [{name: chip}]
  edges: [{ep1: {component: asic}, ep2: {component: port}, scheme: many2many, link: chip}]
instances: [{name: host, device: host, count: 2}, {name: leaf, device: leaf, count: 1}]
links: [{name: cable, physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400}}}]
edges:
- {ep1: {instance: "host[0]", component: nic}, ep2: {instance: "leaf[0]", component: "port[0:1]"}, scheme: one2one, link: cable}
- {ep1: {instance: "host[1]", component: nic}, ep2: {instance: "leaf[0]", component: "port[1:2]"}, scheme: one2one, link: cable}
END
""",
        steps={"etloop dut check --rig": Step(exits=(65,))},
    ),
    "docs/python.md": Stage(
        before="""\
etloop synth job --sweep all_reduce --sizes 64KiB-128KiB --ranks 4
printf '%s\\n' 'workload: {trace: job}' 'mapping: {ranks_per_host: 2}' > scenario.yaml
"""
        + TWO_AGENTS
        + TWO_PORTS
    ),
    "docs/pytest.md": PYTEST,
    "docs/scapy.md": Stage(steps={"etloop lab up": _HOWEVER_SLOW}),
    "docs/rack.md": RACK,
    "docs/racks.md": RACKS,
    "docs/rack-api/README.md": Stage(
        before=NAMES
        + TWO_AGENTS
        + SMALL_JOB.format(ranks=4)
        + """
mkdir jobs; mv traces jobs/
printf '%s\\n' 'rack: rack1' 'rig: rig.yaml' 'state_dir: state' 'scenario_root: jobs' \\
  'mqtt: {embedded: true}' 'limits: {free_disk: 1MiB}' > controller.yaml
"""
        + LOOPBACK
        + """
etloop controller --config controller.yaml > controller.log 2>&1 &
for glance in $(seq 200); do grep -q 'broker joined' controller.log && break; sleep 0.05; done
""",
        steps={
            "from etloop": Step(change={"scenario_text": 'open("scenario.yaml").read()'}),
            "mosquitto_sub": Step(until="etloop/v1/rack1/controller/status"),
        },
    ),
    "docs/reference/README.md": Stage(),
    "docs/running.md": Stage(
        steps={
            "tshark": Step(change={"eth1": "lo -a duration:1"}),
            "etloop run case": Step(before="cp examples/loopback/rig.yaml mine.yaml"),
        }
    ),
    "docs/run-directory.md": Stage(),
    "docs/start/congestion-control.md": Stage(
        steps={
            "etloop compare": Step(exits=VERDICTS),
            "etloop lab up": _HOWEVER_SLOW,
            "etloop run": Step(exits=VERDICTS),
            "etloop sweep": Step(change={"--twin": "--twin --repeats 1"}),
        }
    ),
    "docs/start/lab.md": Stage(
        steps={
            "etloop lab up": _HOWEVER_SLOW,
            "etloop run": Step(exits=VERDICTS),
            "etloop twin scenario.yaml --rig rig.yaml --topology lossy.yaml": Step(exits=(30,)),
            "etloop compare": Step(exits=(30,)),
        }
    ),
    "docs/start/nic.md": Stage(),
    "docs/mrc.md": Stage(),
    "docs/uet.md": Stage(),
    "docs/traces.md": Stage(before="etloop synth traces/ --layers 1"),
    "docs/trimming.md": Stage(),
    "docs/start/switch.md": Stage(steps={"etloop dut check": Step(exits=(65,))}),
    "examples/flows/README.md": Stage(
        directory="examples/flows",
        steps={
            "etloop lab up": _HOWEVER_SLOW,
            "etloop sweep": Step(
                before="sed -i 's/count: 600/count: 60/' scenario.yaml",
                change={"--twin": "--twin --repeats 1"},
            ),
        },
    ),
    "docs/serving.md": Stage(),
    "docs/start/serving.md": Stage(),
    "docs/twin-server.md": Stage(),
    "examples/twin_client/README.md": Stage(directory="examples/twin_client"),
    "examples/interference/README.md": Stage(
        directory="examples/interference",
        steps={
            "etloop lab up": _HOWEVER_SLOW,
            "etloop run": Step(before="sed -i 's/^rounds: 10/rounds: 1/' scenario.yaml"),
        },
    ),
    "examples/bmwg/README.md": Stage(
        directory="examples/bmwg", steps={"etloop sweep": Step(change={"--twin": "--twin --repeats 1"})}
    ),
    "examples/bmwg_inference/README.md": Stage(directory="examples/bmwg_inference"),
    "examples/congestion_control/README.md": Stage(
        steps={
            "etloop sweep examples/congestion_control/lab_sweep.yaml": Step(
                before="""\
sed -e 's/repeats: 5/repeats: 1/' -e 's/iterations: 6/iterations: 1/' -e '/^    paper:/,$d' \
  examples/congestion_control/lab_sweep.yaml > examples/congestion_control/short.yaml
""",
                change={"lab_sweep.yaml --lab": "short.yaml --lab --allow-overcommit"},
            ),
        }
    ),
}

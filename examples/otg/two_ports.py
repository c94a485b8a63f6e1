"""A client of `etloop otg serve` without packages: one flow between two ports, by the JSON that snappi sends.

    etloop otg serve --rig rig.yaml --messages 100
    python two_ports.py                          # or: python two_ports.py https://localhost:8443 198.18.1.1 198.18.2.1

Ports are a/p0 and b/p0 of the rig; the addresses are theirs. Exits with 1 unless every message arrived and no frame is missing.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
import urllib.request
from typing import Any

URL, *ADDRESSES = sys.argv[1:] or ["https://localhost:8443"]
ADDRESSES = ADDRESSES or ["198.18.1.1", "198.18.2.1"]
CONTEXT = ssl.create_default_context()
CONTEXT.check_hostname = False
CONTEXT.verify_mode = ssl.CERT_NONE
POLL_S = 0.2
MOST_POLLS = 300


def ask(path: str, body: object) -> Any:
    """Return the answer to a POST. The server's certificate is self-signed."""
    request = urllib.request.Request(  # noqa: S310 - the URL is the user's
        URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, context=CONTEXT, timeout=60) as answer:  # noqa: S310 - as above
        return json.load(answer)


def device(index: int) -> dict[str, Any]:
    """Return a device on port `index` with a queue pair to the other one."""
    address = {"name": f"ip{index}", "address": ADDRESSES[index], "gateway": ADDRESSES[1 - index]}
    queue_pair = {
        "qp_name": f"qp{index}",
        "connection_type": {
            "choice": "reliable_connection",
            "reliable_connection": {"dscp": 26, "ecn": "ect_0"},
        },
    }
    peer = {"name": f"peer{index}", "destination_ip_address": ADDRESSES[1 - index], "qps": [queue_pair]}
    return {
        "name": f"device{index}",
        "ethernets": [
            {
                "name": f"eth{index}",
                "connection": {"choice": "port_name", "port_name": f"port{index}"},
                "ipv4_addresses": [address],
            }
        ],
        "rocev2": {"ipv4_interfaces": [{"ipv4_name": f"ip{index}", "ib_mtu": 4096, "peers": [peer]}]},
    }


def config() -> dict[str, Any]:
    """Return a flow of 64 KiB messages at half of the line rate."""
    flow = {
        "name": "flow",
        "tx_endpoint": "qp0",
        "message_size": 64,
        "message_size_unit": "kb",
        "rocev2_verb": {"choice": "write_with_immediate"},
    }
    rate = {"choice": "target_line_rate", "target_line_rate": {"value": "50", "flows": [flow]}}
    return {
        "ports": [{"name": "port0", "location": "a/p0"}, {"name": "port1", "location": "b/p0"}],
        "devices": [device(0), device(1)],
        "stateful_flows": {"rocev2": [{"tx_ports": [{"port_name": "port0", "transmit_type": rate}]}]},
    }


def main() -> int:
    """Run the flow to its end and print its counters."""
    for warning in ask("/config", config())["warnings"]:
        print("warning:", warning)
    ask("/control/state", {"choice": "protocol", "protocol": {"choice": "all", "all": {"state": "start"}}})
    transmit = {"choice": "flow_transmit", "flow_transmit": {"state": "start"}}
    ask("/control/state", {"choice": "traffic", "traffic": transmit})
    for _ in range(MOST_POLLS):
        time.sleep(POLL_S)
        if ask("/monitor/metrics", {"choice": "flow"})["flow_metrics"][0]["transmit"] == "stopped":
            break
    transmit["flow_transmit"] = {"state": "stop"}
    ask("/control/state", {"choice": "traffic", "traffic": transmit})
    answer = ask("/monitor/metrics", {"choice": "rocev2_flow"})
    row = answer["rocev2_flow_per_qp_metrics"][0]
    print(json.dumps(row, indent=1))
    is_whole = row["message_tx"] == row["message_complete_rx"] and row["frame_delta"] == "0"
    return 0 if is_whole and int(row["message_tx"]) else 1


if __name__ == "__main__":
    sys.exit(main())

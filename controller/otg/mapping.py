"""An OTG configuration (API 1.62) on a rig: every field is mapped, clamped with a warning, or refused by its JSON path. Pure.

Sizes in kb, mb and gb are powers of 1,024: OTG leaves it open, and messages of RDMA tests are written that way. A flow is sent
by the port of its queue pair, also where `tx_ports` lists it under another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.rig import RigPort
from etloop.controller.otg.ccl import read_ccl
from etloop.controller.otg.collective_communications import read_communications
from etloop.controller.otg.collective_model import CollectiveJob, Proposal
from etloop.controller.otg.fields import Fields, Notes
from etloop.controller.otg.model import EndlessFlow, OtgTest, PortOptions, QueuePair, Verb
from etloop.controller.otg.options import ECN_NAMES, read_options
from etloop.controller.otg.raw_flows import read_raw_flows

PATH_MTUS: Final = (4096, 2048, 1024, 512, 256)
MESSAGE_UNITS: Final = {"bytes": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
MOST_MESSAGE_BYTES: Final = 1 << 30
"""Larger sends are cut into several messages by the engine."""
LINK_SPEEDS: Final = {
    "speed_10_fd_mbps": 10_000_000,
    "speed_10_hd_mbps": 10_000_000,
    "speed_100_fd_mbps": 100_000_000,
    "speed_100_hd_mbps": 100_000_000,
} | {f"speed_{gbps}_gbps": gbps * 1_000_000_000 for gbps in (1, 10, 25, 40, 50, 100, 200, 400, 800)}
MOST_24_BITS: Final = (1 << 24) - 1
_VERBS: Final = {verb.value: verb for verb in Verb}
_RECEIVES_ONLY: Final = ("0.0.0.0", "::")  # noqa: S104 - OTG's sign for "no destination"; no socket is bound to it


@dataclass(frozen=True, slots=True)
class Interface:
    """An address of a device, and the OTG port that it is reached by."""

    device: str
    ethernet: str
    port: str
    address: str


def map_config(config: object, rig_ports: Mapping[str, RigPort]) -> OtgTest:
    """Return what a decoded configuration means on the ports of a rig, by label ("agent/port").

    Raise `ConfigError` with all problems if any field cannot be mapped.
    """
    notes = Notes()
    root = Fields(config, "$", notes)
    ports = _read_ports(root, rig_ports)
    interfaces: dict[str, Interface] = {}
    devices = root.children("devices")
    for device in devices:
        _read_addresses(device, ports, rig_ports, interfaces)
    queue_pairs: dict[str, QueuePair] = {}
    for device in devices:
        for queue_pair, fields in _read_queue_pairs(device, interfaces):
            if queue_pair.name in queue_pairs:
                fields.refuse("qp_name", f'"{queue_pair.name}" is used twice', "give it another name")
            queue_pairs[queue_pair.name] = queue_pair
        device.refuse_others()
    addresses = {interface.address for interface in interfaces.values()}
    flows = _read_flows(root, ports, rig_ports, queue_pairs, addresses)
    options = _read_all_options(root, ports, rig_ports)
    raw_flows = read_raw_flows(root, ports, rig_ports)
    for flow in raw_flows:
        if flow.name in {stateful.name for stateful in flows}:
            notes.refuse(f"{flow.path}.name", f'"{flow.name}" is used twice', "give it another name")
    captures = _read_captures(root, ports)
    _read_layer1(root, ports, rig_ports)
    collectives = _read_collectives(root, tuple(interfaces.values()), queue_pairs)
    root.refuse_others()
    if notes.problems:
        raise ConfigError(*notes.problems)
    addresses_of_ports = {
        port: tuple(interface.address for interface in interfaces.values() if interface.port == port)
        for port in ports
    }
    return OtgTest(
        ports,
        addresses_of_ports,
        queue_pairs,
        flows,
        options,
        raw_flows,
        captures,
        tuple(notes.warnings),
        collectives,
    )


def _read_collectives(
    root: Fields, interfaces: Sequence[Interface], queue_pairs: Mapping[str, QueuePair]
) -> CollectiveJob | None:
    """Return the job of collectives in either proposal; None if there is none. The first IPv4 address of an owner counts."""
    proposals = [proposal for proposal in Proposal if root.has(proposal.value)]
    if not proposals:
        return None
    if len(proposals) > 1:
        root.refuse(Proposal.CCL.value, "there are collectives in two proposals", "write one of them")
    ipv4 = [
        interface for interface in reversed(interfaces) if interface.address and ":" not in interface.address
    ]
    if proposals[0] is Proposal.CCL:
        return read_ccl(root, {entry.device: (entry.port, entry.address) for entry in ipv4})
    ends = {entry.ethernet: (entry.port, entry.address) for entry in ipv4}
    return read_communications(root, ends, queue_pairs.values())


def _read_ports(root: Fields, rig_ports: Mapping[str, RigPort]) -> dict[str, str]:
    """Return the rig's port of each OTG port, whose location is its label."""
    ports: dict[str, str] = {}
    for fields in root.children("ports"):
        name, location = fields.text("name"), fields.text("location")
        if name in ports:
            fields.refuse("name", f'"{name}" is used twice', "give every port its own name")
        if location not in rig_ports:
            known = ", ".join(list(rig_ports)[:8])
            fields.refuse("location", f'the rig has no port "{location[:64]}"', f"write one of {known}")
        elif location in ports.values():
            fields.refuse("location", f"{location} belongs to another port", "name every port once")
        ports[name] = location
        fields.refuse_others()
    return ports


def _read_captures(root: Fields, ports: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ports that can be captured, each once."""
    names: dict[str, None] = {}
    for fields in root.children("captures"):
        fields.text("name")
        for name in fields.texts("port_names"):
            if name not in ports:
                remedy = "write names of $.ports"
                fields.refuse("port_names", f'no port is named "{name[:64]}"', remedy)
            names[name] = None
        fields.choice("format", ("pcap",), "pcap")
        fields.flag("overwrite", default=True)
        fields.refuse_others()
    return tuple(names)


def _read_layer1(root: Fields, ports: Mapping[str, str], rig_ports: Mapping[str, RigPort]) -> None:
    """Check speeds against the rig. Links are not configured."""
    for fields in root.children("layer1"):
        fields.text("name")
        names = fields.texts("port_names")
        speed = fields.choice("speed", LINK_SPEEDS, "speed_10_gbps") if fields.has("speed") else ""
        for name in names:
            if name not in ports:
                remedy = "write names of $.ports"
                fields.refuse("port_names", f'no port is named "{name[:64]}"', remedy)
                continue
            rig_port = rig_ports.get(ports[name])
            if speed and rig_port is not None and rig_port.link_bps != LINK_SPEEDS[speed]:
                problem = f"{ports[name]} has a link of {rig_port.link_bps} bit/s in the rig"
                fields.refuse("speed", problem, "write the speed of the link, or leave it out")
        effect = "links are those of the agents' hosts"
        fields.skip("promiscuous", "ieee_media_defaults", "auto_negotiate")
        if fields.integer("mtu", 64, 14_000, 1500) != 1500:
            fields.warn("mtu", f"has no effect: {effect}")
        fields.ignore(auto_negotiation=effect, flow_control=effect, media=effect)
        fields.refuse_others()


def _read_addresses(
    device: Fields, ports: dict[str, str], rig_ports: Mapping[str, RigPort], interfaces: dict[str, Interface]
) -> None:
    """Add the IPv4 and IPv6 addresses of a device to `interfaces`, by name. Each must be one of the rig's port."""
    device_name = device.text("name")
    for ethernet in device.children("ethernets"):
        connection = ethernet.child("connection")
        connection.choice("choice", ("port_name",), "port_name")
        port = _known_port(connection, ports)
        ethernet_name = ethernet.text("name")
        ethernet.integer("mtu", 0, 16_384, 1500)
        ethernet.ignore(mac="frames have the MAC address of the agent's interface")
        for key in ("ipv4_addresses", "ipv6_addresses"):
            for fields in ethernet.children(key):
                name, address = fields.text("name"), _read_address(fields, "address")
                fields.integer("prefix", 1, 128, 24)
                fields.ignore(gateway="the routes of the agent's host apply")
                if name in interfaces:
                    fields.refuse("name", f'"{name}" is used twice', "give every address its own name")
                rig_port = rig_ports.get(ports.get(port, ""))
                if address and rig_port is not None and address not in rig_port.addresses:
                    remedy = f"write one of its addresses, such as {rig_port.addresses[0]}"
                    fields.refuse("address", f"{address} is not an address of {ports[port]}", remedy)
                interfaces[name] = Interface(device_name, ethernet_name, port, address)
                fields.ignore(gateway_mac="the agent's host resolves its neighbours")
                fields.refuse_others()
        connection.refuse_others()
        ethernet.refuse_others()


def _read_address(fields: Fields, key: str) -> str:
    """Return an address in its canonical form; empty if it cannot be parsed."""
    text = fields.text(key)
    try:
        return str(ip_address(text))
    except ValueError:
        fields.refuse(key, f'"{text[:64]}" is not an address', "write an IPv4 or IPv6 address")
        return ""


def _known_port(fields: Fields, ports: Mapping[str, str]) -> str:
    """Return `port_name`, and refuse a name that the configuration does not have."""
    name = fields.text("port_name")
    if name not in ports:
        fields.refuse("port_name", f'no port is named "{name[:64]}"', "write the name of one of $.ports")
    return name


def _read_queue_pairs(
    device: Fields, interfaces: Mapping[str, Interface]
) -> Iterator[tuple[QueuePair, Fields]]:
    """Yield the queue pairs of a device, each with its fields."""
    rocev2 = device.child("rocev2")
    for key, name_key in (("ipv4_interfaces", "ipv4_name"), ("ipv6_interfaces", "ipv6_name")):
        for fields in rocev2.children(key):
            name = fields.text(name_key)
            interface = interfaces.get(name)
            path_mtu_bytes = _read_path_mtu(fields)
            if interface is None:
                fields.refuse(name_key, f'no address is named "{name[:64]}"', "write the name of an address")
                interface = Interface("", "", "", "")
            for peer in fields.children("peers"):
                peer_name, destination = peer.text("name"), _read_address(peer, "destination_ip_address")
                destination = "" if destination in _RECEIVES_ONLY else destination
                for queue_pair in peer.children("qps"):
                    yield (
                        _read_queue_pair(queue_pair, interface, peer_name, destination, path_mtu_bytes),
                        queue_pair,
                    )
                peer.refuse_others()
            fields.refuse_others()
    rocev2.refuse_others()


def _read_path_mtu(fields: Fields) -> int:
    """Return the largest path MTU of InfiniBand that `ib_mtu` has room for."""
    ib_mtu_bytes = fields.integer("ib_mtu", 0, 14_000, 1024)
    path_mtu_bytes = next((size for size in PATH_MTUS if size <= ib_mtu_bytes), PATH_MTUS[-1])
    if path_mtu_bytes != ib_mtu_bytes:
        fields.warn("ib_mtu", f"{ib_mtu_bytes} is clamped to {path_mtu_bytes}, a path MTU of InfiniBand")
    return path_mtu_bytes


def _read_queue_pair(
    fields: Fields, interface: Interface, peer: str, destination: str, path_mtu_bytes: int
) -> QueuePair:
    """Return a queue pair of a reliable connection."""
    connection_type = fields.child("connection_type")
    connection_type.choice("choice", ("reliable_connection",), "reliable_connection")
    settings = connection_type.child("reliable_connection")
    queue_pair = QueuePair(
        name=fields.text("qp_name"),
        device=interface.device,
        peer=peer,
        port=interface.port,
        source=interface.address,
        destination=destination,
        number=settings.integer("source_qp_number", 2, MOST_24_BITS, 2),
        initial_psn=settings.integer("initial_psn", 0, MOST_24_BITS, 0),
        udp_source_port=settings.integer("udp_source_port", 1, 65_535, 49_152),
        path_mtu_bytes=path_mtu_bytes,
        dscp=settings.integer("dscp", 0, 63, 24),
        ecn=ECN_NAMES[settings.choice("ecn", ECN_NAMES, "ect_1")],
    )
    # The receiver registers its own memory; snappi writes out the defaults, which ask for nothing.
    for key in ("virtual_address", "remote_key"):
        if settings.text(key, "0").strip("0"):
            settings.warn(key, "has no effect: agents exchange the key and address of their memory")
    for part in (settings, connection_type, fields):
        part.refuse_others()
    return queue_pair


def _read_flows(
    root: Fields,
    ports: Mapping[str, str],
    rig_ports: Mapping[str, RigPort],
    queue_pairs: Mapping[str, QueuePair],
    addresses: Collection[str],
) -> tuple[EndlessFlow, ...]:
    """Return the stateful flows. The line rate of a port is divided by the flows listed under it."""
    stateful = root.child("stateful_flows")
    stateful.choice("choice", {"rocev2": None}, "rocev2")
    flows: list[EndlessFlow] = []
    names: set[str] = set()
    for group in stateful.children("rocev2"):
        for tx_port in group.children("tx_ports"):
            port = _known_port(tx_port, ports)
            transmit_type = tx_port.child("transmit_type")
            transmit_type.choice("choice", ("target_line_rate",), "target_line_rate")
            line_rate = transmit_type.child("target_line_rate")
            percent = line_rate.number("value", 0, 100, 98)
            entries = line_rate.children("flows")
            rig_port = rig_ports.get(ports.get(port, ""))
            port_rate_bps = round(percent * rig_port.link_bps / 100) if rig_port is not None else 0
            for fields in entries:
                flow = _read_flow(fields, port, port_rate_bps // len(entries), queue_pairs, addresses)
                if flow.name in names:
                    fields.refuse("name", f'"{flow.name}" is used twice', "give every flow its own name")
                names.add(flow.name)
                # sonic-mgmt gives flows to ports that only receive; a generator has none to send there.
                queue_pair = queue_pairs.get(flow.queue_pair)
                if queue_pair is None or queue_pair.destination:
                    flows.append(flow)
            for part in (line_rate, transmit_type, tx_port):
                part.refuse_others()
        group.refuse_others()
    stateful.refuse_others()
    return tuple(flows)


def _read_flow(
    fields: Fields,
    port: str,
    rate_bps: int,
    queue_pairs: Mapping[str, QueuePair],
    addresses: Collection[str],
) -> EndlessFlow:
    """Return a flow of the queue pair that its `tx_endpoint` names."""
    name, endpoint = fields.text("name"), fields.text("tx_endpoint")
    queue_pair = queue_pairs.get(endpoint)
    if queue_pair is None:
        fields.refuse("tx_endpoint", f'no queue pair is named "{endpoint[:64]}"', "write a qp_name")
    elif not queue_pair.destination:
        fields.warn("tx_endpoint", f"{endpoint} has no destination: its flow is left out")
    elif queue_pair.destination not in addresses:
        remedy = "write the address of a device as destination_ip_address of its peer"
        fields.refuse("tx_endpoint", f"no device has address {queue_pair.destination}", remedy)
    elif queue_pair.port != port:
        fields.warn("tx_endpoint", f"{endpoint} sends on port {queue_pair.port}, not on {port}")
    receiver = fields.text("rx_endpoint", "")
    if receiver and receiver not in queue_pairs:
        fields.refuse("rx_endpoint", f'no queue pair is named "{receiver[:64]}"', "write a qp_name")
    verb_fields = fields.child("rocev2_verb")
    verb = _VERBS[verb_fields.choice("choice", _VERBS, Verb.WRITE.value)]
    immediate = _read_immediate(verb_fields, verb)
    unit_bytes = MESSAGE_UNITS[fields.choice("message_size_unit", MESSAGE_UNITS, "mb")]
    message_bytes = fields.integer("message_size", 1, 65_535, 1) * unit_bytes
    if message_bytes > MOST_MESSAGE_BYTES:
        fields.refuse(
            "message_size", f"{message_bytes} bytes are more than one message", "write at most 1 gb"
        )
    verb_fields.refuse_others()
    fields.refuse_others()
    return EndlessFlow(name, endpoint, verb, immediate, message_bytes, rate_bps, fields.path)


def _read_immediate(verb_fields: Fields, verb: Verb) -> int:
    """Return the immediate data of a verb that has it, up to eight hexadecimal digits."""
    if verb not in (Verb.WRITE_WITH_IMMEDIATE, Verb.SEND_WITH_IMMEDIATE):
        return 0
    fields = verb_fields.child(verb.value)
    text = fields.text("immediate_data", "0")
    fields.refuse_others()
    if len(text) <= 8 and all(digit in "0123456789abcdefABCDEF" for digit in text):
        return int(text, 16)
    fields.refuse("immediate_data", f'"{text[:64]}" is not hexadecimal', "write one to eight digits")
    return 0


def _read_all_options(
    root: Fields, ports: Mapping[str, str], rig_ports: Mapping[str, RigPort]
) -> dict[str, PortOptions]:
    """Return the RoCEv2 options of each port that has any."""
    options = root.child("options")
    by_port: dict[str, PortOptions] = {}
    for fields in options.children("per_port_options"):
        port = _known_port(fields, ports)
        rig_port = rig_ports.get(ports.get(port, ""))
        for protocol in fields.children("protocols"):
            if port in by_port:
                fields.refuse("port_name", f"{port} has RoCEv2 options twice", "remove one of them")
            by_port[port] = read_options(protocol, rig_port.link_bps if rig_port is not None else 0)
        fields.refuse_others()
    options.refuse_others()
    return by_port

"""Raw flows of an OTG configuration -> frames, rates and counts. Pure.

Headers are Ethernet, VLAN tags, IPv4 or IPv6, TCP or UDP, in this order. Fields take one value, a list, or an increment or
decrement. Sizes count the FCS. Everything else is refused by its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from etloop.contract.base.clock import NS_PER_S, NS_PER_US
from etloop.contract.model.frame_streams import MOST_FRAME_BYTES, MOST_FRAMES
from etloop.controller.inputs.rig import RigPort
from etloop.controller.otg.fields import Fields
from etloop.controller.otg.frames import (
    FieldValues,
    Header,
    HeaderKind,
    build_frame,
    cycle_frames,
    headers_bytes,
    least_size_bytes,
)
from etloop.controller.otg.model import RawFlow

LEAST_SIZE_BYTES: Final = 64
MOST_SIZE_BYTES: Final = 9216
MOST_RAW_FLOWS: Final = 256
LINE_OVERHEAD_BYTES: Final = 20
"""Preamble and gap of a frame on the line."""
_MOST_RATE: Final = 1_000_000_000_000
_MOST_COUNT: Final = 1 << 40
_MAC_DIGITS: Final = 12

_AUTO: Final = None
_HEADERS: Final[dict[HeaderKind, tuple[tuple[str, int, int | None], ...]]] = {
    HeaderKind.ETHERNET: (("dst", 48, 0), ("src", 48, 0), ("ether_type", 16, _AUTO)),
    HeaderKind.VLAN: (("priority", 3, 0), ("cfi", 1, 0), ("id", 12, 1), ("ether_type", 16, _AUTO)),
    HeaderKind.IPV4: (
        ("version", 4, 4),
        ("header_length", 4, 5),
        ("priority", 8, 0),
        ("total_length", 16, _AUTO),
        ("identification", 16, 0),
        ("reserved", 1, 0),
        ("dont_fragment", 1, 0),
        ("more_fragments", 1, 0),
        ("fragment_offset", 13, 0),
        ("time_to_live", 8, 64),
        ("protocol", 8, _AUTO),
        ("header_checksum", 16, _AUTO),
        ("src", 32, 0),
        ("dst", 32, 0),
    ),
    HeaderKind.IPV6: (
        ("version", 4, 6),
        ("traffic_class", 8, 0),
        ("flow_label", 20, 0),
        ("payload_length", 16, _AUTO),
        ("next_header", 8, _AUTO),
        ("hop_limit", 8, 64),
        ("src", 128, 0),
        ("dst", 128, 0),
    ),
    HeaderKind.UDP: (
        ("src_port", 16, 0),
        ("dst_port", 16, 0),
        ("length", 16, _AUTO),
        ("checksum", 16, _AUTO),
    ),
    HeaderKind.TCP: (
        ("src_port", 16, 0),
        ("dst_port", 16, 0),
        ("seq_num", 32, 0),
        ("ack_num", 32, 0),
        ("data_offset", 4, 5),
        ("reserved", 3, 0),
        ("ecn_ns", 1, 0),
        ("ecn_cwr", 1, 0),
        ("ecn_echo", 1, 0),
        ("ctl_urg", 1, 0),
        ("ctl_ack", 1, 0),
        ("ctl_psh", 1, 0),
        ("ctl_rst", 1, 0),
        ("ctl_syn", 1, 0),
        ("ctl_fin", 1, 0),
        ("window", 16, 0),
        ("checksum", 16, _AUTO),
        ("urgent", 16, 0),
    ),
}
"""Fields of each header in the order of the wire: OTG's name, bits, default; None: computed."""
_FOLLOWERS: Final = {
    None: (HeaderKind.ETHERNET,),
    HeaderKind.ETHERNET: (HeaderKind.VLAN, HeaderKind.IPV4, HeaderKind.IPV6),
    HeaderKind.VLAN: (HeaderKind.VLAN, HeaderKind.IPV4, HeaderKind.IPV6),
    HeaderKind.IPV4: (HeaderKind.UDP, HeaderKind.TCP),
    HeaderKind.IPV6: (HeaderKind.UDP, HeaderKind.TCP),
    HeaderKind.UDP: (),
    HeaderKind.TCP: (),
}
_ADDRESSES: Final = {HeaderKind.IPV4: IPv4Address, HeaderKind.IPV6: IPv6Address}
_RATES: Final = {"bps": 1, "kbps": 1000, "mbps": 1_000_000, "gbps": 1_000_000_000}


def read_raw_flows(
    root: Fields, ports: Mapping[str, str], rig_ports: Mapping[str, RigPort]
) -> tuple[RawFlow, ...]:
    """Return the raw flows of a configuration, numbered in their order."""
    flows: list[RawFlow] = []
    names: set[str] = set()
    entries = root.children("flows")
    if len(entries) > MOST_RAW_FLOWS:
        root.refuse("flows", f"{len(entries)} raw flows are more than {MOST_RAW_FLOWS}", "remove some")
        return ()
    room = MOST_FRAMES
    for number, fields in enumerate(entries):
        flow = _read_flow(fields, number, ports, rig_ports, room)
        room -= len(flow.frames)
        if flow.name in names:
            fields.refuse("name", f'"{flow.name}" is used twice', "give every flow its own name")
        names.add(flow.name)
        flows.append(flow)
    return tuple(flows)


def _read_flow(
    fields: Fields, number: int, ports: Mapping[str, str], rig_ports: Mapping[str, RigPort], room: int
) -> RawFlow:
    """Return a flow of at most `room` distinct frames, or of one."""
    name = fields.text("name")
    tx_port, rx_ports = _read_ends(fields, ports)
    headers = _read_headers(fields)
    sizes = _read_sizes(fields, least_size_bytes(headers))
    frames = cycle_frames(headers, sizes)
    if frames > max(room, 1) or frames * max(sizes) > MOST_FRAME_BYTES:
        problem = f"its fields and sizes repeat after {frames} frames of up to {max(sizes)} bytes"
        remedy = f"use counts with smaller common multiples: {MOST_FRAMES} frames in all flows, 4 MiB in each"
        fields.refuse("packet", problem, remedy)
        frames = 1
    cycle_bytes = sum(sizes[index % len(sizes)] for index in range(frames))
    rig_port = rig_ports.get(ports.get(tx_port, ""))
    link_bps = rig_port.link_bps if rig_port is not None else 0
    cycle_ns = _read_rate(fields, frames, cycle_bytes, link_bps)
    count, delay_ns = _read_duration(fields, frames, cycle_ns)
    has_latency = _read_metrics(fields)
    _warn_of_foreign_destinations(
        fields, headers, [rig_ports[ports[port]] for port in rx_ports if ports.get(port) in rig_ports]
    )
    fields.refuse_others()
    return RawFlow(
        name=name,
        number=number,
        tx_port=tx_port,
        rx_ports=rx_ports,
        signature_at=headers_bytes(headers),
        frames=tuple(
            build_frame(headers, index, sizes[index % len(sizes)], number) for index in range(frames)
        ),
        cycle_ns=cycle_ns,
        count=count,
        delay_ns=delay_ns,
        has_latency=has_latency,
        path=fields.path,
    )


def _warn_of_foreign_destinations(
    fields: Fields, headers: Sequence[Header], receivers: Sequence[RigPort]
) -> None:
    """Warn of a destination that no receiving port has: switches of a lab forward by the addresses of the rig."""
    addresses = {ip_address(address) for port in receivers for address in port.addresses}
    for header in headers:
        if header.kind not in _ADDRESSES or not addresses:
            continue
        to_address = _ADDRESSES[header.kind]
        (values,) = (field.values for field in header.fields if field.key == "dst")
        foreign = [address for address in map(to_address, values) if address not in addresses]
        if foreign:
            known = ", ".join(sorted(map(str, addresses)))
            problem = f"{foreign[0]} is not an address of a receiving port ({known})"
            fields.warn("packet", f"{problem}; unless the device forwards it there, it counts as lost")


def _read_ends(fields: Fields, ports: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the sending port and the receiving ones."""
    ends = fields.child("tx_rx")
    ends.choice("choice", ("port",), "port")
    port = ends.child("port")
    tx_port = port.text("tx_name")
    single = port.text("rx_name", "")
    rx_ports = port.texts("rx_names") or ((single,) if single else ())
    for key, name in (("tx_name", tx_port), *(("rx_names", name) for name in rx_ports)):
        if name not in ports:
            port.refuse(key, f'no port is named "{name[:64]}"', "write the name of one of $.ports")
    if not rx_ports:
        port.refuse("rx_names", "names no port", "name the ports that receive the flow")
    port.refuse_others()
    ends.refuse_others()
    return tx_port, rx_ports


def _read_headers(fields: Fields) -> list[Header]:
    headers: list[Header] = []
    before: HeaderKind | None = None
    for entry in fields.children("packet"):
        word = entry.choice("choice", [kind.value for kind in HeaderKind], HeaderKind.ETHERNET.value)
        kind = HeaderKind(word)
        if kind not in _FOLLOWERS[before]:
            place = f"behind {before.value}" if before is not None else "in front"
            entry.refuse("choice", f"{word} cannot be {place}", "write ethernet, vlan, IP, then udp or tcp")
            return headers or [_header_of(HeaderKind.ETHERNET, entry.child(word))]
        header = entry.child(word)
        headers.append(_header_of(kind, header))
        header.refuse_others()
        entry.refuse_others()
        before = kind
    return headers or [_header_of(HeaderKind.ETHERNET, fields.child("ethernet"))]


def _header_of(kind: HeaderKind, fields: Fields) -> Header:
    values: list[FieldValues] = []
    for key, bits, default in _HEADERS[kind]:
        if (kind, key) == (HeaderKind.IPV4, "priority"):
            values += _read_priority(fields)
        else:
            values.append(FieldValues(key, bits, _read_pattern(fields, key, bits, default)))
    if kind is HeaderKind.ETHERNET and any(_read_pattern(fields, "pfc_queue", 8, 0)):
        fields.refuse("pfc_queue", "priority flow control of raw flows is not offered", "write 0")
    if kind is HeaderKind.VLAN:
        # Part of the header before it; without bits here.
        values.append(FieldValues("tpid", 0, _read_pattern(fields, "tpid", 16, 0x8100)[:1]))
        return Header(kind, tuple(values))
    return Header(kind, tuple(values))


def _read_priority(fields: Fields) -> list[FieldValues]:
    """Return DSCP and ECN of an IPv4 header."""
    priority = fields.child("priority")
    choice = priority.choice("choice", ("raw", "dscp"), "dscp")
    if choice == "raw":
        raw = FieldValues("raw", 8, _read_pattern(priority, "raw", 8, 0))
        priority.refuse_others()
        return [raw]
    dscp = priority.child("dscp")
    values = [
        FieldValues("phb", 6, _read_pattern(dscp, "phb", 6, 0)),
        FieldValues("ecn", 2, _read_pattern(dscp, "ecn", 2, 0)),
    ]
    dscp.refuse_others()
    priority.refuse_others()
    return values


def _read_pattern(fields: Fields, key: str, bits: int, default: int | None) -> tuple[int, ...]:
    """Return the values of a field; () if it is computed."""
    values: tuple[int, ...]
    absent: tuple[int, ...] = () if default is None else (default,)
    if not fields.has(key):
        return absent
    pattern = fields.child(key)
    most = (1 << bits) - 1
    choices = ("value", "values", "increment", "decrement", "auto", "generated", "custom")
    match pattern.choice("choice", choices, "value"):
        case "auto":
            pattern.skip("auto")
            values = absent
        case "generated":
            if pattern.choice("generated", ("good", "bad"), "good") == "bad":
                pattern.refuse("generated", "bad checksums are not offered", "write a custom one")
            values = absent
        case "values":
            values = tuple(
                _read_value(pattern, "values", value, bits) for value in pattern.items("values")
            ) or (0,)
        case "increment":
            values = _read_counter(pattern, "increment", bits, 1)
        case "decrement":
            values = _read_counter(pattern, "decrement", bits, -1)
        case choice:
            values = (_read_value(pattern, choice or "value", pattern.item(choice or "value"), bits),)
    pattern.refuse_others()
    return tuple(value & most for value in values)


def _read_counter(pattern: Fields, key: str, bits: int, sign: int) -> tuple[int, ...]:
    counter = pattern.child(key)
    start = _read_value(counter, "start", counter.item("start"), bits)
    step = _read_value(counter, "step", counter.item("step"), bits, default=1)
    count = counter.integer("count", 1, MOST_FRAMES, 1)
    counter.refuse_others()
    return tuple((start + sign * step * index) % (1 << bits) for index in range(count))


def _read_value(fields: Fields, key: str, value: object, bits: int, default: int = 0) -> int:
    """Return a number, or a MAC or IP address as one."""
    if value is None:
        return default
    number = _number_of(value, bits)
    if number is None:
        expected = {48: "a MAC address", 128: "an IPv6 address"}.get(bits, f"a number of {bits} bits")
        fields.refuse(key, f'"{str(value)[:64]}" is not {expected}', f"write {expected}")
        return default
    return number


def _number_of(value: object, bits: int) -> int | None:
    if isinstance(value, str) and bits == 48:
        digits = value.replace(":", "")
        is_mac = len(digits) == _MAC_DIGITS and all(digit in "0123456789abcdefABCDEF" for digit in digits)
        return int(digits, 16) if is_mac else None
    if isinstance(value, str) and bits in (32, 128) and ("." in value or ":" in value):
        try:
            address = ip_address(value)
        except ValueError:
            return None
        return int(address) if address.max_prefixlen == bits else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits
    return value if is_number and isinstance(value, int) else None


def _read_sizes(fields: Fields, least_bytes: int) -> tuple[int, ...]:
    """Return the sizes of consecutive frames, with FCS."""
    size = fields.child("size")
    sizes: tuple[int, ...]
    if size.choice("choice", ("fixed", "increment"), "fixed") == "fixed":
        sizes = (size.integer("fixed", LEAST_SIZE_BYTES, MOST_SIZE_BYTES, LEAST_SIZE_BYTES),)
    else:
        counter = size.child("increment")
        start = counter.integer("start", LEAST_SIZE_BYTES, MOST_SIZE_BYTES, LEAST_SIZE_BYTES)
        end = counter.integer("end", start, MOST_SIZE_BYTES, 1518)
        step = counter.integer("step", 1, MOST_SIZE_BYTES, 1)
        sizes = tuple(range(start, end + 1, step)) or (start,)
        counter.refuse_others()
    size.refuse_others()
    if min(sizes) < least_bytes:
        problem = f"{min(sizes)} bytes have no room for headers, signature of 18 bytes and FCS"
        fields.refuse("size", problem, f"write at least {least_bytes}")
        return (max(least_bytes, LEAST_SIZE_BYTES),)
    return sizes


def _read_rate(fields: Fields, frames: int, cycle_bytes: int, link_bps: int) -> int:
    """Return the time in which all frames are sent once."""
    rate = fields.child("rate")
    choice = rate.choice("choice", ("pps", *_RATES, "percentage"), "pps")
    line_bits = 8 * (cycle_bytes + frames * LINE_OVERHEAD_BYTES)
    least_ns = line_bits * NS_PER_S / link_bps if link_bps else 0.0
    if choice == "percentage":
        percent = rate.number(choice, 0.001, 100, 100)
        cycle_ns = least_ns * 100 / percent
    elif choice in _RATES:
        cycle_ns = 8 * cycle_bytes * NS_PER_S / (rate.number(choice, 0.001, _MOST_RATE, 1) * _RATES[choice])
    else:
        cycle_ns = frames * NS_PER_S / rate.number("pps", 1, _MOST_RATE, 1000)
    rate.refuse_others()
    if cycle_ns < least_ns * (1 - 1e-9):
        problem = f"is {least_ns / cycle_ns:.2f} times the link of {link_bps} bit/s, with preamble and gap"
        fields.refuse("rate", problem, "lower it, or write a percentage")
    return max(1, round(cycle_ns))


def _read_duration(fields: Fields, frames: int, cycle_ns: int) -> tuple[int, int]:
    """Return the number of frames, 0 for an endless flow, and the delay of the first one."""
    duration = fields.child("duration")
    kind = duration.choice("choice", ("continuous", "fixed_packets", "fixed_seconds"), "continuous")
    settings = duration.child(kind)
    count = 0
    if kind == "fixed_packets":
        count = settings.integer("packets", 1, _MOST_COUNT, 1)
    elif kind == "fixed_seconds":
        seconds = settings.number("seconds", 0.001, 1e9, 1)
        count = max(1, round(seconds * NS_PER_S * frames / cycle_ns))
    if settings.integer("gap", 1, 1 << 32, 12) != 12:
        settings.warn("gap", "has no effect: frames are spaced by the rate")
    delay = settings.child("delay")
    delay_ns = 0
    match delay.choice("choice", ("bytes", "nanoseconds", "microseconds"), "bytes"):
        case "nanoseconds":
            delay_ns = round(delay.number("nanoseconds", 0, 1e12, 0))
        case "microseconds":
            delay_ns = round(delay.number("microseconds", 0, 1e9, 0) * NS_PER_US)
        case _:
            if delay.number("bytes", 0, 1e12, 0):
                delay.refuse("bytes", "delays in bytes are not offered", "write nanoseconds")
    for part in (delay, settings, duration):
        part.refuse_others()
    return count, delay_ns


def _read_metrics(fields: Fields) -> bool:
    """Return whether latency is wanted. Counts are answered whatever is enabled."""
    metrics = fields.child("metrics")
    for key in ("enable", "loss", "timestamps"):
        metrics.flag(key, default=False)
    latency = metrics.child("latency")
    latency.choice("mode", ("store_forward", "cut_through"), "store_forward")
    has_latency = latency.flag("enable", default=False)
    latency.refuse_others()
    metrics.refuse_others()
    return has_latency

"""Judges whether a host is fit to run an agent, and names a remedy for each deficiency. host_facts.py reads the host."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.errors import Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.capabilities import PACKET_OVERHEAD_BYTES, Capabilities, Interface, RoceDevice

WANTED_RECEIVE_BUFFER_BYTES: Final = 64 << 20
"""Buffer that the engine requests per address: 6 ms at 100 Gbit/s, the time a busy host may keep a thread from a core."""
WANTED_CORES: Final = 2
"""One that the engine's loop can spin on, one for everything else."""
WANTED_OPEN_FILES: Final = 65_536
WANTED_LOCKED_BYTES: Final = 64 << 20
"""Most memory that a port on a network card registers for its messages (docs/verbs.md)."""
PATH_MTUS: Final = (4096, 2048, 1024, 512, 256)
ROCE_UDP_PORT: Final = 4791
"""IANA; InfiniBand Architecture Specification, annex A17."""
_BACKENDS: Final = {
    "udp": "",
    "packet": "for packet sockets (own frames, checked ICRCs): CAP_NET_RAW (AmbientCapabilities= in the agent's unit)",
    "xdp": "for AF_XDP: CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, Linux 6.6 with CONFIG_XDP_SOCKETS",
    "verbs": "for ranks on a network card: an RDMA device (rdma link), and the packages libibverbs1 and ibverbs-providers",
}
"""Kinds of ports, and their requirements beyond a socket."""
_STEADY_CLOCKS: Final = ("tsc", "arch_sys_counter", "kvm-clock")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Input of preflight: the capabilities reported to controllers, and limits that matter only on this host."""

    host: Capabilities
    open_files: int
    """RLIMIT_NOFILE's hard limit, up to which a process may raise its own; -1: no limit."""
    locked_bytes: int
    """RLIMIT_MEMLOCK's hard limit; -1: no limit."""
    realtime: bool
    """True if threads may be real-time."""


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    what: str
    found: str
    severity: Severity
    remedy: str
    """"" if the check passed."""


def check_host(facts: HostFacts) -> tuple[Check, ...]:
    """Return the results of all checks, passed ones included."""
    host = facts.host
    return (
        _check(
            "cores",
            str(host.cores),
            host.cores >= WANTED_CORES,
            "give the agent two cores or more; with one the engine blocks instead of spinning",
        ),
        _check(
            "receive buffer limit",
            f"{host.receive_buffer_bytes} bytes" if host.receive_buffer_bytes else "unknown",
            host.receive_buffer_bytes >= WANTED_RECEIVE_BUFFER_BYTES or "CAP_NET_ADMIN" in host.privileges,
            f"sysctl -w net.core.rmem_max={WANTED_RECEIVE_BUFFER_BYTES}, or give the agent CAP_NET_ADMIN",
        ),
        _check(
            "UDP segmentation offload (GSO)",
            "available" if host.udp_segmentation else "missing",
            host.udp_segmentation,
            "use Linux 4.18 or newer; without GSO every packet costs a system call",
        ),
        _check(
            "UDP receive offload (GRO)",
            "available" if host.udp_coalescing else "missing",
            host.udp_coalescing,
            "use Linux 5.0 or newer; without GRO every packet is received separately",
        ),
        _check(
            "open files limit",
            str(facts.open_files),
            facts.open_files < 0 or facts.open_files >= WANTED_OPEN_FILES,
            f"ulimit -Hn {WANTED_OPEN_FILES} (limits.conf: nofile); each address and source port needs a socket",
        ),
        _check(
            "clock source",
            host.clock_source or "unknown",
            host.clock_source in _STEADY_CLOCKS,
            "boot with a stable TSC; other clock sources cost about 1 us per reading",
        ),
        _check(
            "frequency governor",
            host.governor or "none",
            host.governor in ("", "performance"),
            "cpupower frequency-set -g performance; a core that lowers its clock while idle reacts late to packets",
        ),
        *(_mtu_check(link) for link in host.interfaces if link.up and link.addresses and link.name != "lo"),
        *(_steering_check(device, host) for device in host.roce_devices),
        *map(_device_check, host.roce_devices),
        *_offers(facts),
    )


def _offers(facts: HostFacts) -> tuple[Check, ...]:
    """Return the checks of optional features, whose absence is not a fault."""
    host, privileges = facts.host, ", ".join(facts.host.privileges)
    return (
        *(
            _offer(f"{name} ports", "available" if name in host.backends else "", "not available", needs)
            for name, needs in _BACKENDS.items()
        ),
        *([_locked_check(facts)] if "verbs" in host.backends else ()),
        _offer(
            "real-time threads",
            "permitted (etloop-agent run --realtime)" if facts.realtime else "",
            "not permitted",
            "for even pacing next to other load: CAP_SYS_NICE or LimitRTPRIO=10 in the agent's unit, without RestrictRealtime= "
            "(ulimit -r 10; in control groups of version 1 also cpu.rt_runtime_us)",
        ),
        _offer(
            "PTP clocks",
            ", ".join(host.ptp_clocks),
            "none",
            "not needed: clock offsets are measured over the control connection, to about half its round trip",
        ),
        _offer(
            "privileges",
            privileges if "CAP_NET_RAW" in host.privileges else "",
            privileges or "none",
            "not needed for UDP ports; for raw packets: AmbientCapabilities=CAP_NET_RAW in the agent's systemd unit",
        ),
    )


def _mtu_check(interface: Interface) -> Check:
    most = interface.mtu_bytes - PACKET_OVERHEAD_BYTES
    largest_path_mtu_bytes = next(
        (path_mtu_bytes for path_mtu_bytes in PATH_MTUS if path_mtu_bytes <= most), 0
    )
    return _check(
        f"MTU of {interface.name}",
        f"{interface.mtu_bytes} bytes, a path MTU of {largest_path_mtu_bytes}"
        if largest_path_mtu_bytes
        else f"{interface.mtu_bytes} bytes",
        largest_path_mtu_bytes == PATH_MTUS[0],
        f"ip link set dev {interface.name} mtu {PATH_MTUS[0] + PACKET_OVERHEAD_BYTES} and its peer likewise, "
        f"or transport: {{path_mtu: {largest_path_mtu_bytes or PATH_MTUS[-1]}}} in scenarios on it",
    )


def _steering_check(device: RoceDevice, host: Capabilities) -> Check:
    finding = f"{device.name} receives UDP port {ROCE_UDP_PORT} of {device.interface or 'its interface'} in hardware"
    if device.lack or "verbs" not in host.backends:
        return Check("RoCE in hardware", finding, Severity.ERROR, steering_remedy(device))
    remedy = f"use it with backend: verbs in the rig; for other backends: {steering_remedy(device)}"
    return Check("RoCE in hardware", finding, Severity.WARNING, remedy)


def _device_check(device: RoceDevice) -> Check:
    """Return whether ports of `backend: verbs` can use the RDMA device, as a check."""
    firmware = f", firmware {device.firmware}" if device.firmware else ""
    finding = f"port {device.state or 'of unknown state'}, {device.addresses} RoCEv2 addresses{firmware}"
    up = f"ip link set dev {device.interface or 'INTERFACE'} up"
    remedy = f"{up}, and give it an address: {device.lack}"
    return _check(f"RDMA device {device.name}", finding, not device.lack, remedy)


def steering_remedy(device: RoceDevice) -> str:
    """Return the commands by which sockets receive the packets that an RDMA device takes for itself."""
    if device.driver:
        return (
            f"devlink dev param set pci/{device.bus_address} name enable_roce value false cmode driverinit && "
            f"devlink dev reload pci/{device.bus_address}, or give the port another udp_port in the rig"
        )
    return f"rdma link delete {device.name}, or give the port another udp_port in the rig"


def _locked_check(facts: HostFacts) -> Check:
    enough = not 0 <= facts.locked_bytes < WANTED_LOCKED_BYTES or "CAP_IPC_LOCK" in facts.host.privileges
    limit_text = f"{facts.locked_bytes} bytes" if facts.locked_bytes >= 0 else "none"
    limit = f"ulimit -l {WANTED_LOCKED_BYTES >> 10} (systemd: LimitMEMLOCK=)"
    remedy = f"{limit}, or give the agent CAP_IPC_LOCK: network cards register messages in locked memory"
    return _check("locked memory limit", limit_text, enough, remedy)


def text(checks: tuple[Check, ...]) -> str:
    """Return the checks as aligned lines."""
    width = max(len(check.what) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.what:<{width}}  {check.severity.value:<8}  {check.found}")
        if check.remedy:
            lines.append(f"{'':<{width}}  {'':<8}  -> {check.remedy}")
    return "\n".join(lines)


def _check(subject: str, state: str, good: bool, remedy: str) -> Check:
    return Check(subject, state, Severity.OK if good else Severity.WARNING, "" if good else remedy)


def _offer(subject: str, state: str, absent: str, remedy: str) -> Check:
    """Return the check of an optional feature; `state` is "" if it is absent."""
    return Check(subject, state, Severity.OK, "") if state else Check(subject, absent, Severity.INFO, remedy)

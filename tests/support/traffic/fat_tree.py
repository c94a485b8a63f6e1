"""The fat tree on which the Ultra Ethernet Consortium's simulator publishes its figures, as our switches have it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etloop.contract.model.switch_presets import ROCE_CLASS, preset
from etloop.contract.model.topology import (
    Attachment,
    Marking,
    SwitchEnd,
    SwitchLink,
    SwitchPort,
    Topology,
    Trimming,
)

if TYPE_CHECKING:
    from etloop.contract.model.topology import SwitchSettings

TRIMMED_DSCP: Final = 50
QUEUE_BYTES: Final = 178_450
"""One bandwidth-delay product."""
_UNBOUNDED_ALPHA_LOG2: Final = 7
_SHARE_LOG2: Final = 8
"""Each queue has its own memory: of a buffer that is never used up, a share that hardly changes."""


def fat_tree(
    k: int, rate_bps: int = 100_000_000_000, delay_ns: int = 1_000, queue_bytes: int = QUEUE_BYTES
) -> Topology:
    """Three tiers of switches of `k` ports without latency, which mark, and trim what a queue has no room for.

    k³/4 hosts: two tiers of k/2 switches in each of k pods, and k²/4 above them.
    """
    half = k // 2
    names = [f"{tier}{pod}.{index}" for tier in ("tor", "agg") for pod in range(k) for index in range(half)]
    names += [f"core{index}" for index in range(half * half)]
    ports = tuple(SwitchPort(str(number), rate_bps, delay_ns) for number in range(k))
    switches = tuple(_switch(name, ports, seed, queue_bytes) for seed, name in enumerate(names, 1))

    def tor(pod: int, index: int) -> int:
        return pod * half + index

    def agg(pod: int, index: int) -> int:
        return k * half + pod * half + index

    links = [
        SwitchLink(SwitchEnd(tor(pod, low), half + high), SwitchEnd(agg(pod, high), low))
        for pod in range(k)
        for low in range(half)
        for high in range(half)
    ]
    links += [
        SwitchLink(SwitchEnd(agg(pod, low), half + up), SwitchEnd(2 * k * half + low * half + up, pod))
        for pod in range(k)
        for low in range(half)
        for up in range(half)
    ]
    places = [(pod, low, port) for pod in range(k) for low in range(half) for port in range(half)]
    attachments = tuple(
        Attachment(f"r/p{host}", SwitchEnd(tor(pod, low), port))
        for host, (pod, low, port) in enumerate(places)
    )
    return Topology(switches, tuple(links), attachments)


def _switch(name: str, ports: tuple[SwitchPort, ...], seed: int, queue_bytes: int) -> SwitchSettings:
    made = preset(name, ports, lossless=False)
    classes = list(made.dscp_to_class)
    classes[TRIMMED_DSCP] = classes[48]
    queues, groups = list(made.queues), [replace(group, reserved_bytes=0) for group in made.groups]
    marking = Marking(37_350, 145_250, 1_000_000)
    queues = [replace(queue, alpha_log2=-_SHARE_LOG2) for queue in queues]
    queues[ROCE_CLASS] = replace(queues[ROCE_CLASS], marking=marking)
    groups = [replace(group, alpha_log2=_UNBOUNDED_ALPHA_LOG2) for group in groups]
    return replace(
        made,
        seed=seed,
        latency_ns=0,
        buffer_bytes=queue_bytes << _SHARE_LOG2,
        queues=tuple(queues),
        groups=tuple(groups),
        trimming=Trimming(64 + 20, TRIMMED_DSCP),
        dscp_to_class=tuple(classes),
    )

"""Transports whose packets choose their paths, and where they run in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.transport import (
    MOST_SPRAYED_WINDOW,
    CnpSettings,
    CreditSettings,
    DeliveryOrder,
    EntropyChoice,
    MultipathSettings,
    TrimAnswer,
    TrimSettings,
    UetSettings,
)
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.twin import TwinSettings
from tests.support.traffic.twin_by_hand import GBPS, UNCONTROLLED, changed

if TYPE_CHECKING:
    from etloop.contract.model.topology import Topology
    from etloop.contract.model.transport import TransportSettings

SPRAYING: Final = (TransportKind.MRC, TransportKind.UET)
of_each_kind: Final = pytest.mark.parametrize("kind", SPRAYING, ids=lambda kind: kind.name.lower())


@dataclass(frozen=True, slots=True)
class Delivery:
    """A transport whose packets choose their paths, and what it makes of their order."""

    kind: TransportKind
    order: DeliveryOrder = DeliveryOrder.ANY


DELIVERIES: Final = {
    "mrc": Delivery(TransportKind.MRC),
    "uet": Delivery(TransportKind.UET),
    "uet-rod": Delivery(TransportKind.UET, DeliveryOrder.SENT),
}
of_each_delivery: Final = pytest.mark.parametrize("delivery", DELIVERIES.values(), ids=list(DELIVERIES))
PROBED: Final = TwinSettings(limit_ns=10 * GBPS, probe_first=True)
PERMUTATION: Final = tuple((host, (host + 4) % 16) for host in range(16))
_SILENT: Final = TrimSettings()
STAYS_OPEN: Final = UetSettings(close_after_ns=0)
_PATHS: Final = MultipathSettings(uet=STAYS_OPEN)


def sprayed(
    kind: TransportKind,
    algorithm: str = "nscc",
    multipath: MultipathSettings = _PATHS,
    floor_ns: int = 100_000,
    trimming: TrimSettings = _SILENT,
) -> TransportSettings:
    """The transport of a plan as `kind: mrc` or `kind: uet` makes it."""
    preset = "untrimmed" if trimming.answer is TrimAnswer.NONE else kind.name.lower()
    return replace(
        UNCONTROLLED,
        kind=kind,
        multipath=multipath,
        window_packets=MOST_SPRAYED_WINDOW,
        recovery=replace(UNCONTROLLED.recovery, timeout_floor_ns=floor_ns, trimming=trimming),
        congestion=CongestionSettings(algorithm=algorithm, profile=preset if algorithm == "nscc" else ""),
        cnp=CnpSettings(send=False),
    )


def paths_of(delivery: Delivery, seed: int) -> MultipathSettings:
    """How queue pairs find their paths, different by `seed`; those of UET send every other time, and close soon or never."""
    in_order = delivery.order is DeliveryOrder.SENT
    of_uet = delivery.kind is TransportKind.UET
    return MultipathSettings(
        EntropyChoice(seed % 4),
        entropy_values=1 if in_order else 1 + seed % 64,
        least_active=1,
        uet=UetSettings(
            close_after_ns=(0, 20_000, 1_000_000)[seed // 4 % 3],
            order=delivery.order,
            sends=of_uet and seed % 2 == 1,
            credit=CreditSettings(
                of_uet and seed % 5 > 2, alone=seed % 5 == 4, window_percent=(10, 150)[seed // 5 % 2]
            ),
        ),
    )


def lossy(topology: Topology) -> Topology:
    """Without pauses anywhere."""
    groups = tuple(replace(group, lossless=False) for group in topology.switches[0].groups)
    return changed(topology, pfc=False, groups=groups)

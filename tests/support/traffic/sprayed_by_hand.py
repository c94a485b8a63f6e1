"""Transports whose packets choose their paths, and where they run in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.transport import (
    MOST_SPRAYED_WINDOW,
    CnpSettings,
    MultipathSettings,
    TransportKind,
    TrimSettings,
)
from etloop.traffic.twin import TwinSettings

from tests.support.traffic.twin_by_hand import GBPS, UNCONTROLLED, changed

if TYPE_CHECKING:
    from etloop.contract.model.assignment import TransportSettings
    from etloop.contract.model.topology import Topology

SPRAYING: Final = (TransportKind.MRC, TransportKind.UET)
of_each_kind: Final = pytest.mark.parametrize("kind", SPRAYING, ids=lambda kind: kind.name.lower())
PROBED: Final = TwinSettings(limit_ns=10 * GBPS, probe_first=True)
PERMUTATION: Final = tuple((host, (host + 4) % 16) for host in range(16))
_SILENT: Final = TrimSettings()
_PATHS: Final = MultipathSettings()


def sprayed(
    kind: TransportKind,
    algorithm: str = "nscc",
    multipath: MultipathSettings = _PATHS,
    floor_ns: int = 100_000,
    trimming: TrimSettings = _SILENT,
) -> TransportSettings:
    """The transport of a plan as `kind: mrc` or `kind: uet` makes it."""
    return replace(
        UNCONTROLLED,
        kind=kind,
        multipath=multipath,
        window_packets=MOST_SPRAYED_WINDOW,
        recovery=replace(UNCONTROLLED.recovery, timeout_floor_ns=floor_ns, trimming=trimming),
        congestion=CongestionSettings(
            algorithm=algorithm, profile=kind.name.lower() if algorithm == "nscc" else ""
        ),
        cnp=CnpSettings(interval_ns=-1),
    )


def lossy(topology: Topology) -> Topology:
    """Without pauses anywhere."""
    groups = tuple(replace(group, lossless=False) for group in topology.switches[0].groups)
    return changed(topology, pfc=False, groups=groups)

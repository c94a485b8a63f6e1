"""Facts about the device that are known before any measurement: its identity by profile or rig, its network by topology.

Decides nothing: the controller fills it from the files of a run, and pages show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.contract.model.topology import SwitchSettings, Topology


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The device as files describe it; "" and None for facts that no file states."""

    profile: str = ""
    vendor: str = ""
    model: str = ""
    asic: str = ""
    software: str = ""
    """Network operating system or firmware, with its version."""
    buffer: str = ""
    basis: str = ""
    """Source of the identity: measured, configured or declared."""
    topology: Topology | None = None
    """Topology of the twin or the lab; for a real device the topology that the run was compared with."""
    unread: tuple[str, ...] = ()
    """Files of the run that could not be read for these facts, with the reason."""

    def switches_of(self, place: str) -> tuple[SwitchSettings, ...]:
        """Return the switch named in "SWITCH/PORT"; an empty tuple if the topology has none of that name."""
        if self.topology is None:
            return ()
        name = place.rpartition("/")[0]
        return tuple(switch for switch in self.topology.switches if switch.name == name)


NO_FACTS: Final = DeviceFacts()

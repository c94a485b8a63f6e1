"""What is known of the device before anything is measured: its identity by profile or rig, and its network by topology.

Decides nothing: the controller fills it from the files of a run, and pages show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.contract.model.topology import SwitchSettings, Topology


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The device as files describe it; "" and None for what they do not say."""

    profile: str = ""
    vendor: str = ""
    model: str = ""
    asic: str = ""
    software: str = ""
    """Network operating system or firmware, with its version."""
    buffer: str = ""
    basis: str = ""
    """What the identity rests on: measured, configured or declared."""
    topology: Topology | None = None
    """Of the twin or the lab; of a real device what the run was compared with."""
    unread: tuple[str, ...] = ()
    """Files of the run that could not be read for this, and why."""

    def switches_of(self, place: str) -> tuple[SwitchSettings, ...]:
        """Return the switch of "SWITCH/PORT"; none where the topology has no such one."""
        if self.topology is None:
            return ()
        name = place.rpartition("/")[0]
        return tuple(one for one in self.topology.switches if one.name == name)


NO_FACTS: Final = DeviceFacts()

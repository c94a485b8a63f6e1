"""Looks up how the topology configures the class of the job's data, by switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.contract.model.topology import PortRules, PriorityGroup, SwitchSettings
    from etloop.results.diagnosis.evidence import Evidence


@dataclass(frozen=True, slots=True)
class DataClass:
    """The data's class at one switch."""

    queue: int
    group: int
    settings: PriorityGroup
    has_pfc: bool

    @property
    def is_lossless(self) -> bool:
        """Return whether the switch pauses senders of the data instead of dropping it."""
        return self.settings.lossless and self.has_pfc


def settings_by_switch(evidence: Evidence) -> dict[str, SwitchSettings]:
    """Return the configuration of each switch by its name; empty without a topology."""
    topology = evidence.topology
    return {} if topology is None else {switch.name: switch for switch in topology.switches}


def data_classes(evidence: Evidence) -> dict[str, DataClass]:
    """Return the data's class by name of the switch, at ports without settings of their own; empty without a topology."""
    dscp = max(evidence.needs.data_dscp, 0)
    return {
        name: _class_of(switch, switch.all_rules[0], dscp)
        for name, switch in settings_by_switch(evidence).items()
    }


def data_class_at(evidence: Evidence, port: int) -> DataClass | None:
    """Return the data's class at a port, given as a row of `Evidence.ports`; None without a topology."""
    switch = settings_by_switch(evidence).get(evidence.ports.switch[port])
    if switch is None:
        return None
    rules = switch.rules_of(evidence.ports.names[port].rpartition("/")[2])
    return _class_of(switch, rules, max(evidence.needs.data_dscp, 0))


def _class_of(switch: SwitchSettings, rules: PortRules, dscp: int) -> DataClass:
    traffic_class = switch.dscp_to_class[dscp]
    group = switch.class_to_group[traffic_class]
    return DataClass(switch.class_to_queue[traffic_class], group, rules.groups[group], rules.pfc)

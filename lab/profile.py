"""Reports where the switches of a lab differ from the profile that the lab's rig names. Pure.

The rig that a lab writes names the profile `soft-switch`, whose maps are those that a topology has by default; a topology with
other maps runs all the same, and the verdict would find its packets in other queues.
"""

from __future__ import annotations

from etloop.contract.model.topology import Topology
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.dut_profiles.rules.maps import way_of_packet
from etloop.lab.plan import LAB_PROFILE


def map_deviations(topology: Topology) -> tuple[str, ...]:
    """Return a sentence for every switch whose maps put some DSCP into another queue than the profile's."""
    profile = find_profile(LAB_PROFILE)
    notes = []
    for switch in topology.switches:
        differing = []
        for dscp, traffic_class in enumerate(switch.dscp_to_class):
            way = way_of_packet(profile, dscp, None)
            queue = switch.class_to_queue[traffic_class]
            if way is not None and way.queue != queue:
                differing.append((dscp, queue, way.queue))
        if differing:
            dscp, queue, expected = differing[0]
            more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
            notes.append(
                f"{switch.name} maps DSCP {dscp} to queue {queue}, the profile "
                f"{LAB_PROFILE} to {expected}{more}: the verdict will "
                "report it; if it is intended, use a copy of the profile with these maps in the rig"
            )
    return tuple(notes)

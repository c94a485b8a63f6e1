"""The counters of the twin's switches, in the form of a source of a device. Pure.

With them the conditions of a profile are evaluated in virtual time as in a lab.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.model.counters import CountedObject, CounterBatch, CounterObject, CounterReading
from etloop.contract.model.device_counts import CountedDevice, SamplePhase
from etloop.contract.model.topology import Topology
from etloop.counters.readers.lab_values import switch_port_readings
from etloop.counters.source_log import SourceLog
from etloop.results.device.index import index_device
from etloop.results.device.tables import counters_table

if TYPE_CHECKING:
    from etloop.traffic.twin import TwinOutcome

NAME: Final = "twin"


def twin_counters_table(topology: Topology, outcome: TwinOutcome) -> Any:
    """Return the Arrow table of counters.parquet of a twin. Its switches start with the job, so all their counts belong to
    the run."""
    readings: list[CounterReading] = []
    for switch, rows, watermark_bytes in zip(
        topology.switches, outcome.switch_ports, outcome.pool_watermark_bytes, strict=True
    ):
        pool = CountedObject(CounterObject.POOL, switch.name)
        readings.append(CounterReading(pool, "watermark_bytes", watermark_bytes))
        for port, row in zip(switch.ports, rows, strict=True):
            readings += switch_port_readings(f"{switch.name}/{port.name}", row)
    zero_readings = tuple(replace(reading, value=0) for reading in readings)
    log = SourceLog(NAME, frozenset(), outcome.start_ns)
    for at_ns, batch, phase in (
        (outcome.start_ns, zero_readings, SamplePhase.BEFORE),
        (outcome.end_ns, tuple(readings), SamplePhase.DRAINED),
    ):
        log.add(CounterBatch(at_ns, at_ns, batch, ()), phase)
    rig_peers = tuple(
        (topology.port_name(attachment.end), attachment.rig_port) for attachment in topology.attachments
    )
    peers = rig_peers + topology.cables()
    source = log.finish(outcome.end_ns, NAME, 0, peers, several=True, host_side=False)
    return counters_table(index_device(CountedDevice(NAME, 0, (source,))))

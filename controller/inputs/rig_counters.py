"""`dut.counters` of a rig: by which sources the device's counters are read, and which of its ports lead to which of the rig's.

Decides what a list of sources may say as a whole; one source's keys are `counters.settings`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from pathlib import Path

from etloop.contract.base.yaml_reader import Section
from etloop.counters.settings import MOST_SOURCES, SourceSettings, read_source


def read_counters(dut: Section, directory: Path, rig_ports: AbstractSet[str]) -> tuple[SourceSettings, ...]:
    """The sources of a rig's `dut` section; () where it names none. `rig_ports` are the rig's, as AGENT/PORT.

    Files that a source names, such as credentials, are relative to `directory`.
    """
    if not dut.has("counters"):
        return ()
    sections = dut.sections("counters", "list the sources of the counters, or leave the key out")
    if len(sections) > MOST_SOURCES:
        dut.mistake("counters", f"{len(sections)} sources", f"give at most {MOST_SOURCES}")
    sources = tuple(read_source(section, directory) for section in sections[:MOST_SOURCES])
    for name, times in Counter(source.name for source in sources).items():
        if times > 1:
            dut.mistake("counters", f'{times} sources are called "{name}"', "give each a name of its own")
    for source in sources:
        for rig_port, _ in source.ports:
            if rig_port not in rig_ports:
                what = f'{source.name} is told of "{rig_port[:64]}", which no agent of the rig has'
                dut.mistake("counters", what, "write AGENT/PORT as the rig names them")
        for port, times in Counter(port for _, port in source.ports).items():
            if times > 1:
                what = f"{source.name}: {times} ports of the rig lead to {port}"
                dut.mistake("counters", what, "a cable has two ends: give each its own port of the device")
    return sources

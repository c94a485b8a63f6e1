"""`dut.counters` of a rig: the sources that the device's counters are read from, and which device port each rig port is on.

Decides the rules for a list of sources as a whole; the keys of one source are those of `counters.settings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from pathlib import Path

from etloop.contract.base.yaml_reader import Section
from etloop.counters.settings import MOST_SOURCES, SourceSettings, read_source


def read_counters(dut: Section, directory: Path, rig_ports: AbstractSet[str]) -> tuple[SourceSettings, ...]:
    """Return the sources of a rig's `dut` section; () if it names none.

    `rig_ports` are the ports of the rig as AGENT/PORT. Files that a source names, such as credentials, are relative to
    `directory`. Mistakes are added to the file of `dut`.
    """
    if not dut.has("counters"):
        return ()
    sections = dut.sections("counters", "list the sources of the counters, or leave the key out")
    if len(sections) > MOST_SOURCES:
        dut.mistake("counters", f"{len(sections)} sources", f"give at most {MOST_SOURCES}")
    sources = tuple(read_source(section, directory) for section in sections[:MOST_SOURCES])
    for name, uses in Counter(source.name for source in sources).items():
        if uses > 1:
            dut.mistake("counters", f'{uses} sources are called "{name}"', "give each a name of its own")
    for source in sources:
        for rig_port, _ in source.ports:
            if rig_port not in rig_ports:
                problem = f'{source.name} maps "{rig_port[:64]}", which no agent of the rig has'
                dut.mistake("counters", problem, "write AGENT/PORT as the rig names them")
        for port, uses in Counter(port for _, port in source.ports).items():
            if uses > 1:
                problem = f"{source.name}: {uses} ports of the rig are mapped to {port}"
                dut.mistake("counters", problem, "give each rig port its own port of the device")
    return sources

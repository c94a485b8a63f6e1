"""Configurations of SONiC switches, and files of their neighbours -> profiles, a topology, and the account of every table.

Decides the files that an import gives, and when a switch of the topology is its profile: if the model can have all of it.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import date
from functools import partial
from typing import Final

from etloop.contract.base.errors import ConfigError, Mistakes, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.contract.model.topology import SwitchPort
from etloop.contract.protocol.serialization import json_bytes
from etloop.dut_profiles.model.profile import DutProfile
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.dut_profiles.sonic.buffer_tables import Fragment
from etloop.dut_profiles.sonic.config_db import ConfigDb, Remark, TableAccount, parse_config_db
from etloop.dut_profiles.sonic.lldp import parse_lldp
from etloop.dut_profiles.sonic.minigraph import ORIGIN as MINIGRAPH
from etloop.dut_profiles.sonic.minigraph import parse_minigraph
from etloop.dut_profiles.sonic.neighbours import (
    Neighbour,
    NeighbourKind,
    by_local_port,
    configured_neighbours,
)
from etloop.dut_profiles.sonic.port_rules import rules_fragment
from etloop.dut_profiles.sonic.port_tables import Port
from etloop.dut_profiles.sonic.profile import document_text, draft_profile, read_ports
from etloop.dut_profiles.sonic.switch_tables import switch_name
from etloop.dut_profiles.sonic.topology import ImportedSwitch, topology_document
from etloop.dut_profiles.switch_settings import ModelledSwitch, modelled_switch
from etloop.traffic.topology.topology_file import parse_topology

TOPOLOGY_FILE: Final = "topology.yaml"
ACCOUNT_FILE: Final = "import.json"
ACCOUNT_SCHEMA: Final = "etloop.import/1"
MOST_IMPORTS: Final = 1024


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config_db.json; `dated`: date of the configuration."""

    source: str
    written: bytes
    dated: date
    stem: str
    """Name of the switch if the file states none."""


@dataclass(frozen=True, slots=True)
class NeighbourFile:
    """A minigraph.xml, or the LLDP neighbours of `switch`; "": of the only one."""

    source: str
    written: bytes
    switch: str = ""


@dataclass(frozen=True, slots=True)
class SwitchImport:
    """One imported switch."""

    name: str
    source: str
    profile: str
    """File name of its profile."""
    ports: int
    port_groups: int
    is_modelled: bool
    """True if the topology has it as this profile; else it has a preset."""
    tables: tuple[TableAccount, ...]
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class Import:
    """The result of an import. `files`: contents by name, the account of all tables included."""

    switches: tuple[SwitchImport, ...]
    topology_switches: int
    links: int
    attachments: int
    remarks: tuple[Remark, ...]
    """About the topology."""
    files: dict[str, bytes]


def import_switches(configs: tuple[ConfigFile, ...], neighbour_files: tuple[NeighbourFile, ...]) -> Import:
    """Return profiles, topology and account of all switches. Raise `ConfigError` with the mistakes of all files."""
    if len(configs) > MOST_IMPORTS:
        problem = f"{len(configs)} configurations"
        raise ConfigError(Problem("dut import", problem, f"import at most {MOST_IMPORTS} switches"))
    mistakes = Mistakes()
    read = [_Reading(config, mistakes) for config in configs]
    mistakes.refuse(ConfigError)
    _refuse_equal_names(read)
    for file in neighbour_files:
        mistakes.of(partial(_add_neighbours, read, file))
    finished = [mistakes.of(partial(reading.finish, read)) for reading in read]
    mistakes.refuse(ConfigError)
    topology = topology_document(tuple(switch for switch in finished if switch is not None))
    files = {f"{reading.name}.yaml": reading.profile_text for reading in read}
    files[TOPOLOGY_FILE] = document_text({key: value for key, value in topology.items() if value})
    remarks = _check_topology(files[TOPOLOGY_FILE], read)
    switches = tuple(reading.result() for reading in read)
    account = {
        "schema": ACCOUNT_SCHEMA,
        "switches": [asdict(switch) for switch in switches],
        "topology": [asdict(remark) for remark in remarks],
    }
    files[ACCOUNT_FILE] = json_bytes(account) + b"\n"
    switch_count, link_count, attachment_count = map(len, topology.values())
    return Import(switches, switch_count, link_count, attachment_count, remarks, files)


class _Reading:
    """One switch while it is read."""

    def __init__(self, config: ConfigFile, mistakes: Mistakes) -> None:
        self.config = config
        self.name = config.stem
        self.hostname = ""
        self.ports: tuple[Port, ...] = ()
        self.neighbours: list[Neighbour] = []
        self.modelled: ModelledSwitch | None = None
        self.profile_text = b""
        self.port_groups = 0
        db = mistakes.of(lambda: parse_config_db(config.written, config.source))
        self.db = db or ConfigDb(config.source, "", {})
        if db is not None:
            mistakes.of(lambda: self._begin(db))

    def _begin(self, db: ConfigDb) -> None:
        self.name = switch_name(db, self.config.stem)
        metadata = db.rows("DEVICE_METADATA").get("localhost")
        self.hostname = (metadata.text("hostname") if metadata is not None else None) or self.name
        self.neighbours += configured_neighbours(db)
        self.ports = read_ports(db)

    def finish(self, read: list[_Reading]) -> ImportedSwitch:
        """Make the profile, and return the switch, once all neighbours are known. Raise `ConfigError`."""
        neighbours = by_local_port(self.db, self.ports, tuple(self.neighbours))
        imported = {name for reading in read for name in (reading.name, reading.hostname)}
        host_ports = [
            port
            for port, neighbour in neighbours.items()
            if neighbour.kind is not NeighbourKind.SWITCH and neighbour.device not in imported
        ]
        draft = draft_profile(self.db, self.name, self.config.dated, self.ports, host_ports)
        self.profile_text = draft.text
        profile = parse_profile(draft.text, f"{self.name}.yaml")
        self.port_groups = len(profile.ports)
        self.modelled = self._model(profile)
        port_settings = () if self.modelled is None else self._port_settings(profile, self.modelled)
        return ImportedSwitch(
            self.name,
            self.hostname,
            f"{self.name}.yaml" if self.modelled is not None else "",
            self.db,
            self.ports,
            draft.untrimmed_queues,
            port_settings,
            neighbours,
        )

    def _model(self, profile: DutProfile) -> ModelledSwitch | None:
        """Return the model of the switch, or None; remark what it leaves out, or why there is none."""
        try:
            model = modelled_switch(profile)
        except ConfigError as error:
            reasons = ", ".join(
                f"{problem.where.rpartition(': ')[2]} {problem.what}" for problem in error.problems[:4]
            )
            more = ", and more" if len(error.problems) > 4 else ""
            self.db.remark(
                TOPOLOGY_FILE, f"{self.name} has preset lossless, not its profile: {reasons}{more}"
            )
            return None
        for text in model.origin.left_out:
            if not text.startswith("ports["):
                self.db.remark(TOPOLOGY_FILE, printable(f"the model leaves out {text}"))
        return model

    def _port_settings(
        self, profile: DutProfile, model: ModelledSwitch
    ) -> tuple[tuple[tuple[str, ...], Fragment], ...]:
        """Return the ports whose groups, queues or pauses differ in the model, with the keys that differ.

        Remark maps and watchdogs of single ports, which the model does not have, and ports that it cannot have.
        """
        plain = (SwitchPort("", 1, 0),)
        usual = model.settings("", plain)
        port_settings = []
        for ports in profile.ports:
            if not ports.overrides:
                continue
            try:
                own = modelled_switch(profile.of_ports(ports)).settings("", plain)
            except ConfigError as error:
                reasons = ", ".join(problem.what for problem in error.problems[:4])
                text = f"ports {ports.name} have the settings of most ports: {reasons}"
                self.db.remark(TOPOLOGY_FILE, printable(text))
                continue
            names = tuple(ports.interfaces.value or ())
            if (fragment := rules_fragment(own.all_rules[0], usual.all_rules[0])) and names:
                port_settings.append((names, fragment))
            with_usual_rules = replace(
                own,
                groups=usual.groups,
                queues=usual.queues,
                pfc=usual.pfc,
                buffer_bytes=usual.buffer_bytes,
                origin=usual.origin,
            )
            if with_usual_rules != usual:
                text = f"ports {ports.name} have the maps and the watchdog of most ports; their own are in the profile only"
                self.db.remark(TOPOLOGY_FILE, text)
        return tuple(port_settings)

    def result(self) -> SwitchImport:
        """Return the account of this switch."""
        return SwitchImport(
            self.name,
            self.config.source,
            f"{self.name}.yaml",
            len(self.ports),
            self.port_groups,
            self.modelled is not None,
            self.db.account(),
            self.db.remarks,
        )


def _refuse_equal_names(read: list[_Reading]) -> None:
    sources: dict[str, str] = {}
    for reading in read:
        name = reading.name
        if name in sources or f"{name}.yaml" == TOPOLOGY_FILE:
            other = sources.get(name, TOPOLOGY_FILE)
            problem = f'the switch is called "{name}", as in {other}'
            remedy = "import every switch once, and give each its own hostname"
            raise ConfigError(Problem(reading.config.source, problem, remedy))
        sources[name] = reading.config.source


def _add_neighbours(read: list[_Reading], file: NeighbourFile) -> None:
    """Add the neighbours of a file to their switches. Raise `ConfigError` if they are of none."""
    names = ", ".join(reading.name for reading in read[:16])
    if b"DeviceMiniGraph" in file.written[:65_536]:
        graph = parse_minigraph(file.written, file.source)
        concerned = [reading for reading in read if reading.hostname in graph.devices]
        if not concerned:
            problem = f"has no link of {names}"
            raise ConfigError(Problem(file.source, problem, "give the minigraph.xml of an imported switch"))
        for reading in concerned:
            reading.neighbours += graph.neighbours_of(reading.hostname)
            if graph.left_out:
                text = f"{graph.left_out} links are not between interfaces of two devices and are left out"
                reading.db.remark(MINIGRAPH, text)
        return
    chosen = [reading for reading in read if file.switch in (reading.name, reading.hostname)]
    if not file.switch and len(read) == 1:
        chosen = read
    if not chosen:
        problem = f'"{file.switch[:64]}" is not imported' if file.switch else "does not name its switch"
        raise ConfigError(Problem(file.source, problem, f"write SWITCH=FILE with one of {names}"))
    chosen[0].neighbours += parse_lldp(file.written, file.source)


def _check_topology(written: bytes, read: list[_Reading]) -> tuple[Remark, ...]:
    """Return a remark for every mistake that the topology's own reader finds."""
    models = {f"{reading.name}.yaml": reading.modelled for reading in read}

    def find_device(name: str) -> ModelledSwitch:
        model = models[name]
        assert model is not None
        return model

    try:
        parse_topology(written, TOPOLOGY_FILE, find_device)
    except ConfigError as error:
        return tuple(Remark(problem.where, f"{problem.what}; {problem.remedy}") for problem in error.problems)
    return ()

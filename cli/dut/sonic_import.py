"""Import configurations of SONiC switches for `etloop dut import`. A shell: files, screen."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, Problem
from etloop.dut_profiles.sonic.config_db import LARGEST_CONFIG_BYTES, TableAccount
from etloop.dut_profiles.sonic.xml_tree import LARGEST_XML_BYTES
from etloop.dut_profiles.sonic_import import (
    ConfigFile,
    Import,
    NeighbourFile,
    SwitchImport,
    import_switches,
)

MOST_FIELDS: Final = 8
MOST_REMARKS: Final = 20


def import_sonic(parsed: argparse.Namespace) -> CommandResult:
    """Return the account of an import; with --out, also write profiles, topology and account into that directory.

    Raise `ConfigError` for files that cannot be used, or that exist already in the directory.
    """
    imported = import_switches(
        tuple(_config_file(path) for path in parsed.configs),
        tuple(_neighbour_file(text) for text in parsed.neighbours or ()),
    )
    written = () if parsed.out is None else _write(imported, parsed.out)
    if parsed.json:
        values = {
            "switches": [asdict(switch) for switch in imported.switches],
            "topology": {
                "switches": imported.topology_switches,
                "links": imported.links,
                "attachments": imported.attachments,
                "remarks": [asdict(remark) for remark in imported.remarks],
            },
            "written": written,
        }
        return CommandResult(to_json(values))
    return CommandResult(render_import(imported) + "".join(f"written: {path}\n" for path in written))


def _config_file(path: Path) -> ConfigFile:
    written, dated = _read(path, LARGEST_CONFIG_BYTES)
    is_unnamed = path.stem.startswith("config_db") and path.absolute().parent.name
    stem = path.absolute().parent.name if is_unnamed else path.stem
    return ConfigFile(str(path), written, datetime.fromtimestamp(dated, UTC).date(), stem)


def _neighbour_file(text: str) -> NeighbourFile:
    switch, separator, name = text.partition("=")
    if not separator or Path(text).exists():
        switch, name = "", text
    return NeighbourFile(name, _read(Path(name), LARGEST_XML_BYTES)[0], switch)


def _read(path: Path, largest: int) -> tuple[bytes, float]:
    """Return a file, up to one byte more than its largest size, and the time of its last change in seconds."""
    try:
        with path.open("rb") as file:
            return file.read(largest + 1), path.stat().st_mtime
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(str(path), problem, "check the name and the permissions")) from None


def _write(imported: Import, out_dir: Path) -> tuple[str, ...]:
    names = tuple(imported.files)
    if existing := [name for name in names if (out_dir / name).exists()]:
        problem = f"has {', '.join(existing[:4])} already"
        raise ConfigError(Problem(str(out_dir), problem, "name a directory without these files"))
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name in names:
            with (out_dir / name).open("xb") as file:
                file.write(imported.files[name])
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise ConfigError(Problem(str(out_dir), problem, "name a directory that can be written")) from None
    return tuple(str(out_dir / name) for name in names)


def render_import(imported: Import) -> str:
    """Return an import as text: per switch what was read, what has no counterpart, and remarks; then the topology."""
    lines = [line for switch in imported.switches for line in _switch_lines(switch)]
    counts = f"{imported.topology_switches} switches, {imported.links} links, {imported.attachments} ports of a rig"
    lines.append(f"topology: {counts}")
    lines += [f"  remark: {remark}" for remark in imported.remarks[:MOST_REMARKS]]
    return "\n".join(lines) + "\n"


def _switch_lines(switch: SwitchImport) -> list[str]:
    read = [table for table in switch.tables if table.read]
    whole = [table.name for table in read if not table.unread and not table.unused_rows]
    in_part = [table for table in read if table.unread or table.unused_rows]
    unread = [f"{table.name} ({table.rows})" for table in switch.tables if not table.read]
    lines = [
        f"{switch.name} ({switch.source}): {switch.ports} ports of {switch.port_groups} kinds, {len(switch.tables)} tables",
        f"  read whole: {', '.join(whole) or 'none'}",
        *(f"  read in part: {_part_text(table)}" for table in in_part),
        f"  no counterpart (rows): {', '.join(unread) or 'none'}",
        *(f"  remark: {remark}" for remark in switch.remarks[:MOST_REMARKS]),
    ]
    if len(switch.remarks) > MOST_REMARKS:
        lines.append(f"  and {len(switch.remarks) - MOST_REMARKS} more remarks (all with --json)")
    return lines


def _part_text(table: TableAccount) -> str:
    names = [field.name for field in table.unread]
    more = f" and {len(names) - MOST_FIELDS} more" if len(names) > MOST_FIELDS else ""
    parts = [f"without {', '.join(names[:MOST_FIELDS])}{more}"] if names else []
    parts += [f"{table.unused_rows} of {table.rows} rows unused"] if table.unused_rows else []
    return f"{table.name}, {'; '.join(parts)}"

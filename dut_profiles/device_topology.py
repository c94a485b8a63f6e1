"""Topology files whose switches may be devices under test: `traffic.topology` reads the file, profiles say what they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etloop.dut_profiles.switch_settings import device_finder
from etloop.traffic.topology.topology_file import parse_topology

if TYPE_CHECKING:
    from etloop.contract.model.topology import Topology


def read_topology(text: bytes, source: str, device: str = "") -> Topology:
    """Return the topology of a YAML text; `source` is its file, beside which it finds profiles that are files.

    `device` names the profile, by name or path, of all switches which name neither a device nor a preset. Raises
    `ConfigError` with all mistakes of the text, or those of `device`.
    """
    find = device_finder(Path(source).parent)
    return parse_topology(text, source, find, device_finder(Path())(device) if device else None)

"""Parses topology files whose switches may be devices under test: `traffic.topology` reads the file, profiles describe the
devices."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from etloop.contract.base.yaml_tree import TEXT_TAG, Change, changed_text
from etloop.contract.model.topology import Topology
from etloop.dut_profiles.switch_settings import device_finder
from etloop.traffic.topology.topology_file import parse_topology

_DEVICE: Final = "device"


def parse_modelled_topology(text: bytes, source: str, directory: Path, device: str = "") -> Topology:
    """Return the topology of a YAML text, with the models of the devices that it names.

    `source` names the file in messages; paths of profiles in it are relative to `directory`. `device` names the profile, by
    name or path, of all switches that name neither a device nor a preset. Raise `ConfigError` with all mistakes of the text, or
    those of `device`.
    """
    default_device = device_finder(Path())(device) if device else None
    return parse_topology(text, source, device_finder(directory), default_device)


def with_device(text: bytes, source: str, device: str) -> bytes:
    """Return the text of a topology in which `device` is the default of its switches; comments are lost."""
    change = Change((_DEVICE,), yaml.ScalarNode(TEXT_TAG, device))
    return changed_text(text, source, (change,)).encode()

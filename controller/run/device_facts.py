"""Facts about the device for the report: its identity from the run's profile, switches and links from the run's topology.

Decides which values of a profile are shown. A file that cannot be read again does not prevent the report; it is named there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from etloop.contract.base.errors import ConfigError
from etloop.dut_profiles.device_topology import parse_modelled_topology
from etloop.dut_profiles.model.profile import DutProfile
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.results.schema.device_facts import DeviceFacts
from etloop.results.store.run_dir import PROFILE_FILE, TOPOLOGY_FILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from etloop.contract.model.topology import Topology

Read = TypeVar("Read")


def device_facts(
    texts: Mapping[str, str | bytes | None], directory: Path, topology: Topology | None = None
) -> DeviceFacts:
    """Return the facts stated in a run's profile and topology. Names of files in them are relative to `directory`.

    `topology` is that of the texts, if the run was prepared from it; None: it is read from them.
    """
    read_errors: list[str] = []
    profile: DutProfile | None = _read(texts, PROFILE_FILE, parse_profile, read_errors)
    if topology is None:
        topology = _read(
            texts,
            TOPOLOGY_FILE,
            lambda text, source: parse_modelled_topology(text, source, directory),
            read_errors,
        )
    if profile is None:
        return DeviceFacts(topology=topology, unread=tuple(read_errors))
    identity = profile.identity
    return DeviceFacts(
        profile=profile.name,
        vendor=identity.vendor.value or "",
        model=identity.model.value or "",
        asic=identity.asic.value or "",
        software=identity.software.value or "",
        buffer=identity.buffer_architecture.value or "",
        basis=", ".join(sorted({val.basis.value for val in (identity.vendor, identity.model, identity.software) if val.basis})),
        topology=topology,
        unread=tuple(read_errors),
    )  # fmt: skip


def _read(
    texts: Mapping[str, str | bytes | None], name: str, parse: Callable[[bytes, str], Read], unread: list[str]
) -> Read | None:
    text = texts.get(name)
    if text is None:
        return None
    try:
        return parse(text.encode() if isinstance(text, str) else text, name)
    except ConfigError as error:
        unread.append(f"{name} cannot be read again: {error}")
        return None

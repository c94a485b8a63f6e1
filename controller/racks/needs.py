"""Requirements of a job on a rack, as values: ports, their number, speed and backend, each with the key that requires it."""

from __future__ import annotations

from collections.abc import Iterator

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_rate


@dataclass(frozen=True, slots=True)
class Need:
    """One requirement."""

    key: str
    """Key of the scenario, or option of the command line."""
    text: str

    def __str__(self) -> str:
        return f"{self.text} ({self.key})"


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a scenario on a rack; empty or 0 requires nothing."""

    ports: tuple[str, ...] = ()
    """Names of the ports on which all of the job runs."""
    among: tuple[str, ...] = ()
    """Names of ports that must exist, while a part of the job takes any ports."""
    ports_key: str = ""
    least_ports: int = 1
    """With fewer ports no traffic would cross the device."""
    port_count: int = 0
    """One port for each host; with fewer, hosts share ports. 0: the number of hosts is unknown."""
    count_key: str = ""
    least_link_bps: int = 0
    link_key: str = ""
    backends: tuple[str, ...] = ()
    backend_key: str = ""

    def requirements(self) -> Iterator[Need]:
        """Yield each requirement, for people."""
        if port_names := self.ports or self.among:
            yield Need(self.ports_key, f"ports {', '.join(port_names)}")
        if self.port_count:
            yield Need(self.count_key, f"{self.port_count} ports")
        if self.least_link_bps:
            yield Need(self.link_key, f"at least {format_rate(self.least_link_bps)}")
        if self.backends:
            yield Need(self.backend_key, f"backend {' or '.join(self.backends)}")

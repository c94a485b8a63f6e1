"""What a job asks of a rack, as values: ports, their number, speed and backend, each with the key that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_rate


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that is asked for."""

    key: str
    """Of the scenario, or an option of the command line."""
    text: str

    def __str__(self) -> str:
        return f"{self.text} ({self.key})"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a scenario asks of a rack. What is empty or 0 asks nothing."""

    ports: tuple[str, ...] = ()
    """The ports that all of the job is on, by name."""
    among: tuple[str, ...] = ()
    """Ports that must be there, while some of the job takes whatever ports there are."""
    ports_key: str = ""
    least_ports: int = 1
    """With fewer nothing would cross the device."""
    port_count: int = 0
    """A port for each host; with fewer, hosts share ports. 0: nobody knows how many hosts there are."""
    count_key: str = ""
    least_link_bps: int = 0
    link_key: str = ""
    backends: tuple[str, ...] = ()
    backend_key: str = ""

    def listed(self) -> Iterator[Need]:
        """Give what is asked for, for people."""
        if named := self.ports or self.among:
            yield Need(self.ports_key, f"ports {', '.join(named)}")
        if self.port_count:
            yield Need(self.count_key, f"{self.port_count} ports")
        if self.least_link_bps:
            yield Need(self.link_key, f"at least {format_rate(self.least_link_bps)}")
        if self.backends:
            yield Need(self.backend_key, f"backend {' or '.join(self.backends)}")

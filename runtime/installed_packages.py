"""Names the packages that an installation lacks, and the extra that brings them: `pip install etloop` installs only an
agent.

Decides the words of the error. pyproject.toml defines the extras; a test compares it with this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "controller": (
        *("aiohttp", "aiomqtt", "jinja2", "plotly", "prometheus_client", "pyarrow", "pyroute2"),
        *("yaml", "rich", "scipy", "shtab", "zstandard"),
    ),
    "broker": ("amqtt",),
    "otel": ("opentelemetry",),
    "snmp": ("gufo",),
    "gnmi": ("grpc", "google"),
    "infragraph": ("infragraph",),
    "scapy": ("scapy",),
    "search": ("optuna",),
    "slurm": ("submitit",),
}
"""Import names of the modules that each extra installs."""


def missing_package(error: ModuleNotFoundError, who: str) -> ConfigError | None:
    """Return the error for a module that `who` could not import; None if no extra brings the module."""
    top_level = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if top_level in modules), None)
    if extra is None:
        return None
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None] or [top_level]
    problem = f"needs packages that are not installed here: {', '.join(missing)}"
    agent_hint = (
        "; for a host with an agent alone, etloop-agent has all it needs" if extra == "controller" else ""
    )
    return ConfigError(Problem(who, problem, f"pip install 'etloop[{extra}]'{agent_hint}"))

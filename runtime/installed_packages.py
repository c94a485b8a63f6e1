"""Which packages of others an installation lacks, and which extra of ours brings them: `pip install etloop` is an agent's.

Decides the words of the error. What each extra consists of is in pyproject.toml, to which a test holds this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "controller": (
        *("aiohttp", "jinja2", "plotly", "prometheus_client", "pyarrow", "pyroute2"),
        *("yaml", "rich", "scipy", "shtab", "zstandard"),
    ),
    "broker": ("amqtt",),
    "otel": ("opentelemetry",),
    "snmp": ("gufo",),
    "gnmi": ("grpc", "google"),
    "infragraph": ("infragraph",),
}
"""By extra the modules that its packages bring, as they are imported."""


def missing_package(error: ModuleNotFoundError, who: str) -> ConfigError | None:
    """Return what to say of a module that `who` could not import; None where it is none of what an extra brings."""
    top = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if top in modules), None)
    if extra is None:
        return None
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None] or [top]
    what = f"needs packages that are not installed here: {', '.join(missing)}"
    alone = "; for a host with an agent alone, etloop-agent has all it needs" if extra == "controller" else ""
    return ConfigError(Problem(who, what, f"pip install 'etloop[{extra}]'{alone}"))

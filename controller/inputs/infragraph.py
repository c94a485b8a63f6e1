"""InfraGraph descriptions (Keysight/infragraph) -> `Fabric`, read by the `infragraph` package.

Decides how large a description may be before the package expands it, and turns its refusals into problems. What a
fabric is, is decided by `fabric`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.yaml_reader import ConfigFile, read_document
from etloop.controller.inputs.fabric import Component, Fabric, Link, fabric_of

MOST_COMPONENTS: Final = 65_536
MOST_EDGES: Final = 1_000_000
DEEPEST_COMPOSITION: Final = 8
_RATES: Final = {"Gbps": 10**9, "GBps": 8 * 10**9}
"""InfraGraph's gigabits and gigabytes per second. Transfers per second say nothing without a width, and are left out."""
_TIMES: Final = {"ns": 1, "us": 1000, "ms": 1_000_000}


def read_infragraph(
    text: bytes, source: str, annotations: bytes | None = None, annotated: str = ""
) -> Fabric:
    """The fabric that an infrastructure describes, in YAML or JSON; `source` and `annotated` name the files.

    Annotations of nodes that count: `rank` of an xpu, `ipaddress` of a NIC, `profile` of any component of a switch.
    Raises `ConfigError` for a description that cannot be used, or if the package is not installed.
    """
    try:
        import infragraph
        from infragraph.infragraph_service import GraphError, InfraGraphService, InfrastructureError
    except ImportError:
        remedy = "pip install infragraph"
        raise ConfigError(Problem(source, "reading InfraGraph needs its package", remedy)) from None
    # Refuses what no plain file has, such as aliases, before another reader sees it.
    for written, name in ((text, source), (annotations, annotated)):
        if written is not None:
            read_document(written, ConfigFile(name))
    refusals = (GraphError, InfrastructureError, ValueError, TypeError, KeyError, IndexError, AttributeError)
    reading = source
    try:
        with warnings.catch_warnings():
            # It warns of unconnected components, which do no harm here.
            warnings.simplefilter("ignore")
            described = infragraph.Infrastructure()
            described.deserialize(text.decode("utf-8-sig"))
            _refuse_size(described, source)
            service = InfraGraphService()
            service.set_graph(described)
            if annotations is not None:
                reading = annotated
                notes = infragraph.Annotation()
                notes.deserialize(annotations.decode("utf-8-sig"))
                service.annotate_graph(notes)
    except (*refusals, NotImplementedError, RecursionError) as error:  # the package's own, of "scheme: ring"
        what = " ".join(str(error).split())[:500] or type(error).__name__
        raise ConfigError(Problem(reading, f"the infragraph package refuses it: {what}", _SEE)) from None
    graph = service.get_networkx_graph()
    return fabric_of(described.name or "", _components(graph), _links(graph), source)


_SEE: Final = "see the schema at infragraph.dev"


def _refuse_size(described: Any, source: str) -> None:
    """Counts what the package would expand; a count of a billion is one word in a file."""
    devices = {device.name: device for device in described.devices}

    def components(name: str, depth: int) -> int:
        device = devices.get(name)
        if device is None or depth > DEEPEST_COMPOSITION:
            return MOST_COMPONENTS + 1 if device is not None else 1
        within = 0
        for component in device.components:
            composed = component.choice == "device"
            within += max(component.count or 0, 0) * (
                components(component.name, depth + 1) if composed else 1
            )
            if within > MOST_COMPONENTS:
                break
        return within

    total = sum(max(each.count or 0, 0) * components(each.device, 0) for each in described.instances)
    if total > MOST_COMPONENTS:
        what = f"it describes more than {MOST_COMPONENTS} components"
        raise ConfigError(Problem(source, what, "describe the part that is tested"))
    edges = sum(
        max(instance.count or 0, 0) * _edges_within(devices[instance.device])
        for instance in described.instances
        if instance.device in devices
    )
    sizes = {each.name: devices.get(each.device) for each in described.instances}
    edges += sum(_edges_between(edge, sizes) for edge in described.edges)
    if edges > MOST_EDGES:
        what = f"it may describe more than {MOST_EDGES} links"
        raise ConfigError(
            Problem(source, what, "name ranges of components, or describe the part that is tested")
        )


def _edges_within(device: Any) -> int:
    counts = {component.name: max(component.count or 0, 0) for component in device.components}
    return sum(_ends(edge.ep1, counts) * _ends(edge.ep2, counts) for edge in device.edges)


def _edges_between(edge: Any, devices: dict[str, Any]) -> int:
    ends = []
    for end in (edge.ep1, edge.ep2):
        device = devices.get((end.instance or "").partition("[")[0])
        counts = {} if device is None else {each.name: max(each.count or 0, 0) for each in device.components}
        ends.append(_ends(end, counts))
    return ends[0] * ends[1] if edge.scheme == "many2many" else min(ends)


def _ends(end: Any, counts: dict[str, int]) -> int:
    """How many components an endpoint names at the most, in one instance."""
    name, _, slice_text = (end.component or "").partition("[")
    count = counts.get(name.partition(".")[0], 1)
    match = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?\]", slice_text)
    if match is None:
        return count
    return min(count, int(match[2]) - int(match[1]) if match[2] else 1)


def _components(graph: Any) -> Iterator[Component]:
    for name, attributes in graph.nodes(data=True):
        yield Component(
            name=name,
            kind=str(attributes.get("type", "")),
            instance=f"{attributes.get('instance', '')}.{attributes.get('instance_idx', '')}",
            attributes=tuple(
                (key, str(attributes[key])) for key in ("rank", "ipaddress", "profile") if key in attributes
            ),
        )


def _links(graph: Any) -> Iterator[Link]:
    for one, other, attributes in graph.edges(data=True):
        yield Link(
            one,
            other,
            _quantity(str(attributes.get("bandwidth", "")), _RATES),
            _quantity(str(attributes.get("latency", "")), _TIMES),
        )


def _quantity(text: str, units: dict[str, int]) -> int | None:
    number, _, unit = text.partition(" ")
    if unit not in units or not re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", number):
        return None
    return int(Fraction(number) * units[unit])

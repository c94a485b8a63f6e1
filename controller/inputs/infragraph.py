"""InfraGraph descriptions (Keysight/infragraph) -> `Fabric`, read by the `infragraph` package.

Decides how large a description may be before the package expands it, and turns the package's exceptions into problems. `fabric`
decides the meaning of a graph.
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
"""Units of InfraGraph in bits per second. Transfers per second are not supported, as they need a link width."""
_TIMES: Final = {"ns": 1, "us": 1000, "ms": 1_000_000}


def read_infragraph(
    text: bytes, source: str, annotations: bytes | None = None, annotated: str = ""
) -> Fabric:
    """Return the fabric described by an infrastructure file in YAML or JSON.

    `source` and `annotated` name the files in errors. These annotations of nodes are used: `rank` of an xpu, `ipaddress` of a
    NIC, `profile` of any component of a switch. Raises `ConfigError` for a description that cannot be used, or if the package
    is not installed.
    """
    try:
        import infragraph
        from infragraph.infragraph_service import GraphError, InfraGraphService, InfrastructureError
    except ImportError:
        remedy = "pip install infragraph"
        raise ConfigError(Problem(source, "reading InfraGraph needs its package", remedy)) from None
    # Refuse YAML features such as aliases before the package parses the file.
    for document, name in ((text, source), (annotations, annotated)):
        if document is not None:
            read_document(document, ConfigFile(name))
    refusals = (GraphError, InfrastructureError, ValueError, TypeError, KeyError, IndexError, AttributeError)
    current_file = source
    try:
        with warnings.catch_warnings():
            # The package warns about unconnected components, which are harmless here.
            warnings.simplefilter("ignore")
            infrastructure = infragraph.Infrastructure()
            infrastructure.deserialize(text.decode("utf-8-sig"))
            _refuse_size(infrastructure, source)
            service = InfraGraphService()
            service.set_graph(infrastructure)
            if annotations is not None:
                current_file = annotated
                annotation = infragraph.Annotation()
                annotation.deserialize(annotations.decode("utf-8-sig"))
                service.annotate_graph(annotation)
    except (*refusals, NotImplementedError, RecursionError) as error:
        # The package raises NotImplementedError for edges with scheme: ring.
        reason = " ".join(str(error).split())[:500] or type(error).__name__
        raise ConfigError(
            Problem(current_file, f"the infragraph package rejects it: {reason}", _SEE)
        ) from None
    graph = service.get_networkx_graph()
    return fabric_of(infrastructure.name or "", _components(graph), _links(graph), source)


_SEE: Final = "see the schema at infragraph.dev"


def _refuse_size(described: Any, source: str) -> None:
    """Raise `ConfigError` if the package would expand a description to too many components or links."""
    devices = {device.name: device for device in described.devices}

    def components(name: str, depth: int) -> int:
        device = devices.get(name)
        if device is None or depth > DEEPEST_COMPOSITION:
            return MOST_COMPONENTS + 1 if device is not None else 1
        subtotal = 0
        for component in device.components:
            is_device = component.choice == "device"
            subtotal += max(component.count or 0, 0) * (
                components(component.name, depth + 1) if is_device else 1
            )
            if subtotal > MOST_COMPONENTS:
                break
        return subtotal

    total = sum(
        max(instance.count or 0, 0) * components(instance.device, 0) for instance in described.instances
    )
    if total > MOST_COMPONENTS:
        problem = f"it describes more than {MOST_COMPONENTS} components"
        raise ConfigError(Problem(source, problem, "describe only the part under test"))
    edges = sum(
        max(instance.count or 0, 0) * _edges_within(devices[instance.device])
        for instance in described.instances
        if instance.device in devices
    )
    device_of_instance = {instance.name: devices.get(instance.device) for instance in described.instances}
    edges += sum(_edges_between(edge, device_of_instance) for edge in described.edges)
    if edges > MOST_EDGES:
        problem = f"it may describe more than {MOST_EDGES} links"
        raise ConfigError(
            Problem(source, problem, "name ranges of components, or describe only the part under test")
        )


def _edges_within(device: Any) -> int:
    counts = {component.name: max(component.count or 0, 0) for component in device.components}
    return sum(_most_ends(edge.ep1, counts) * _most_ends(edge.ep2, counts) for edge in device.edges)


def _edges_between(edge: Any, devices: dict[str, Any]) -> int:
    end_counts = []
    for end in (edge.ep1, edge.ep2):
        device = devices.get((end.instance or "").partition("[")[0])
        counts = (
            {}
            if device is None
            else {component.name: max(component.count or 0, 0) for component in device.components}
        )
        end_counts.append(_most_ends(end, counts))
    return end_counts[0] * end_counts[1] if edge.scheme == "many2many" else min(end_counts)


def _most_ends(end: Any, counts: dict[str, int]) -> int:
    """Return the largest number of components that an endpoint can name in one instance."""
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
    for first, second, attributes in graph.edges(data=True):
        yield Link(
            first,
            second,
            _quantity(str(attributes.get("bandwidth", "")), _RATES),
            _quantity(str(attributes.get("latency", "")), _TIMES),
        )


def _quantity(text: str, units: dict[str, int]) -> int | None:
    number, _, unit = text.partition(" ")
    if unit not in units or not re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", number):
        return None
    return int(Fraction(number) * units[unit])

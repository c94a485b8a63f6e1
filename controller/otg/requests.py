"""Requests of the OTG API to a configured test as values: control of state, metrics and states. Pure.

Choices that ETLoop does not carry out are refused by their JSON path.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, TypeVar

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.otg.collective_model import Proposal
from etloop.controller.otg.fields import Fields, Notes

METRICS: Final = {
    "port": "port_names",
    "flow": "flow_names",
    "rocev2_ipv4": "",
    "rocev2_ipv6": "",
    "rocev2_flow": "",
    Proposal.CCL.value: "communicator_names",
    Proposal.COMMUNICATIONS.value: "",
}
"""Choice of a metrics request -> the field that filters its rows."""
STATES: Final = ("ipv4_neighbors", "ipv6_neighbors", Proposal.COMMUNICATIONS.value)
"""Neighbours are resolved by the hosts of the agents, so that the lists of both are empty."""

_Request = TypeVar("_Request")


class Order(Enum):
    """Order of a request to /control/state."""

    CONNECT = auto()
    DISCONNECT = auto()
    START = auto()
    STOP = auto()
    CAPTURE = auto()
    END_CAPTURE = auto()
    START_JOB = auto()
    STOP_JOB = auto()


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request to /control/state."""

    order: Order
    flow_names: tuple[str, ...] = ()
    """Of START and STOP; empty: all flows."""
    port_names: tuple[str, ...] = ()
    """Of captures; empty: all ports of $.captures."""
    proposal: Proposal = Proposal.CCL
    """Of START_JOB and STOP_JOB: the proposal that the order is written in."""


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """A request to /monitor/metrics."""

    choice: str
    names: tuple[str, ...] = ()
    """Names of the rows; empty: all."""
    stages: tuple[str, ...] = ()
    """Names of the stages of `ccl`; empty: all."""


def read_control(body: object) -> ControlRequest:
    """Return the order of a request to /control/state. Raise `ConfigError` if ETLoop cannot carry it out."""
    notes = Notes()
    root = Fields(body, "$", notes)
    choice = root.choice("choice", ("protocol", "traffic", "port", Proposal.COMMUNICATIONS.value))
    request = ControlRequest(Order.STOP)
    if choice == "protocol":
        request = _read_protocol(root.child("protocol"))
    elif choice == "traffic":
        request = _read_traffic(root.child("traffic"))
    elif choice == "port":
        request = _read_port(root.child("port"))
    elif choice:
        communications = root.child(choice)
        communications.choice("choice", ("execution",))
        request = _read_job(communications.child("execution"), Proposal.COMMUNICATIONS)
    return _without_problems(notes, request)


def _read_protocol(protocol: Fields) -> ControlRequest:
    protocol.choice("choice", ("all",))
    state = protocol.child("all").choice("state", ("start", "stop"))
    return ControlRequest(Order.CONNECT if state == "start" else Order.DISCONNECT)


def _read_traffic(traffic: Fields) -> ControlRequest:
    if traffic.choice("choice", ("flow_transmit", Proposal.CCL.value)) == Proposal.CCL:
        return _read_job(traffic.child("ccl"), Proposal.CCL)
    transmit = traffic.child("flow_transmit")
    state = transmit.choice("state", ("start", "stop"))
    return ControlRequest(Order.START if state == "start" else Order.STOP, transmit.texts("flow_names"))


def _read_job(fields: Fields, proposal: Proposal) -> ControlRequest:
    state = fields.choice("state", ("start", "stop"))
    return ControlRequest(Order.START_JOB if state == "start" else Order.STOP_JOB, proposal=proposal)


def _read_port(port: Fields) -> ControlRequest:
    port.choice("choice", ("capture",))
    capture = port.child("capture")
    state = capture.choice("state", ("start", "stop"))
    order = Order.CAPTURE if state == "start" else Order.END_CAPTURE
    return ControlRequest(order, port_names=capture.texts("port_names"))


def read_capture(body: object) -> str:
    """Return the port of a request to /monitor/capture."""
    notes = Notes()
    return _without_problems(notes, Fields(body, "$", notes).text("port_name"))


def read_metrics(body: object) -> MetricsRequest:
    """Return what a request to /monitor/metrics asks for; column names are ignored, because all columns are answered."""
    notes = Notes()
    root = Fields(body, "$", notes)
    choice = root.choice("choice", METRICS)
    names: tuple[str, ...] = ()
    if choice in ("rocev2_ipv4", "rocev2_ipv6"):
        names = root.child(choice).child("per_peer").texts("peer_names")
    elif choice == Proposal.COMMUNICATIONS:
        single = _only_choice(root.child(choice), "single_collective")
        names = _only_choice(single, "summary").texts("collective")
    elif choice and METRICS[choice]:
        names = root.child(choice).texts(METRICS[choice])
    stages = root.child(choice).texts("stage_names") if choice == Proposal.CCL else ()
    if choice == Proposal.CCL and root.child(choice).flag("include_loop_metrics", False):
        root.child(choice).refuse("include_loop_metrics", "metrics of loops are not offered", "leave it out")
    return _without_problems(notes, MetricsRequest(choice, names, stages))


def _only_choice(fields: Fields, choice: str) -> Fields:
    """Return the object of the one choice that ETLoop answers."""
    fields.choice("choice", (choice,))
    return fields.child(choice)


def read_states(body: object) -> str:
    """Return the choice of a request to /monitor/states."""
    notes = Notes()
    root = Fields(body, "$", notes)
    choice = root.choice("choice", STATES)
    if choice == Proposal.COMMUNICATIONS:
        root.child(choice).choice("choice", ("execution",))
    return _without_problems(notes, choice)


def _without_problems(notes: Notes, request: _Request) -> _Request:
    """Return the request, or raise `ConfigError` with the problems of its fields."""
    if notes.problems:
        raise ConfigError(*notes.problems)
    return request

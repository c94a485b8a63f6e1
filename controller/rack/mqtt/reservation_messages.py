"""Messages of the rack API about reservations of ports. Pure."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.typed_form import field
from etloop.controller.rack.job import MOST_PORTS
from etloop.controller.rack.maintenance import MOST_REASON_CHARACTERS
from etloop.controller.rack.mqtt.message_parts import MOST_CORRELATION, MOST_TOPIC, RETRY, RequestProblem

_MOST_TIME: Final = 64


@dataclass(frozen=True, slots=True)
class ReserveRequest:
    """Keep ports for jobs of one user, or from all jobs, for a time."""

    ports: tuple[str, ...] = field(
        'Ports as "agent/port", or agents for all of their ports; at least one.', max_length=MOST_PORTS
    )
    ends_at: str = field("ISO 8601 with an offset.", max_length=_MOST_TIME)
    begins_at: str = field("ISO 8601 with an offset; empty: now.", max_length=_MOST_TIME, default="")
    user: str = field("User whose jobs get the ports; empty: no job gets them.", max_length=64, default="")
    reason: str = field("Why, for people.", max_length=MOST_REASON_CHARACTERS, default="")
    submitter: str = field("Name of the requester, for display.", max_length=256, default="")
    response_topic: str = field(
        "Response topic, for clients without MQTT 5 properties.", max_length=MOST_TOPIC, default=""
    )
    correlation: str = field(
        "Correlation data, returned with the answer; for clients without MQTT 5 properties.",
        max_length=MOST_CORRELATION,
        default="",
    )


@dataclass(frozen=True, slots=True)
class UnreserveRequest:
    """Take a reservation back."""

    reservation_id: str = field("Which.", max_length=64)
    reason: str = field("Why, for people.", max_length=MOST_REASON_CHARACTERS, default="")
    submitter: str = field("Name of the requester, for display.", max_length=256, default="")
    response_topic: str = field(
        "Response topic, for clients without MQTT 5 properties.", max_length=MOST_TOPIC, default=""
    )
    correlation: str = field(
        "Correlation data, returned with the answer; for clients without MQTT 5 properties.",
        max_length=MOST_CORRELATION,
        default="",
    )


@dataclass(frozen=True, slots=True)
class ReservationStatus:
    """A reservation that is not over."""

    reservation_id: str = field("Id, for cancelling it.")
    ports: tuple[str, ...] = field('As "agent/port".', max_length=MOST_PORTS)
    user: str = field("User whose jobs get the ports; empty: no job gets them.")
    begins_at: str = field("UTC, ISO 8601.")
    ends_at: str = field("UTC, ISO 8601.")
    who: str = field("Who made it.")
    reason: str = field("Why, for people.")


@dataclass(frozen=True, slots=True)
class ReservationResponse:
    """Answer to a `ReserveRequest` or an `UnreserveRequest`."""

    format: int = field("Version of these messages.")
    found: bool = field("Whether the reservation exists, or existed before this request.")
    reservation: ReservationStatus | None = field("The created or cancelled reservation.")
    problems: tuple[RequestProblem, ...] = field("Problems of the request.")
    correlation: str = field("As asked.")
    retry_after_ms: int = field(RETRY, minimum=0, default=0)

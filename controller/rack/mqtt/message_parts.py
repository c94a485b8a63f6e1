"""Common parts of the rack API's messages: their version, bounds, and the form of a problem. Pure."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.typed_form import field

FORMAT: Final = 1
MOST_CORRELATION: Final = 256
MOST_TOPIC: Final = 1024
RETRY: Final = "If not 0, the rack was busy and dropped the request: retry after this time."


@dataclass(frozen=True, slots=True)
class RequestProblem:
    """One problem of a request."""

    where: str = field("Key path of the part of the request.")
    what: str = field("The problem.")
    remedy: str = field("The remedy.")

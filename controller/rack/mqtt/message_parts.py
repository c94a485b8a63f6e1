"""Common parts of the rack API's messages: their version, bounds, and the form of a problem. Pure."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.typed_form import field

FORMAT: Final = 1
MOST_CORRELATION: Final = 256
MOST_TOPIC: Final = 1024
RETRY: Final = "If not 0, the rack was busy and did nothing: ask again after so long."


@dataclass(frozen=True, slots=True)
class RequestProblem:
    """One problem of a request."""

    where: str = field("Which part of the request, by key path.")
    what: str = field("What is wrong.")
    remedy: str = field("How to fix it.")

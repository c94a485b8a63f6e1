"""Who did something to a rack, as the audit trail has it: the way it came by, which is known, and the name it claims. Pure.

A broker tells nobody which account a message came from. So what a client calls itself is only quoted, and no claim reads
like the controller or another gateway.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.printable import printable

CONTROLLER: Final = "controller"
"""The rack itself."""
MQTT: Final = "mqtt"
"""A client of the broker, with an account that the broker let in."""
MOST_CLAIM_CHARACTERS: Final = 256


def actor(gateway: str, claimed: str) -> str:
    """Return who came by `gateway`; what he claims to be stands in quotes behind it."""
    if not claimed:
        return gateway
    quoted = printable(claimed[:MOST_CLAIM_CHARACTERS]).replace('"', '\\"')
    return f'{gateway} (says "{quoted}")'


def claim_problems(where: str, claimed: str) -> tuple[Problem, ...]:
    """Return what keeps a name from being kept beside a job: it is bounded, and every character of it can be seen."""
    if len(claimed) > MOST_CLAIM_CHARACTERS:
        what = f"{len(claimed)} characters"
        return (Problem(where, what, f"give at most {MOST_CLAIM_CHARACTERS}"),)
    if not claimed.isprintable():
        what = f'"{printable(claimed)}" has characters that cannot be printed'
        return (Problem(where, what, "give a name without line ends and control characters"),)
    return ()

"""Who did something to a rack, as the audit trail has it: the way it came by, which is known, and the name it claims. Pure.

A broker tells nobody which account a message came from. Its ACL may let an account write below `as/` and its own name only;
who asks there is known as `mqtt:USER`. What a client calls itself besides is only quoted, and no claim reads like a user, the
controller or another gateway.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.printable import printable
from etloop.contract.base.units import parse_name

CONTROLLER: Final = "controller"
"""The rack itself."""
MQTT: Final = "mqtt"
"""A client of the broker, with an account that the broker let in."""
MOST_CLAIM_CHARACTERS: Final = 256


def actor(gateway: str, claimed: str, user: str = "") -> str:
    """Return who came by `gateway`, as which user where that is known; what he claims to be stands in quotes behind it."""
    gateway = f"{gateway}:{user}" if user else gateway
    if not claimed or claimed == user:
        return gateway
    quoted = printable(claimed[:MOST_CLAIM_CHARACTERS]).replace('"', '\\"')
    return f'{gateway} (says "{quoted}")'


def is_user_name(text: str) -> bool:
    """Whether an account so named can be told by the level of a topic."""
    try:
        return parse_name(text) == text
    except ValueError:
        return False


def is_by(who: str, gateway: str, user: str) -> bool:
    """Whether `actor` wrote that of this user, whatever he claimed to be."""
    known = actor(gateway, "", user)
    return bool(user) and (who == known or who.startswith(f"{known} ("))


def claim_problems(where: str, claimed: str) -> tuple[Problem, ...]:
    """Return what keeps a name from being kept beside a job: it is bounded, and every character of it can be seen."""
    if len(claimed) > MOST_CLAIM_CHARACTERS:
        what = f"{len(claimed)} characters"
        return (Problem(where, what, f"give at most {MOST_CLAIM_CHARACTERS}"),)
    if not claimed.isprintable():
        what = f'"{printable(claimed)}" has characters that cannot be printed'
        return (Problem(where, what, "give a name without line ends and control characters"),)
    return ()

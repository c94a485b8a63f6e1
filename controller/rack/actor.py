"""Names of the actors in a rack's audit trail: the gateway by which a request came, and the name that it claims. Pure.

A broker does not pass on the account of a message's sender. Its ACL can restrict an account to topics below `as/` and
its own name; a client that publishes there is known as `mqtt:USER`. Any other name that a client gives is only quoted,
so no claim reads like a user, the controller or another gateway.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.printable import printable
from etloop.contract.base.units import parse_name

CONTROLLER: Final = "controller"
"""The rack itself."""
MQTT: Final = "mqtt"
"""A client of the broker, authenticated by the broker only."""
MOST_CLAIM_CHARACTERS: Final = 256


def actor(gateway: str, claimed: str, user: str = "") -> str:
    """Return the audit name: gateway, user if known, and in quotes the name that the client claims."""
    gateway = f"{gateway}:{user}" if user else gateway
    if not claimed or claimed == user:
        return gateway
    quoted = printable(claimed[:MOST_CLAIM_CHARACTERS]).replace('"', '\\"')
    return f'{gateway} (says "{quoted}")'


def is_user_name(text: str) -> bool:
    """Return whether an account name can be one level of a topic, so that its topics identify it."""
    try:
        return parse_name(text) == text
    except ValueError:
        return False


def is_by(who: str, gateway: str, user: str) -> bool:
    """Return whether `who`, as made by `actor`, is this user of this gateway, whatever name was claimed."""
    user_actor = actor(gateway, "", user)
    return bool(user) and (who == user_actor or who.startswith(f"{user_actor} ("))


def claim_problems(where: str, claimed: str) -> tuple[Problem, ...]:
    """Return why a claimed name cannot be stored with a job: it is too long or has unprintable characters."""
    if len(claimed) > MOST_CLAIM_CHARACTERS:
        problem = f"{len(claimed)} characters"
        return (Problem(where, problem, f"give at most {MOST_CLAIM_CHARACTERS}"),)
    if not claimed.isprintable():
        problem = f'"{printable(claimed)}" has unprintable characters'
        return (Problem(where, problem, "give a name without line ends and control characters"),)
    return ()

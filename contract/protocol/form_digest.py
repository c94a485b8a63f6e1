"""A short name for the form of the messages that this build speaks, by which two builds of one protocol version differ.

`PROTOCOL_VERSION` is changed by hand; this follows from the types themselves. Whoever has another digest writes or reads some
message differently. Pure.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import typing
from enum import Enum
from typing import Any, Final

import numpy as np
from etloop.contract.protocol import messages

MESSAGES: Final = "messages"
"""The digest's name among the versions of an agent."""
_DIGITS: Final = 8


@functools.cache
def messages_digest() -> str:
    """Return the digest of every message between controller and agents, with all that they hold."""
    return form_digest(messages.AgentMessage, messages.ControllerMessage)


def form_digest(*kinds: Any) -> str:
    """Return the digest of some types with all that they hold, whatever the order in which they are reached."""
    forms: dict[Any, str] = {}
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        waiting += typing.get_args(kind)
        if isinstance(kind, np.dtype):
            forms[str(kind.descr)] = f"columns {kind.descr}"
        elif not isinstance(kind, type) or kind in forms:
            continue
        elif issubclass(kind, Enum):
            members = ", ".join(f"{each.name} = {each.value!r}" for each in kind)
            forms[kind] = f"{kind.__name__}: {members}"
        elif dataclasses.is_dataclass(kind):
            fields = dataclasses.fields(kind)
            named = ", ".join(f"{each.name}: {each.type}" for each in fields)
            forms[kind] = f"{kind.__name__}: {named}"
            hints = typing.get_type_hints(kind, include_extras=True)
            waiting += [hints[each.name] for each in fields]
    return hashlib.sha256("\n".join(sorted(forms.values())).encode()).hexdigest()[:_DIGITS]

"""A short digest of the form of this build's messages, by which two builds of one protocol version differ.

`PROTOCOL_VERSION` is changed by hand; the digest follows from the types themselves. A peer with another digest encodes
or decodes some message differently. Pure.
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
"""Key of the digest in the versions of an agent."""
_DIGITS: Final = 8


@functools.cache
def messages_digest() -> str:
    """Return the digest of every message between controller and agents, with all types that they contain."""
    return form_digest(messages.AgentMessage, messages.ControllerMessage)


def form_digest(*kinds: Any) -> str:
    """Return the digest of some types with all types that they contain, whatever the order in which they are reached."""
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
            members = ", ".join(f"{member.name} = {member.value!r}" for member in kind)
            forms[kind] = f"{kind.__name__}: {members}"
        elif dataclasses.is_dataclass(kind):
            fields = dataclasses.fields(kind)
            field_texts = ", ".join(f"{member.name}: {member.type}" for member in fields)
            forms[kind] = f"{kind.__name__}: {field_texts}"
            hints = typing.get_type_hints(kind, include_extras=True)
            waiting += [hints[member.name] for member in fields]
    return hashlib.sha256("\n".join(sorted(forms.values())).encode()).hexdigest()[:_DIGITS]

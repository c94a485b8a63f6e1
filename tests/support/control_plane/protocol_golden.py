"""Golden bytes of every message in every minor version that is still spoken.

`python -m tests.support.control_plane.protocol_golden` adds a file.

The file of a version is written once, by that version, and never again: it stands for peers that are out there.
"""

from __future__ import annotations

import json
from typing import Final

from etloop.contract.protocol.codec import encode
from etloop.contract.protocol.messages import PROTOCOL_VERSION

from tests.contract.test_codec import FROM_AGENT, FROM_CONTROLLER
from tests.support.places import ROOT

DIRECTORY: Final = ROOT / "tests" / "data" / "protocol"


def golden(major: int, minor: int) -> dict[str, bytes]:
    """Message name -> its bytes as that version wrote them."""
    stored = json.loads((DIRECTORY / f"{major}.{minor}.json").read_text())
    return {name: bytes.fromhex(text) for name, text in stored.items()}


if __name__ == "__main__":
    written = {type(message).__name__: encode(message).hex() for message in (*FROM_AGENT, *FROM_CONTROLLER)}
    (DIRECTORY / f"{PROTOCOL_VERSION}.json").write_text(json.dumps(written, indent=0) + "\n")

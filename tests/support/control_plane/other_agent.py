"""An agent of another version: `python -m tests.support.control_plane.other_agent MAJOR.MINOR run ...`.

What it says and understands is what that version has of today's messages; it refuses every other version, as agents
did before there was more than one. It is told its version before the codec is imported.
"""

from __future__ import annotations

import sys

from etloop.contract.protocol import messages

if __name__ == "__main__":
    major, minor = map(int, sys.argv.pop(1).split("."))
    version = messages.ProtocolVersion(major, minor)
    messages.PROTOCOL_VERSION = version  # type: ignore[misc]
    # A newer one still speaks ours, or there would be nothing to test.
    messages.OLDEST_MINOR = min(minor, messages.OLDEST_MINOR)  # type: ignore[misc]
    from etloop.agent.cli import main

    sys.exit(main())

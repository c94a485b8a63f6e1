"""An agent of another version: `python -m tests.support.control_plane.other_agent VERSION run ...`.

It is told its version before what it says and understands is derived from it.
"""

from __future__ import annotations

import sys

from etloop.contract.protocol import messages

if __name__ == "__main__":
    messages.PROTOCOL_VERSION = int(sys.argv.pop(1))  # type: ignore[misc]
    from etloop.agent.cli import main

    sys.exit(main())

"""Write the JSON Schemas of the rack API: `python -m etloop.controller.rack.mqtt.publish_schemas docs/rack-api`.

A test checks that they are current.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from etloop.contract.protocol.json_schema import schema_of
from etloop.controller.rack.mqtt.encoding import PUBLISHED_RULES, REQUEST_RULES
from etloop.controller.rack.mqtt.messages import PUBLISHED, REQUESTS


def file_name(kind: type) -> str:
    """Return the file name of a message's schema."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower() + ".schema.json"


def schema_files() -> dict[str, str]:
    """Return file name -> content of every schema."""
    files = {}
    for kind in (*REQUESTS, *PUBLISHED):
        title = (kind.__doc__ or "").strip()
        schema = schema_of(kind, title, PUBLISHED_RULES if kind in PUBLISHED else REQUEST_RULES)
        files[file_name(kind)] = json.dumps(schema, indent=2) + "\n"
    return files


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in schema_files().items():
        (directory / name).write_text(content)

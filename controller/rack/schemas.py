"""Writes the JSON Schemas of the rack API: `python -m controller.rack.schemas docs/rack-api`. A test holds them current."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from controller.rack.messages import REQUESTS, TOLD
from controller.rack.typed_form import schema_of


def schema_files() -> dict[str, str]:
    """File name -> content."""
    files = {}
    for kind in (*REQUESTS, *TOLD):
        name = re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
        title = (kind.__doc__ or "").strip()
        files[f"{name}.schema.json"] = json.dumps(schema_of(kind, title), indent=2) + "\n"
    return files


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for file_name, content in schema_files().items():
        (directory / file_name).write_text(content)

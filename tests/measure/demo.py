"""Run `etloop demo`, and write its five lines to the README and to the kept record that a test compares them with.

    python -m tests.measure.demo

The record names commit and machine: run it anew when the wording of the answer or of the demo changes.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
import tempfile
from typing import Final

from tests.support.docs.records import OUTCOMES
from tests.support.places import ROOT

RECORD: Final = "demo"
COMMAND: Final = ("-P", "-m", "etloop.cli.main", "demo")
FENCE: Final = re.compile(rf"(?<=```text record={RECORD}\n).*?(?=```\n)", re.DOTALL)


def main() -> int:
    """Write the record and the README. Return the exit code of the demo, and write nothing unless it is 0."""
    with tempfile.TemporaryDirectory() as directory:
        demo = subprocess.run((sys.executable, *COMMAND), cwd=directory, check=False, stdout=subprocess.PIPE)
    if demo.returncode:
        return demo.returncode
    commit = subprocess.run(
        ("git", "rev-parse", "--short=12", "HEAD"), cwd=ROOT, check=True, capture_output=True, text=True
    )
    text = demo.stdout.decode()
    record = {
        "command": "python -m tests.measure.demo",
        "machine": "two cores of a virtual machine, with other work on them",
        "commit": commit.stdout.strip(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "source": "standard output of etloop demo",
        "lines": text.splitlines(),
    }
    path = OUTCOMES / f"{RECORD}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    page = ROOT / "README.md"
    page.write_text(FENCE.sub(lambda _: text, page.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

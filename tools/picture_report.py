"""Take the picture of a report for README.md: `python tools/picture_report.py RUN_DIR docs/pictures/report.png`.

Shows the begin of the page, up to its plots over time, by a headless Chromium (Debian package chromium).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

SIZE: Final = "1160,2170"


def main() -> int:
    """Take the picture; return the exit code of the browser."""
    run_dir, picture = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("tools/picture_report.py: there is no Chromium; apt-get install chromium")
    page = (run_dir / "report.html").resolve()
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}"]
        command += [f"--user-data-dir={profile}", f"--screenshot={picture}", page.as_uri()]
        return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode


if __name__ == "__main__":
    sys.exit(main())

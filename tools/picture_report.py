"""Take the picture of a report for README.md: `python tools/picture_report.py RUN_DIR docs/pictures/report.png`.

Shows the head of the report and the plots of two of its sections, by a headless Chromium (Debian package chromium).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

SIZE: Final = "1000,1275"
_SHOWN: Final = """<script>
let shown = true;
for (const part of [...document.body.children]) {
  if (part.tagName === "H2") shown = ["Completion", "Ports over time"].includes(part.textContent.trim());
  if (!shown && part.tagName !== "SCRIPT") part.remove();
}
</script>
"""


def main() -> int:
    """Take the picture; return the exit code of the browser."""
    run_dir, picture = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("tools/picture_report.py: there is no Chromium; apt-get install chromium")
    report = (run_dir / "report.html").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "report.html"
        page.write_text(report.replace("</body>", f"{_SHOWN}</body>"), encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}"]
        command += ["--virtual-time-budget=5000", f"--screenshot={picture}", page.as_uri()]
        return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Run the command `etloop` as `python -m etloop`."""

import sys

from etloop.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

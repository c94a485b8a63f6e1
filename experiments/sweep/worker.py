"""The main module of a worker process: calls from standard input, answers to standard output, until the input ends.

Everything that code of a call prints goes to standard error, so that it cannot damage the answers. Ctrl-C is left to the
parent, which ends its workers; if the parent is killed, the kernel ends them (prctl(2), PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import resource
import signal
import sys
import traceback
from typing import Any, BinaryIO, Final

from etloop.runtime.module_loading import leave_out_pandas, quick_loading
from etloop.runtime.stop_signals import ignore_stops

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Serve calls."""
    leave_out_pandas()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with ignore_stops(signal.SIGINT), os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, answers)


def serve(calls: BinaryIO, answers: BinaryIO) -> None:
    """Answer every call of a stream: its value or exception, and the largest memory of this process in bytes."""
    while True:
        try:
            with quick_loading():
                function, arguments, named = pickle.load(calls)  # noqa: S301 - written by our own parent
        except EOFError:
            return
        result: Any
        try:
            result = function(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - raised again by the parent
            result = error
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        try:
            content = pickle.dumps((result, peak_bytes), pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 - whatever the value's class raises
            content = pickle.dumps((RuntimeError(traceback.format_exc()), peak_bytes))
        answers.write(content)
        answers.flush()


if __name__ == "__main__":
    main()

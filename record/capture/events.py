"""Write the events of one rank as JSON lines, and say where in the script the current call is.

The form of each line is defined by workload/recording/events.py, which reads it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TextIO


class Refusal(RuntimeError):
    """Something that cannot be recorded truthfully: fault and remedy."""

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(f"{fault}; {remedy}")
        self.what, self.remedy = fault, remedy


class ScriptPlaces:
    """Finds the frame of the user's script among those of PyTorch and of this package."""

    def __init__(self, torch_directory: str, own_directory: str = "") -> None:
        """`own_directory` is that of an installed package that is run as the script."""
        self._own = own_directory
        self._foreign = (
            str(Path(torch_directory)),
            str(Path(__file__).parent),
            str(Path(json.__file__).parents[1]),
            "<",
        )

    def current(self) -> str:
        """Return `FILE:LINE` of the innermost call that the script made, "" outside the script."""
        return self._of_frame(sys._getframe(1))

    def of_error(self, traceback: TracebackType | None) -> str:
        """Return the place of the innermost script frame of a traceback, "" if it has none."""
        place = ""
        while traceback is not None:
            if not self._is_foreign(traceback.tb_frame.f_code.co_filename):
                place = f"{Path(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno}"
            traceback = traceback.tb_next
        return place

    def _of_frame(self, frame: FrameType | None) -> str:
        while frame is not None:
            name = frame.f_code.co_filename
            if not self._is_foreign(name):
                return f"{Path(name).name}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _is_foreign(self, name: str) -> bool:
        if self._own and name.startswith(self._own):
            return False
        return name.startswith(self._foreign) or "site-packages" in name


class EventFile:
    """The events of a rank, one JSON object a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._texts: dict[str, int] = {}

    def write(self, **event: Any) -> None:
        """Append one event."""
        self._file.write(json.dumps(event, separators=(",", ":")) + "\n")

    def text_number(self, text: str) -> int:
        """Return the number of a text that many events share; its first use writes the text."""
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._texts)
            self.write(kind="text", number=number, text=text)
        return number

    def flush(self) -> None:
        """Hand everything written to the operating system."""
        self._file.flush()

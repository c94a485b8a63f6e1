"""CUDA streams: which of them work is issued on, and the waits of streams and of the host.

record/gpu/cuda_runtime.c logs each event that is recorded or waited for, in the order of the calls, those of PyTorch's C++ code
included. The log is written as events of the recording before the next operator is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import torch

from .events import Refusal

HOST: Final = 1
"""The stream of work on tensors of the host. CUDA's numbers of streams that PyTorch makes are higher; 0 is the default stream."""
_RECORD, _WAIT, _EVENT_ON_HOST, _STREAM_ON_HOST, _DEVICE_ON_HOST, _QUERY = range(1, 7)
_BATCH: Final = 256


class _Entry(ctypes.Structure):
    _fields_ = (("what", ctypes.c_uint32), ("event", ctypes.c_uint32), ("stream", ctypes.c_uint64))


class Streams:
    """The streams of a rank whose device has no hardware."""

    def __init__(self, library: str, write: Callable[..., None], note: Callable[[str], None]) -> None:
        """`library` is the preloaded one; `write` appends an event, `note` a remark."""
        loaded = ctypes.CDLL(library)
        self._log: Any = loaded.etloop_log
        self._log.argtypes = (ctypes.c_uint64, ctypes.POINTER(_Entry), ctypes.c_int)
        self._logged = ctypes.c_uint64.in_dll(loaded, "etloop_logged")
        self._launches = ctypes.c_uint64.in_dll(loaded, "etloop_kernel_launches")
        self._entries = (_Entry * _BATCH)()
        self._next = self._logged.value
        self._write, self._note = write, note

    def current(self) -> int:
        """Return the stream on which this thread issues work, after writing what was logged."""
        if self._logged.value != self._next:
            self.write_log()
        return int(torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice()))

    def skip_log(self) -> None:
        """Forget what was logged since the last event: it belongs to work that is not recorded."""
        self._next = self._logged.value

    def write_log(self) -> None:
        """Write everything that was logged since the last event."""
        while self._next < self._logged.value:
            count = self._log(self._next, self._entries, _BATCH)
            if count < 0:
                raise Refusal(
                    "more events were recorded between two operators than the log holds",
                    "record fewer CUDA events in a loop without operators",
                )
            self._next += count
            for entry in self._entries[:count]:
                self._write_entry(entry.what, entry.event, entry.stream)

    def _write_entry(self, kind: int, event: int, stream: int) -> None:
        if kind == _RECORD:
            self._write(kind="event-record", event=event, stream=stream)
        elif kind == _WAIT:
            self._write(kind="event-wait", event=event, stream=stream)
        elif kind == _EVENT_ON_HOST:
            self._write(kind="event-on-host", event=event, stream=HOST)
        elif kind == _STREAM_ON_HOST:
            self._write(kind="host", reads=[], stream=stream)
        elif kind == _DEVICE_ON_HOST:
            self._write(kind="device-on-host", stream=HOST)
        elif kind == _QUERY:
            self._note("queries of CUDA events are answered: all work is done, 1 ms between two events")

    def finish(self) -> None:
        """Write the rest of the log, and a remark if kernels were launched."""
        self.write_log()
        if self._launches.value:
            self._note(
                f"{self._launches.value} kernels were launched on tensors with data: their results are unknown"
            )

"""A wire that writes the frames that cross it to a file, for the duration of an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etloop.experiments.nic.link.pcapng import PcapngFile
    from etloop.experiments.nic.link.wire import Answered, Arrival, Departure, Wire
    from etloop.traffic._native import IpFlow


class KeptWire:
    """A `Wire` in front of another."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._capture: PcapngFile | None = None
        self._sent = self._received = 0

    @property
    def flows(self) -> tuple[IpFlow, ...]:
        """See `Wire`."""
        return self._wire.flows

    @property
    def resolution_ns(self) -> int:
        """See `Wire`."""
        return self._wire.resolution_ns

    def begin(self, capture: PcapngFile) -> None:
        """Capture frames from now on."""
        self._capture, self._sent, self._received = capture, 0, 0

    def end(self) -> tuple[int, int]:
        """Stop capturing; return the numbers of frames sent and received."""
        self._capture = None
        return self._sent, self._received

    def now_ns(self) -> int:
        """See `Wire`."""
        return self._wire.now_ns()

    def send(self, departure: Departure) -> int:
        """See `Wire`."""
        left_ns = self._wire.send(departure)
        self._sent += 1
        if self._capture is not None:
            self._capture.add(left_ns, self._wire.frame_of(departure))
        return left_ns

    def send_frame(self, frame: bytes) -> int:
        """See `Wire`."""
        left_ns = self._wire.send_frame(frame)
        self._sent += 1
        if self._capture is not None:
            self._capture.add(left_ns, frame)
        return left_ns

    def receive(self, until_ns: int) -> Arrival | None:
        """See `Wire`."""
        arrival = self._wire.receive(until_ns)
        if arrival is not None:
            self._received += 1
            if self._capture is not None:
                self._capture.add(arrival.at_ns, arrival.frame)
        return arrival

    def answer_requests(
        self, acknowledgement: Departure, our_qpn: int, most: int, until_ns: int | None
    ) -> Answered | None:
        """Acknowledge requests, see `Wire`. The headers of requests are captured; acknowledgements are only counted."""
        result = self._wire.answer_requests(acknowledgement, our_qpn, most, until_ns)
        if result is not None:
            self._received += len(result.times_ns)
            self._sent += result.acknowledgements
            if self._capture is not None:
                for at_ns, head, size in zip(result.times_ns, result.heads, result.frame_bytes, strict=True):
                    self._capture.add(at_ns, head[:size], size)
        return result

    def take_drop_count(self) -> int:
        """See `Wire`."""
        return self._wire.take_drop_count()

    def frame_of(self, departure: Departure) -> bytes:
        """See `Wire`."""
        return self._wire.frame_of(departure)

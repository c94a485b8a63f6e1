"""The congestion control of aimd.cpp in Python, for the twin: additive increase, multiplicative decrease of a window.

import etloop
from aimd import Aimd

etloop.run_twin("scenario.yaml", topology="topology.yaml", congestion_control=Aimd)
"""

from __future__ import annotations

from typing import ClassVar

import etloop


class Aimd(etloop.CongestionControl):
    """A window that grows by a packet a round trip and is halved by a mark or a loss."""

    needs = etloop.Need.ECN
    parameters: ClassVar = {"increase": 1.0, "cut": 0.5, "initial_window": 16.0}

    def __init__(self, path: etloop.CongestionPath, now_ns: int) -> None:
        super().__init__(path, now_ns)
        self.window = path.parameters["initial_window"] * path.mtu_bytes
        self.cut_until_bytes = 0  # one cut for each window of data: what was sent before it says nothing new
        self.decide()

    def on_ack(self, ack: etloop.CongestionAck) -> None:
        if ack.ecn_marked:
            self.cut(ack.acked_total_bytes, ack.sent_total_bytes)
        else:
            grown = self.path.parameters["increase"] * self.path.mtu_bytes
            self.window += grown * float(ack.acked_bytes) / self.window
        self.decide()

    def on_nak(self, loss: etloop.CongestionSignal) -> None:
        self.cut(loss.acked_total_bytes, loss.sent_total_bytes)
        self.decide()

    on_timeout = on_nak

    def cut(self, acked_bytes: int, sent_bytes: int) -> None:
        """Take a share of the window, once for each window of data."""
        if acked_bytes >= self.cut_until_bytes:
            self.window *= 1 - self.path.parameters["cut"]
            self.cut_until_bytes = sent_bytes

    def decide(self) -> None:
        """Keep the window within what the transport allows, and say it."""
        least = float(self.path.mtu_bytes)
        self.window = min(max(self.window, least), max(least, float(self.path.most_window_bytes)))
        self.window_bytes = int(self.window)

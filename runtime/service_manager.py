"""Notifies systemd of this process's state, and feeds its watchdog (sd_notify(3)). A shell: a socket.

Without systemd, or with a unit that asks for no notifications, every call does nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from etloop.contract.base.clock import NS_PER_US


class ServiceManager:
    """The service manager that started this process, if one did and asks for notifications."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # systemd writes an abstract address with "@" in place of its first byte, 0.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        interval_us = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._feed_ns = int(interval_us) * NS_PER_US // 4 if interval_us.isdecimal() and is_ours else 0
        """Interval of the watchdog's messages: a quarter of its limit; 0 without a watchdog."""
        self._fed_ns: int | None = None

    def ready(self) -> None:
        """Notify that the process serves."""
        self._notify("READY=1")

    def stopping(self) -> None:
        """Notify that the process is ending."""
        self._notify("STOPPING=1")

    def turn(self, now_ns: int) -> None:
        """Feed the watchdog if its time has come. Call it every turn of the loop whose standstill systemd is to notice."""
        if self._feed_ns and (self._fed_ns is None or now_ns - self._fed_ns >= self._feed_ns):
            self._fed_ns = now_ns
            self._notify("WATCHDOG=1")

    def _notify(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
                notifying.setblocking(False)
                notifying.sendto(text.encode(), self._address)
        except OSError:
            return  # No descriptor is free, or systemd is busy: the watchdog's next message follows well within its limit.

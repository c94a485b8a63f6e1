"""Departure times on the kernel of the machine, whose queueing discipline fq many hosts' kernels do not have.

What runs there is the native test of departures and stamps, which makes a veth pair with fq and looks at when frames arrive.
"""

from __future__ import annotations

import pytest

from tests.interop.machine import ROOT, Machine

PROGRAM = ROOT / "build" / "native" / "tests" / "test_departures"
SOURCES = (ROOT / "tests/native/port/test_departures.cpp", ROOT / "traffic/native/port/udp_port.cpp")

pytestmark = pytest.mark.timeout(300)


def test_packets_leave_a_udp_port_at_their_times(machine: Machine) -> None:
    """Handed over all at once, 10 ms apart at the other end; and nothing of the test was skipped."""
    assert PROGRAM.exists(), "make test builds build/native/tests/test_departures"
    newest_s = max(path.stat().st_mtime for path in SOURCES)
    assert PROGRAM.stat().st_mtime > newest_s, "older than its sources; make test builds it"
    with machine.running(str(PROGRAM)) as program:
        printed = program.rest(120)
    assert program.code == 0, "\n".join(printed)
    assert printed == []

"""Departure times on the kernel of the machine, whose queueing discipline fq many hosts' kernels do not have.

What runs there is the native test of departures and stamps, which makes a veth pair with fq and looks at when frames arrive.
"""

from __future__ import annotations

import pytest

from tests.interop.machine import CACHE, ROOT, Machine

PROGRAM = ROOT / "build" / "tests" / "test_departures"
SOURCES = (ROOT / "tests" / "native" / "test_departures.cpp", ROOT / "traffic" / "native" / "udp_port.cpp")

pytestmark = pytest.mark.timeout(300)


def test_packets_leave_a_udp_port_at_their_times(machine: Machine) -> None:
    """Handed over all at once, 10 ms apart at the other end; and nothing of the test was skipped."""
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < max(path.stat().st_mtime for path in SOURCES):
        pytest.skip("build/tests/test_departures is not there or older than its sources; make test builds it")
    if not (CACHE / "modules" / "sch_fq.ko").exists():
        pytest.skip(
            f"the kernel in {CACHE.name} was unpacked without sch_fq; remove that folder, and it is fetched anew"
        )
    with machine.running(str(PROGRAM)) as program:
        said = program.rest(120)
    assert program.code == 0, "\n".join(said)
    assert said == []

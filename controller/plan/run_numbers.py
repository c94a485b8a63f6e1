"""The numbers by which packets of one run differ from those of another: the run's nonce, and values derived from it. Pure.

A device may still hold packets of the previous run. If queue pair numbers, keys and sequence numbers were the same in every
run of a scenario, the next run would accept them as its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from etloop.controller.inputs.scenario.transport import Transport

PLAN_ID: Final = "plan"
"""Run id of a plan that is only shown."""
TWIN_ID: Final = "twin"
"""Run id of virtual time, which leaves no packets in any device and must be reproducible."""
_PSN_STEP: Final = 1 << 12
"""First sequence numbers are multiples of it, so that every run requests acknowledgements at the same packets."""


def run_nonce(transport: Transport, run_id: str, drawn: int) -> int:
    """Return the nonce of a run, 0 to 2^32 - 1: as the scenario states it, else the one drawn for this run.

    0 for plans that are only shown and for virtual time. `drawn` is random, because a rack publishes run ids while the
    runs go on: whoever could compute the numbers from one could forge packets without seeing any.
    """
    if transport.run_nonce is not None:
        return transport.run_nonce
    if run_id in (PLAN_ID, TWIN_ID):
        return 0
    return drawn


def with_first_psn(transport: Transport, nonce: int) -> Transport:
    """Return the transport with a first sequence number derived from the nonce, unless the scenario states one."""
    if transport.psn_stated or nonce == 0:
        return transport
    psn = nonce % ((1 << 24) // _PSN_STEP) * _PSN_STEP
    return replace(transport, recovery=replace(transport.recovery, initial_psn=psn))

"""What tells the packets of one run from those of another: a number of the run, and what follows from it. Pure.

A device may still hold packets of a run that is over. Where queue pair numbers, keys and sequence numbers were the same in
every run of a scenario, the next one would take them for its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from etloop.controller.inputs.scenario.transport import Transport

PLAN_ID: Final = "plan"
"""Run of a plan that is looked at and not carried out."""
TWIN_ID: Final = "twin"
"""Run in virtual time: nothing is left of it in any device, and it is the same every time."""
_PSN_STEP: Final = 1 << 12
"""First sequence numbers are multiples of it, so that acknowledgements are asked for at the same packets in every run."""


def run_nonce(transport: Transport, run_id: str) -> int:
    """The number of a run, 0 to 2^32 - 1: as the scenario fixes it, or drawn from the name of the run. 0: there is none."""
    if transport.run_nonce is not None:
        return transport.run_nonce
    if run_id in (PLAN_ID, TWIN_ID):
        return 0
    return int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=4).digest(), "little")


def with_first_psn(transport: Transport, nonce: int) -> Transport:
    """The settings with the first sequence number of that run, unless the scenario states one."""
    if transport.psn_stated or nonce == 0:
        return transport
    psn = nonce % ((1 << 24) // _PSN_STEP) * _PSN_STEP
    return replace(transport, recovery=replace(transport.recovery, initial_psn=psn))

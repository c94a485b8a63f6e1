"""Where a device goes by the VLAN tag: data and notifications are held against its maps by their PCP."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.dut_profiles.model.findings import ProfileVerdict
from etloop.dut_profiles.rules.job import check_job
from tests.dut_profiles.test_contradictions import JOB, SOUND, found, profile

TRUSTS_PCP = SOUND.replace("trust: dscp", "trust: pcp")
TWO_PAUSED = TRUSTS_PCP.replace("[3], w", "[3, 6], w").replace("group: {default: 0, 3: 3}", "group: identity")


@pytest.mark.parametrize(
    ("text", "cnp_pcp", "message"),
    [
        (
            TRUSTS_PCP,
            3,
            (
                "s.yaml: transport.cnp.pcp: data (PCP 3) and notifications (PCP 3) both leave by queue 3; "
                "notifications wait in the queue they report: choose another PCP"
            ),
        ),
        (
            TWO_PAUSED,
            6,
            (
                "s.yaml: transport.cnp.pcp: notifications (PCP 6) have priority 6, for which PFC is on; "
                "a pause stops them, too: choose a lossy class"
            ),
        ),
    ],
)
def test_notifications_are_told_apart_by_their_pcp(text: str, cnp_pcp: int, message: str) -> None:
    job = replace(JOB, pcp=3, cnp_pcp=cnp_pcp)
    assert found(check_job(profile(text), job)) == {"job-cnp-with-data": message}


@pytest.mark.parametrize(
    ("pcp", "cnp_pcp", "why"),
    [
        (3, 6, "another queue, which nothing pauses"),
        (3, None, "no tag says which priority notifications have"),
    ],
)
@pytest.mark.parametrize("cnp_dscp", [26, 48])
def test_the_dscp_counts_for_nothing_then(pcp: int, cnp_pcp: int | None, cnp_dscp: int, why: str) -> None:
    job = replace(JOB, pcp=pcp, cnp_pcp=cnp_pcp, cnp_dscp=cnp_dscp, dscp=0)
    assert check_job(profile(TRUSTS_PCP), job) == ProfileVerdict(), why

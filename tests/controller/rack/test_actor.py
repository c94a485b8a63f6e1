"""Who did something: a claim is quoted and never reads like somebody else, and nothing of others moves a terminal."""

from __future__ import annotations

import pytest

from etloop.cli.text.job import audit_line
from etloop.contract.base.printable import printable
from etloop.controller.rack.actor import CONTROLLER, MOST_CLAIM_CHARACTERS, MQTT, actor, claim_problems
from etloop.controller.rack.store.job_store import AuditLine

FORGED = "me\n2026-11-23T00:00:00Z  controller: queued -> finished\x1b[2J\x9b1A\u202e\u2028"


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        ("", "mqtt"),
        ("automation", 'mqtt (says "automation")'),
        (CONTROLLER, 'mqtt (says "controller")'),
        ('x"): controller (y', 'mqtt (says "x\\"): controller (y")'),
    ],
)
def test_a_claim_stands_in_quotes_behind_the_way_it_came_by(claimed: str, expected: str) -> None:
    assert actor(MQTT, claimed) == expected


def test_a_claim_of_any_length_and_content_stays_one_short_line() -> None:
    text = actor(MQTT, FORGED + "x" * 10_000)
    assert text.isprintable()
    assert len(text) < 2 * MOST_CLAIM_CHARACTERS


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        ("jenkins #17, Zoë", ""),
        ("a\nb", 'submitter: "a\\nb" has unprintable characters; give a name without line ends'),
        ("\x1b[31m", 'submitter: "\\x1b[31m" has unprintable characters'),
        ("x" * 257, "submitter: 257 characters; give at most 256"),
    ],
)
def test_a_name_that_cannot_be_printed_is_refused_by_its_key(claimed: str, expected: str) -> None:
    found = "".join(map(str, claim_problems("submitter", claimed)))
    assert found.startswith(expected) if expected else found == ""


def test_what_is_printed_of_a_line_kept_long_ago_forges_no_other() -> None:
    printed = audit_line(AuditLine(1, "2026-11-23T00:00:00Z", FORGED, "submitted", "j", "why\nnot\x1b[0m"))
    assert printed.count("\n") == 1
    assert printed.rstrip("\n").isprintable()
    assert "me\\n2026-11-23T00:00:00Z  controller: queued -> finished\\x1b[2J\\x9b1A\\u202e\\u2028" in printed


def test_what_can_be_seen_is_left_as_it_is() -> None:
    assert printable("Zoë, 開始 \\n") == "Zoë, 開始 \\n"
    assert printable("\ud800\x00\x7f") == "\\ud800\\x00\\x7f"

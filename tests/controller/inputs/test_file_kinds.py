"""A file of another kind than expected is named as such, once."""

from __future__ import annotations

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.file_kinds import refuse_other_kind

RIG = b"controller: {bind: 'tcp://127.0.0.1:9'}\nagents:\n  - {name: a}\n"
SCENARIO = b"# a job\nworkload: {trace: t}\nseed: 1\n"


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        (RIG, "scenario", "f: is a rig, not a scenario; give it with --rig"),
        (SCENARIO, "rig", "f: is a scenario, not a rig"),
        (b"leaf_spine:\n  spines: 2\n", "scenario", "f: is a topology, not a scenario"),
        (b'{"schemaVersion": 1, "traceEvents": []}', "scenario", "f: is a trace, not a scenario; name it"),
        (b"\x08\x01\x00\xff", "scenario", "f: is a trace, not a scenario"),
    ],
)
def test_file_of_another_kind_is_refused(text: bytes, expected: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        refuse_other_kind(text, "f", expected)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "expected"), [(RIG, "rig"), (SCENARIO, "scenario"), (b"colour: red\n", "rig"), (b"", "scenario")]
)
def test_expected_or_unknown_file_is_left_to_its_reader(text: bytes, expected: str) -> None:
    refuse_other_kind(text, "f", expected)

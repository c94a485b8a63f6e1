"""Whatever bytes come for a case, it is opened whole or refused, and nothing is ever written outside its own directory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import InputError
from etloop.controller.case.pack import CaseMaker, packed_case
from etloop.controller.case.unpack import opened_case
from etloop.results.schema.case import CaseRole, Repeat, RepeatedBy, case_from_json
from etloop.results.store.case_archive import open_archive

SHARED_DIRECTORY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)


def case() -> bytes:
    maker = CaseMaker()
    for name, role in (
        ("scenario.yaml", CaseRole.SCENARIO),
        ("rig.yaml", CaseRole.RIG),
        ("inputs/a", CaseRole.TRACE),
    ):
        maker.put(name, role, f"{name}: 1\n".encode() * 9)
    return packed_case(maker.to_inputs(""), "r", "0", RepeatedBy(Repeat.RUN))


CASE = case()


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """The case with bytes changed, taken out, put in or repeated, or cut off."""
    mutant = bytearray(CASE)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(mutant) - 1)))
        match draw(st.sampled_from(["change", "delete", "insert", "repeat", "cut"])):
            case "change":
                mutant[at : at + 1] = draw(st.binary(min_size=1, max_size=4))
            case "delete":
                del mutant[at : at + draw(st.integers(1, 40))]
            case "insert":
                mutant[at:at] = draw(st.binary(min_size=1, max_size=40))
            case "repeat":
                mutant[at:at] = mutant[at : at + draw(st.integers(1, 200))]
            case _:
                del mutant[at:]
    return bytes(mutant)


def opened(directory: Path, archive: bytes) -> bool:
    path = directory / "case.zip"
    path.write_bytes(archive)
    try:
        with opened_case(path) as found:
            assert found.scenario.read_bytes() == b"scenario.yaml: 1\n" * 9
            assert found.rig.read_bytes() == b"rig.yaml: 1\n" * 9
    except InputError:
        return False
    return True


def test_the_seed_itself_is_opened(tmp_path: Path) -> None:
    assert opened(tmp_path, CASE)


@SHARED_DIRECTORY
@given(archive=mutants())
def test_mutants_of_a_case(tmp_path: Path, archive: bytes) -> None:
    room = tmp_path / "room"
    room.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(room))
        opened(tmp_path, archive)
    assert list(room.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"room", "case.zip"}


@SHARED_DIRECTORY
@given(archive=st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, archive: bytes) -> None:
    assert not opened(tmp_path, archive)


@SHARED_DIRECTORY
@given(
    text=st.text(max_size=200)
    | st.sampled_from(["{}", "[]", "1", "null", '{"schema": 1}', '{"schema": "x"}'])
)
def test_any_manifest(text: str) -> None:
    with pytest.raises(InputError):
        case_from_json(text, "case.json")


@SHARED_DIRECTORY
@given(at=st.integers(0, 1 << 16), byte=st.integers(0, 255))
def test_one_byte_of_the_manifest(tmp_path: Path, at: int, byte: int) -> None:
    """Every manifest that is read has the types that it should have."""
    path = tmp_path / "case.zip"
    path.write_bytes(CASE)
    with open_archive(path) as archive:
        text = bytearray(archive.read("case.json", 1 << 20))
    text[at % len(text)] = byte
    try:
        found = case_from_json(text.decode(errors="replace"), "case.json")
    except InputError:
        return
    assert all(isinstance(file.inside, bool) and isinstance(file.size_bytes, int) for file in found.files)

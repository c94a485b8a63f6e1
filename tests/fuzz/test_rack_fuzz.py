"""Whatever comes to a rack from outside, it is read or refused, and nothing else is raised."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etloop.controller.rack.mqtt.encoding import content_type, decode_request
from etloop.controller.rack.mqtt.messages import CancelRequest, SubmitRequest
from etloop.controller.rack.mqtt.return_address import return_address
from etloop.controller.rack.mqtt.topics import Topics
from etloop.controller.rack.transfers.trace_check import found_problems

BLOCK = 512
SIZE, CHECKSUM, KIND = slice(124, 136), slice(148, 156), 156
SIZES = (b"77777777777\0", b"\x80" + b"\xff" * 11, b"-1" + bytes(10), b"\xff" * 12)
SHARED_DIRECTORY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None
)
REQUEST = b'{"scenario": "x", "ports": ["a/p0"], "response_topic": "my/answers", "correlation": "c"}'


def archive(form: int) -> bytes:
    """Two files with nothing in them that a trace has."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as packed:
        for name in ("x.0.et", "y" * 200 + ".1.et"):
            about = tarfile.TarInfo(name)
            about.size = 700
            packed.addfile(about, io.BytesIO(bytes(700)))
    return file.getvalue()


ARCHIVES = tuple(archive(form) for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))


def summed(content: bytearray) -> bytes:
    """With checksums that hold, so that what a header says is believed."""
    for at in range(0, len(content) - BLOCK + 1, BLOCK):
        header = content[at : at + BLOCK]
        if header[257:262] == b"ustar":
            header[CHECKSUM] = b" " * 8
            content[at + CHECKSUM.start : at + CHECKSUM.stop] = b"%06o\0 " % sum(header)
    return bytes(content)


@SHARED_DIRECTORY
@given(
    st.sampled_from(ARCHIVES),
    st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=4),
    st.sampled_from((None, *SIZES)),
    st.sampled_from((None, *b"01234567LKxgSVDMN\x80")),
    st.integers(0, 1 << 14),
)
def test_an_archive(
    tmp_path: Path,
    seed: bytes,
    flips: list[tuple[int, int]],
    size: bytes | None,
    kind: int | None,
    cut: int,
) -> None:
    content = bytearray(seed)
    for at, value in flips:
        content[at % len(content)] = value
    if size is not None:
        content[SIZE] = size
    if kind is not None:
        content[KIND] = kind
    if cut % 3 == 0:
        del content[cut % len(content) :]
    path = tmp_path / "x.tar"
    path.write_bytes(summed(content))
    assert found_problems(path), "none of them is a trace"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, len(REQUEST)), st.booleans())
def test_a_request(noise: bytes, at: int, inside: bool) -> None:
    body = REQUEST[:at] + noise + REQUEST[at:] if inside else noise
    form = content_type(body, "")
    for kind in (SubmitRequest, CancelRequest):
        read, problems = decode_request(kind, body, form)
        assert (read is None) == bool(problems)
    address = return_address(body, form)
    assert len(address.response_topic) <= 1024
    assert len(address.correlation) <= 256
    Topics("rack").may_respond_on(address.response_topic)


@pytest.mark.parametrize("seed", ARCHIVES)
def test_the_archives_are_read_as_they_are(tmp_path: Path, seed: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(summed(bytearray(seed)))
    assert not any("cannot be read: no tar" in str(each) for each in found_problems(path))

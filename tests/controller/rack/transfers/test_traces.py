"""Traces that are uploaded: named by digest, bounded in all, checked before a job may name them; hostile archives are refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from asyncio import open_connection, sleep, timeout, to_thread
from dataclasses import replace
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, InputError
from etloop.controller.rack.client.packing import Mention, mentions, pack_trace, with_digests
from etloop.controller.rack.client.web import RackWeb
from etloop.controller.rack.job import JobEvent, JobRequest, PortDemand
from etloop.controller.rack.operators import Operators, Refused
from etloop.controller.rack.runs.process import inputs_of
from etloop.controller.rack.submissions import Rejected
from etloop.controller.rack.transfers import trace_pages
from etloop.controller.rack.transfers.trace_check import found_problems
from etloop.controller.rack.transfers.trace_names import digest_of_file, digests_in, with_places
from etloop.controller.rack.transfers.trace_shelf import TraceShelf
from etloop.controller.rack.transfers.transfers import MOST_TRANSFERS
from etloop.controller.run.pipeline import prepare
from etloop.workload.readers.files import read_trace
from tests.controller.rack.runs.test_rack_code import begin
from tests.support.rack.http_rack import READER, TOKENS, WRITER, Served, serving

MAPPED = "mapping: {placement: round_robin}\nallow_local: true\n"
A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the traces of a small job."""
    directory = tmp_path_factory.mktemp("traces") / "job"
    main(["synth", str(directory), "--layers", "1", "--tp", "1", "--dp", "2", "--pp", "1"])
    return directory


@pytest.fixture(scope="module")
def archive(trace: Path) -> bytes:
    """It, packed."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        packed.add(trace, "job")
    return file.getvalue()


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# ---- names


def test_scenarios_name_traces_by_digest_and_lines_stay() -> None:
    text = f"# one\nworkload: {{trace: sha256:{A}}}\nx: sha256:{B}0\n"
    assert digests_in(text) == {A}
    assert with_places(text, Path("/t")) == text.replace(f"sha256:{A}", f"/t/{A}.tar")


@pytest.mark.parametrize(
    ("name", "digest"),
    [(f"{A}.tar", A), (A, ""), (f"{A[1:]}.tar", ""), (f"{A.upper()}.tar", ""), (".tar", "")],
)
def test_only_files_named_by_a_digest_are_traces(name: str, digest: str) -> None:
    assert digest_of_file(Path(name)) == digest


# ---- which stay


def test_the_trace_that_was_used_longest_ago_makes_room_and_one_that_a_job_names_never() -> None:
    shelf = TraceShelf(100)
    for digest in (A, B, C):
        shelf.keep(digest, 30)
    assert shelf.missing({A, "d"}) == ["d"], "A counts as used now"
    assert shelf.expect(10, frozenset()) == ()
    assert shelf.expect(30, frozenset({B})) == (C,)
    shelf.drop(C)
    assert shelf.expect(10, frozenset({A, B})) is None, "what is coming counts, too"
    shelf.release(30)
    assert shelf.expect(30, frozenset({A, B})) == ()
    assert shelf.expect(200, frozenset()) is None
    assert list(shelf.kept) == [B, A]


# ---- checks


def tar_of(*members: tuple[str, bytes, bytes]) -> bytes:
    """An archive of (name, type, content)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as packed:
        for name, kind, content in members:
            about = tarfile.TarInfo(name)
            about.type, about.linkname, about.size = kind, "/etc/passwd", len(content)
            packed.addfile(about, io.BytesIO(content))
    return file.getvalue()


FILE = tarfile.REGTYPE


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (tar_of(("../x.0.et", FILE, b"1")), 'holds "../x.0.et", which is outside the archive'),
        (tar_of(("a/../../x", FILE, b"1")), "which is outside the archive"),
        (tar_of(("/etc/x.0.et", FILE, b"1")), "which is outside the archive"),
        (tar_of(("x.0.et", tarfile.SYMTYPE, b"")), 'holds "x.0.et", which is not a regular file'),
        (tar_of(("notes", tarfile.LNKTYPE, b"")), "which is not a regular file"),
        (tar_of(("pipe", tarfile.FIFOTYPE, b"")), "which is not a regular file"),
        (tar_of(("device", tarfile.CHRTYPE, b"")), "which is not a regular file"),
        (
            gzip.compress(tar_of(("x.0.et", FILE, bytes(30 << 20)))),
            "holds more than 16.8 MB, 200 times its size",
        ),
        (tar_of(("x.0.et", FILE, bytes(3000)))[:2000], "cannot be read: it is truncated at byte 2000"),
        (gzip.compress(tar_of(("x.0.et", FILE, b"1")))[:60], "cannot be read"),
        (b"not an archive" * 100, "cannot be read: no tar header at byte 0"),
        (tar_of(("readme", FILE, b"hello")), "has no PREFIX.<rank>.et files; found readme"),
        (tar_of(("x.0.et", FILE, b"hello")), "x.0.et"),
        (tar_of(("x.1.et", FILE, b"")), "rank"),
    ],
    ids=lambda value: value if isinstance(value, str) else "archive",
)
def test_an_archive_that_is_no_trace_is_refused_with_its_reason(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    assert said in " ".join(map(str, found_problems(path)))


def test_a_trace_is_one_packed_in_any_way_that_is_read(tmp_path: Path, archive: bytes) -> None:
    path = tmp_path / "x.tar"
    for content in (archive, gzip.decompress(archive)):
        path.write_bytes(content)
        assert found_problems(path) == ()


# ---- over HTTP


def bearing(token: str) -> str:
    return f"Authorization: Bearer {token}"


async def put(
    served: Served, content: bytes, token: str = WRITER, digest: str = "", *headers: str
) -> tuple[int, str]:
    """What an upload is answered."""
    path = f"/traces/{digest or digest_of(content)}"
    return await served.asked("PUT", path, bearing(token), *headers, body=content)


async def test_a_trace_is_kept_once_and_found_again_by_the_next_controller(
    tmp_path: Path, archive: bytes
) -> None:
    digest = digest_of(archive)
    async with serving(tmp_path, TOKENS) as served:
        assert await put(served, archive) == (201, json.dumps({"digest": digest, "known": False}))
        assert await put(served, archive) == (200, json.dumps({"digest": digest, "known": True}))
        assert [path.name for path in (tmp_path / "traces").iterdir()] == [f"{digest}.tar"]
        said = json.loads((await served.asked("GET", "/traces/", bearing(READER)))[1])
        assert said["traces"] == [{"digest": digest, "bytes": len(archive)}]
        assert not said["may_write"]
        assert (await served.asked("GET", f"/traces/{digest}", bearing(READER)))[0] == 200
        assert (await served.asked("GET", f"/traces/{A}", bearing(READER)))[0] == 404
        (line,) = served.rack.store.audit()
        assert (line.who, line.event, line.detail) == ("http ci", "uploaded a trace", f"sha256:{digest}")
    (tmp_path / "traces" / ".coming-x").write_bytes(b"half")
    for directory in ("logs", "artifacts"):
        (tmp_path / directory).rmdir()
    async with serving(tmp_path, TOKENS) as served:
        assert served.rack.traces.kept == {digest: len(archive)}
        assert [path.name for path in (tmp_path / "traces").iterdir()] == [f"{digest}.tar"]


@pytest.mark.parametrize(
    ("content", "token", "digest", "headers", "status", "said"),
    [
        (b"x", READER, "", (), 403, "the token of ann may only read"),
        (b"x", "z" * 32, "", (), 401, "the token is not one of this rack's"),
        (b"x", WRITER, A, (), 400, "received 1 bytes with SHA-256 2d7116"),
        (b"", WRITER, "", (), 413, "archive of 0 bytes; expected 1 to 200000 (http.trace)"),
        (bytes(200_001), WRITER, "", (), 413, "archive of 200001 bytes"),
        (b"x", WRITER, "", ("Content-Encoding: gzip",), 415, "without Content-Encoding"),
        (b"x", WRITER, "", (), 422, "cannot be read: it is truncated at byte 1"),
        (tar_of(("x", tarfile.SYMTYPE, b"")), WRITER, "", (), 422, "which is not a regular file"),
    ],
)
async def test_an_upload_that_is_refused_leaves_nothing(
    tmp_path: Path, content: bytes, token: str, digest: str, headers: tuple[str, ...], status: int, said: str
) -> None:
    async with serving(tmp_path, TOKENS) as served:
        answered, text = await put(served, content, token, digest, *headers)
        assert (answered, said in text) == (status, True), text
        assert served.rack.traces.kept == {}
        assert served.rack.traces.expect(served.rack.traces.most_bytes, frozenset()) == (), (
            "no room stays taken"
        )
        async with timeout(60):  # it goes in the transfer's own thread, for which no answer waits
            while list((tmp_path / "traces").iterdir()):  # noqa: ASYNC110 - a directory has no event
                await sleep(0)


async def test_uploads_that_stall_are_refused_and_others_get_their_places(
    tmp_path: Path, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_pages, "STALL_TIMEOUT_S", 0.2)
    async with serving(tmp_path, TOKENS) as served, timeout(60):
        host, port = served.base.removeprefix("http://").split(":")
        head = f"PUT /traces/{A} HTTP/1.1\r\nHost: 127.0.0.1\r\n{bearing(WRITER)}\r\nContent-Length: 1000\r\n\r\n"
        stalled = [await open_connection(host, int(port)) for _ in range(MOST_TRANSFERS)]
        for _, writer in stalled:
            writer.write(head.encode() + b"x")
        for reader, writer in stalled:
            answer = (await reader.read()).decode()
            assert answer.startswith("HTTP/1.1 408")
            assert "no byte of the archive arrived for 0.2 s" in answer
            writer.close()
        assert (await put(served, archive))[0] == 201


async def test_who_waits_to_be_asked_for_his_body_is_asked_or_refused_at_once(
    tmp_path: Path, archive: bytes
) -> None:
    async with serving(tmp_path, TOKENS) as served:
        waits = "Expect: 100-continue"
        path = f"/traces/{digest_of(archive)}"
        assert (await served.asked("PUT", path, waits, bearing(READER)))[0] == 403
        status, rest = await served.asked("PUT", path, waits, bearing(WRITER), body=archive)
        assert (status, rest.startswith("HTTP/1.1 201")) == (100, True)


async def test_a_job_names_only_what_is_there_and_what_it_names_stays(tmp_path: Path, archive: bytes) -> None:
    digest = digest_of(archive)
    request = JobRequest(f"workload: {{trace: sha256:{digest}}}\n", PortDemand())
    async with serving(tmp_path, TOKENS) as served:
        refused = served.rack.submit(request, "test", ())
        assert isinstance(refused, Rejected)
        assert (
            "this rack does not have the trace: it was never uploaded, or was removed; upload it"
            in " ".join(map(str, refused.problems))
        )
        assert (await put(served, archive))[0] == 201
        served.rack.traces.most_bytes = len(archive) + 10
        assert served.rack.traces.problems(request.scenario_text) == ()
        job, _ = served.rack.store.submit("j", request, "test")
        other = gzip.compress(gzip.decompress(archive), mtime=1)
        status, said = await put(served, other)
        assert (status, "those of jobs that have not ended leave no room" in said) == (507, True)
        served.rack.store.advance(job, JobEvent.CANCELLED, "test")
        assert (await put(served, other))[0] == 201
        assert list(served.rack.traces.kept) == [digest_of(other)]
        again = Operators(served.rack).requeue("j", "test")
        assert isinstance(again, Refused)


def test_the_process_of_a_run_reads_the_trace_that_a_job_names_and_no_other_file_there(
    tmp_path: Path, archive: bytes
) -> None:
    root, traces = tmp_path / "root", tmp_path / "traces"
    root.mkdir()
    traces.mkdir()
    digest = digest_of(archive)
    (traces / f"{digest}.tar").write_bytes(archive)
    named = replace(begin(root, f"workload: {{trace: sha256:{digest}}}\n{MAPPED}"), traces=str(traces))
    made = prepare(*inputs_of(named))
    assert made.scenario.jobs[0].source.trace == traces / f"{digest}.tar"
    for scenario, said in (
        (f"workload: {{trace: {traces}/{digest}.tar}}\n", "lies outside the rack's scenario root"),
        (f"workload: {{trace: sha256:{A}}}\n", "this rack no longer has the trace; upload it again"),
    ):
        with pytest.raises(InputError, match=said):
            prepare(*inputs_of(replace(named, scenario_text=scenario + MAPPED)))


# ---- the client


def test_the_same_files_give_the_same_archive_and_a_scenario_its_digest(trace: Path, tmp_path: Path) -> None:
    text = "# of mine\nworkload: {trace: 'job', compute: 10us}  # small\niterations: 2\n"
    (mention,) = mentions(text, "s.yaml")
    assert (mention.trace, mention.where) == ("job", "s.yaml:2: workload.trace")
    archives = [pack_trace(mention, trace.parent, tmp_path / name) for name in ("a", "b")]
    assert archives[0][1] == archives[1][1] == digest_of((tmp_path / "b").read_bytes())
    assert found_problems(tmp_path / "a") == ()
    assert len(read_trace(tmp_path / "a").ranks) == 2
    assert with_digests(text, {mention: A}) == text.replace("'job'", f"sha256:{A}")
    assert pack_trace(Mention(str(tmp_path / "a"), 0, 0, ""), Path(), tmp_path / "c") == archives[0]


def test_every_job_of_a_scenario_has_its_trace_uploaded_but_what_is_uploaded_already() -> None:
    text = (
        "jobs:\n- {name: a, workload: {trace: x}}\n"
        f"- {{name: b, workload: {{trace: sha256:{A}}}}}\n- {{workload: {{trace: y/z}}}}\n"
    )
    found = mentions(text, "s")
    assert [each.trace for each in found] == ["x", "y/z"]
    assert digests_in(with_digests(text, dict(zip(found, (B, C), strict=True)))) == {A, B, C}
    assert mentions("workload: {collective: all_reduce}", "s") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "workload: {trace: x, groups: g.json}",
            "s:1: workload.trace: an uploaded trace cannot name a separate groups file",
        ),
        ("workload: [", "s: is not YAML"),
    ],
)
def test_what_cannot_be_uploaded_alone_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        mentions(text, "s")


async def test_a_client_uploads_what_the_rack_has_not(tmp_path: Path, archive: bytes) -> None:
    file, digest = tmp_path / "x.tar.gz", digest_of(archive)
    file.write_bytes(archive)
    async with serving(tmp_path, TOKENS) as served:
        with pytest.raises(
            ConfigError, match="does not accept traces from this client; give --token-file FILE"
        ):
            await to_thread(RackWeb(served.token(READER)).upload, served.base, file, digest)
        web = RackWeb(served.token(WRITER))
        assert not await to_thread(web.upload, served.base, file, digest)
        assert await to_thread(web.upload, served.base, file, digest)
        file.write_bytes(b"x" * 1000)
        with pytest.raises(ConfigError, match="is refused with 422: the trace cannot be used by a job"):
            await to_thread(web.upload, served.base, file, digest_of(b"x" * 1000))

"""A submitted scenario reaches nothing outside the rack's scenario root: by no key, link, pair, archive or beside-lying file."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, InputError
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.rack.runs.confinement import confine, confine_files, paths_of, within
from etloop.controller.run.prepare import read_device
from etloop.workload.readers.files import read_trace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A scenario root with a trace in it, beside it a trace and a secret that no scenario may read."""
    for where in ("root", "outside"):
        main(["synth", str(tmp_path / where / "job"), "--layers", "1", "--tp", "1", "--dp", "2", "--pp", "1"])
    (tmp_path / "outside" / "secret.json").write_text('{"groups": 1}')
    return tmp_path / "root"


def scenario(root: Path, trace: str, groups: str = "") -> Scenario:
    stated = f", groups: '{groups}'" if groups else ""
    return parse_scenario(f"workload: {{trace: '{trace}'{stated}}}\n".encode(), "scenario", root)


def read(root: Path, trace: str, groups: str = "") -> None:
    """What the process of a run does with a scenario's files."""
    given = scenario(root, trace, groups)
    confine(given, root)
    with confine_files(root):
        source = given.jobs[0].source
        assert source.trace is not None
        read_trace(source.trace, source.groups)


@pytest.mark.parametrize("trace", ["job", "./job", "job/../job", "job/job", "not/../job"])
def test_what_lies_below_the_root_is_read(root: Path, trace: str) -> None:
    (root / "not").mkdir()
    name = trace
    if trace == "job/job":
        # A prefix inside a directory, as users may name one.
        name = f"job/{next((root / 'job').glob('*.et')).name.split('.')[0]}"
    read(root, name)


ATTEMPTS: dict[str, Callable[[Path], tuple[str, str]]] = {
    "a path upwards": lambda _: ("../outside/job", ""),
    "an absolute path": lambda root: (str(root.parent / "outside" / "job"), ""),
    "a path upwards behind a folder": lambda _: ("job/../../outside/job", ""),
    "a group file outside": lambda _: ("job", "../outside/secret.json"),
    "a link to a folder": lambda root: (link(root / "away", root.parent / "outside") + "/job", ""),
    "a link to a link": lambda root: (
        link(root / "b", link_path(root / "a", root.parent / "outside/job")),
        "",
    ),
    "a file of the trace that is a link": lambda root: (
        replaced(root, root.parent / "outside" / "secret.json"),
        "",
    ),
    "a group file beside the trace that is a link": lambda root: (
        link_beside(root, root.parent / "outside" / "secret.json"),
        "",
    ),
    "the second of a pair": lambda root: (f"job+{root.parent / 'outside' / 'job'}", ""),
    "the second of a pair, upwards": lambda _: ("job+../outside/job", ""),
    "the first of a pair": lambda _: ("../outside/job+job", ""),
    "a link in a circle": lambda root: (link(root / "round", root / "round"), ""),
    "a device": lambda _: ("/dev/zero", ""),
    "what the kernel says of this process": lambda _: ("/proc/self/environ", ""),
}


def link(at: Path, to: Path) -> str:
    at.symlink_to(to)
    return at.name


def link_path(at: Path, to: Path) -> Path:
    at.symlink_to(to)
    return at


def replaced(root: Path, target: Path) -> str:
    trace = min((root / "job").glob("*.et"))
    trace.unlink()
    trace.symlink_to(target)
    return "job"


def link_beside(root: Path, target: Path) -> str:
    prefix = next((root / "job").glob("*.et")).name.split(".")[0]
    beside = root / "job" / f"{prefix}.json"
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    return "job"


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
def test_what_lies_outside_is_not_read(root: Path, attempt: Callable[[Path], tuple[str, str]]) -> None:
    with pytest.raises(ConfigError, match="lies outside the rack's scenario root"):
        read(root, *attempt(root))


def test_all_paths_that_leave_are_told_at_once_by_their_keys(root: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        confine(scenario(root, "../outside/job", "/etc/passwd"), root)
    assert [problem.where for problem in refused.value.problems] == ["workload.trace", "workload.groups"]


def test_a_path_is_found_in_whatever_field_it_stands(root: Path) -> None:
    """A key that does not exist yet: any field that holds a path, however deep, is confined without being listed."""
    given = scenario(root, "job")
    for field in fields(given):
        value: Any = ("x", {"later": (Path("/etc/passwd"),)})
        planted = replace(given, **{field.name: value})
        assert Path("/etc/passwd") in {path for _, path in paths_of(planted)}, field.name
        with pytest.raises(ConfigError, match=f"scenario.{field.name}.later|workload"):
            confine(planted, root)


@pytest.mark.parametrize(
    "touch",
    [
        lambda path: path.read_bytes(),
        lambda path: os.open(path, os.O_RDONLY),
        lambda path: os.open(os.fsencode(path), os.O_RDONLY),
        lambda path: list(path.parent.iterdir()),
        lambda path: list(os.scandir(path.parent)),
        lambda path: path.write_text("no"),
    ],
    ids=["read", "os.open", "bytes", "list", "scan", "write"],
)
def test_no_code_opens_or_lists_what_is_outside_while_a_thread_is_confined(
    root: Path, touch: Callable[[Path], object]
) -> None:
    secret = root.parent / "outside" / "secret.json"
    with confine_files(root), pytest.raises(ConfigError, match="lies outside"):
        touch(secret)
    assert secret.read_text() == '{"groups": 1}', "and afterwards it may"


def test_other_threads_are_not_confined(root: Path) -> None:
    read_there: list[str] = []
    secret = root.parent / "outside" / "secret.json"
    with confine_files(root):
        thread = threading.Thread(target=lambda: read_there.append(secret.read_text()))
        thread.start()
        thread.join()
    assert read_there == ['{"groups": 1}']


def test_an_archive_unpacks_nothing_whatever_its_members_are_called(root: Path, tmp_path: Path) -> None:
    with tarfile.open(root / "bad.tar", "w") as tar:
        for name, kind, target in (
            ("../../evil.0.et", tarfile.REGTYPE, ""),
            ("/etc/evil.0.et", tarfile.REGTYPE, ""),
            ("job.0.et", tarfile.SYMTYPE, "/etc/passwd"),
            ("job.1.et", tarfile.LNKTYPE, "../outside/secret.json"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"evil") if kind == tarfile.REGTYPE else None)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError):
        read(root, "bad.tar")
    assert sorted(tmp_path.rglob("*")) == before


def test_within_follows_links_and_does_not_trip() -> None:
    assert within(Path("/usr/bin"), Path("/usr"))
    assert not within(Path("/usr2"), Path("/usr"))
    assert not within(Path("/usr/../etc"), Path("/usr"))
    assert not within(Path("/usr/a\0b"), Path("/usr"))


def test_a_topology_outside_the_root_is_refused(root: Path) -> None:
    given = parse_scenario(b"workload: {trace: job}\ntwin: ../outside/secret.json\n", "scenario", root)
    with pytest.raises(ConfigError, match=r"twin: lies outside the rack's scenario root"):
        confine(given, root)


def test_a_device_of_a_topology_lies_below_the_root_or_is_shipped(root: Path) -> None:
    topology = "single: {ports: [a/p0, b/p0], rate: 100Gbps, switch: {device: NAME}}\n"
    (root / "outside.yaml").write_text(topology.replace("NAME", "../outside/secret.yaml"))
    (root / "shipped.yaml").write_text(topology.replace("NAME", "generic-100g-switch"))
    with confine_files(root):
        with pytest.raises(ConfigError, match="lies outside the rack's scenario root"):
            read_device(root / "outside.yaml")
        assert read_device(root / "shipped.yaml") is not None


def test_a_pipe_is_waited_for_by_nobody(root: Path) -> None:
    os.mkfifo(root / "topology.yaml")
    given = parse_scenario(b"workload: {trace: job}\ntwin: topology.yaml\n", "scenario", root)
    confine(given, root)
    # Non-blocking, so that it is open if nobody minds.
    with confine_files(root), pytest.raises(ConfigError, match=r"topology\.yaml: is not a regular file"):
        os.open(root / "topology.yaml", os.O_RDONLY | os.O_NONBLOCK)
    with confine_files(root), pytest.raises(ConfigError, match=r"topology\.yaml: is not a regular file"):
        read_device(given.twin)

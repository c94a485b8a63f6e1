"""Whatever form a trace and the files beside it have, a case names them so that they are read again as they were."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError, InputError
from etloop.contract.protocol.lab import LabDescription
from etloop.controller.case import pack
from etloop.controller.case.named_files import named_files
from etloop.controller.case.pack import (
    CaseInputs,
    CaseMaker,
    Origin,
    lab_options,
    packed_case,
    steps_of,
)
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.run.prepare import InputFile, PrepareOptions, RunInputs, prepare
from etloop.lab.request import up_options
from etloop.results.schema.case import CaseRole, Repeat, RepeatedBy, case_from_json
from etloop.results.store.case_archive import open_archive
from etloop.workload.chakra.encoder import encode_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import synthesize
from etloop.workload.trace.trace import Trace
from tests.support.traces.json_traces_by_hand import comms, host, kernel, kineto, tensor

JOB = synthesize(SyntheticSpec(layers_per_stage=1, micro_batches=1))
RANKS = {f"w.{rank}.et": b"".join(encode_trace(nodes)) for rank, nodes in enumerate(JOB.ranks)}
GROUPS = b'{"0": [0, 1, 2, 3, 4, 5, 6, 7]}'


def put(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)


def tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def of_scenario(directory: Path, text: str) -> CaseMaker:
    maker = CaseMaker()
    maker.add_text(Origin(CaseRole.SCENARIO, text.encode(), "s.yaml", directory))
    return maker


def put_down(maker: CaseMaker, directory: Path) -> Path:
    put(directory, maker.to_inputs("").contents)
    return directory


def named_again(directory: Path) -> list[str]:
    text = (directory / "scenario.yaml").read_bytes()
    return [each.value for each in named_files(text, "s.yaml", CaseRole.SCENARIO)]


HOST = host(comms(10, "allreduce", [tensor(5, 6, 100)], group=77))
DEVICE = kineto(kernel("ncclKernel_AllReduce(x)", 5, 2, 40))


def two(prefix: str, content: bytes) -> dict[str, bytes]:
    return {f"{prefix}{rank}.json": content for rank in (0, 1)}


PLACES: dict[str, tuple[dict[str, bytes], str, int]] = {
    "a directory": ({f"job/{name}": content for name, content in RANKS.items()}, "job", 8),
    "with a slash": ({f"job/{name}": content for name, content in RANKS.items()}, "./job/", 8),
    "a prefix": ({**RANKS, "v.0.et": RANKS["w.0.et"], "notes.txt": b""}, "w", 8),
    "with its group file": (
        {**{f"j/{name}": one for name, one in RANKS.items()}, "j/w.json": GROUPS},
        "j",
        9,
    ),
    "an archive": ({"set.tar.gz": tar(RANKS)}, "set.tar.gz", 1),
    "a prefix in an archive": (
        {"a/set.tgz": tar({f"g/{name}": one for name, one in RANKS.items()})},
        "a/set.tgz/g/w",
        1,
    ),
    "one JSON file": ({"x.json": HOST, "y.json": b"{}"}, "x.json", 1),
    "host and Kineto beside each other": ({**two("h.", HOST), **two("k.", DEVICE)}, "", 4),
    "two archives": ({"h.tgz": tar(two("w_", HOST)), "k.tgz": tar(two("w_", DEVICE))}, "", 2),
    "two archives by name": (
        {"h.tgz": tar(two("w_", HOST)), "k.tgz": tar(two("w_", DEVICE))},
        "h.tgz+k.tgz",
        2,
    ),
    "two folders": ({**two("h/w_", HOST), **two("k/w_", DEVICE)}, "h+k", 4),
    "two prefixes of one name": ({**two("h/w_", HOST), **two("k/w_", DEVICE)}, "h/+../there/k", 4),
    "two files": ({"a/h.json": HOST, "b/k.json": DEVICE}, "a/h.json+../b/k.json", 2),
    "names as people give them": (
        {f"my job/é{name}": content for name, content in RANKS.items()},
        "my job",
        8,
    ),
}


@pytest.mark.parametrize("form", PLACES)
def test_a_trace_is_read_again_as_it_was(form: str, tmp_path: Path) -> None:
    files, source, count = PLACES[form]
    put(tmp_path / "there", files)
    maker = of_scenario(tmp_path / "there", f'workload: {{trace: "{source}"}}\n')
    case = put_down(maker, tmp_path / "case")
    (value,) = named_again(case)
    assert value.startswith("inputs/trace0")
    assert sum(file.role is CaseRole.TRACE for file in maker.files.values()) == count
    assert_alike(read_trace(tmp_path / "there" / source), read_trace(case / value))


def assert_alike(one: Trace, other: Trace) -> None:
    assert one.groups == other.groups
    assert [(rank.rank, rank.node_id.tolist()) for rank in one.ranks] == [
        (rank.rank, rank.node_id.tolist()) for rank in other.ranks
    ]


def test_a_stated_group_file_goes_with_its_trace(tmp_path: Path) -> None:
    put(tmp_path, {**{f"j/{name}": one for name, one in RANKS.items()}, "j/w.json": b"{", "g.json": GROUPS})
    maker = of_scenario(tmp_path, "workload: {trace: j, groups: g.json}\n")
    case = put_down(maker, tmp_path / "case")
    assert named_again(case) == ["inputs/trace0", "inputs/groups1/g.json"]
    # What is beside the traces is not read where another is stated.
    assert not (case / "inputs/trace0/w.json").exists()


def test_what_is_named_twice_is_taken_once(tmp_path: Path) -> None:
    put(tmp_path, RANKS)
    text = "jobs:\n  - {name: a, workload: {trace: w}}\n  - {name: b, workload: {trace: w}}\n"
    maker = of_scenario(tmp_path, text)
    assert named_again(put_down(maker, tmp_path / "case")) == ["inputs/trace0/w"] * 2
    assert len(maker.files) == 1 + len(RANKS)


def test_schedules_and_plugins_go_with_the_scenario(tmp_path: Path) -> None:
    put(
        tmp_path, {"a.xml": b"<a/>", "b/c.0.et": RANKS["w.0.et"], "b/c.1.et": RANKS["w.1.et"], "p.cpp": b"//"}
    )
    text = """\
collectives: {all_reduce: {schedule: [a.xml, b/c.et], recorded: 1MiB}}
transport: {cc: {plugin: p.cpp}}
"""
    case = put_down(of_scenario(tmp_path, text), tmp_path / "case")
    assert named_again(case) == ["inputs/schedule0/a.xml", "inputs/schedule1/c.et", "inputs/plugin2/p.cpp"]
    assert len(read_trace(case / "inputs/schedule1/c").ranks) == 2


def test_secrets_are_named_and_neither_read_nor_packed(tmp_path: Path) -> None:
    maker = CaseMaker()
    text = b"security: {curve: {server_key: k/c.key_secret, authorised_keys: k/agents}}\n"
    maker.add_text(Origin(CaseRole.RIG, text, "r.yaml", tmp_path))
    secrets = [file for file in maker.files.values() if file.role is CaseRole.PRIVATE]
    assert [(one.name, one.inside, one.sha256, one.place) for one in secrets] == [
        ("inputs/private0/c.key_secret", False, "", str(tmp_path / "k/c.key_secret")),
        ("inputs/private1/agents", False, "", str(tmp_path / "k/agents")),
    ]
    assert list(maker.contents) == ["rig.yaml"]


def test_traces_that_are_too_much_are_kept_by_their_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {**RANKS, "g.json": GROUPS})
    monkeypatch.setattr(pack, "MOST_KEPT_BYTES", sum(map(len, RANKS.values())) - 1)
    maker = of_scenario(tmp_path, "workload: {trace: w, groups: g.json}\n")
    traces = [file for file in maker.files.values() if file.role is CaseRole.TRACE]
    assert {(file.inside, file.why) for file in traces} == {
        (False, "a run directory keeps 14.3 kB of such files")
    }
    assert traces[0].place == str(tmp_path / "w.0.et")
    assert traces[0].size_bytes == len(RANKS["w.0.et"])
    assert set(maker.contents) == {"scenario.yaml", "inputs/groups1/g.json"}


def test_a_file_that_cannot_be_packed_by_its_name_is_said(tmp_path: Path) -> None:
    put(tmp_path, {f"w\x1b{name[1:]}": content for name, content in RANKS.items()})
    maker = of_scenario(tmp_path, "workload: {trace: .}\n")
    assert {file.why for file in maker.files.values() if not file.inside} == {"cannot be printed"}


def test_what_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"g\.json: cannot be read: No such file or directory"):
        of_scenario(tmp_path, "workload: {groups: g.json}\n")
    with pytest.raises(InputError, match=r"no file job\.<rank>\.et"):
        of_scenario(tmp_path, "workload: {trace: job}\n")


RIG = """\
agents:
  - {name: a, ports: [{name: p0, addresses: 10.0.0.1-10.0.0.4, link: 10Gbps}]}
  - {name: b, ports: [{name: p0, addresses: 10.0.0.5-10.0.0.8, link: 10Gbps}]}
  - {name: c, ports: [{name: p0, addresses: 10.0.0.9, link: 10Gbps}]}
dut: {profile: ./mine.yaml}
"""
TOPOLOGY = "device: own/switch.yaml\nsingle: {ports: [a/p0, b/p0, c/p0], rate: 10Gbps}\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """All that a run may be made of, each in a folder of its own."""
    from etloop.dut_profiles.reading.catalogue import profile_content

    profile = profile_content("generic-100g-switch")
    put(
        tmp_path / "site",
        {
            **{f"traces/{name}": content for name, content in RANKS.items()},
            "traces/w.json": json.dumps(JOB.groups).encode(),
            "s/scenario.yaml": b"workload: {trace: ../traces}\nmapping: {placement: round_robin}\ntwin: ../t/t.yaml\n",
            "r/rig.yaml": RIG.encode(),
            "r/mine.yaml": profile,
            "t/t.yaml": TOPOLOGY.encode(),
            "t/own/switch.yaml": profile,
        },
    )
    return tmp_path / "site"


def made_of(site: Path, *, ports: tuple[str, ...] | None = None) -> CaseInputs:
    inputs = RunInputs(InputFile(site / "s/scenario.yaml"), InputFile(site / "r/rig.yaml"))
    case = prepare(inputs, PrepareOptions(ports=ports)).case
    assert case is not None
    return case


def test_a_case_lies_by_itself(site: Path, tmp_path: Path) -> None:
    case = made_of(site)
    put(tmp_path / "case", dict(case.contents))
    site.rename(tmp_path / "gone")
    prepared = prepare(RunInputs.of(tmp_path / "case/scenario.yaml", tmp_path / "case/rig.yaml", run_id="x"))
    assert prepared.device is not None
    assert prepared.device.topology.switches[0].origin is not None
    assert prepared.rig.dut is not None
    assert prepared.rig.dut.profile == str(tmp_path / "case/profile.yaml")
    # And a case of it is the same once more.
    assert prepared.case is not None
    assert prepared.case.contents == case.contents


def test_the_rig_of_a_rack_s_job_has_the_ports_that_it_had(site: Path) -> None:
    case = made_of(site, ports=("a/p0", "b/p0"))
    assert list(parse_rig(case.contents["rig.yaml"], "r", site).ports) == ["a/p0", "b/p0"]


def test_jobs_that_no_scenario_describes_have_no_case(site: Path) -> None:
    inputs = RunInputs(InputFile(site / "s/scenario.yaml"), InputFile(site / "r/rig.yaml"))
    assert prepare(inputs, PrepareOptions(keeps_case=False)).case is None


def test_the_case_of_a_run_directory_says_what_is_in_it(site: Path, tmp_path: Path) -> None:
    packed = packed_case(made_of(site), "r1", "0123", RepeatedBy(Repeat.TWIN, "cards", 7))
    assert packed == packed_case(made_of(site), "r1", "0123", RepeatedBy(Repeat.TWIN, "cards", 7))
    (tmp_path / "case.zip").write_bytes(packed)
    with open_archive(tmp_path / "case.zip") as archive:
        case = case_from_json(archive.read("case.json", 1 << 20).decode(), "case.json")
        assert set(archive.names()) == {"case.json", *(file.name for file in case.files)}
    assert (case.schema, case.run_id, case.workload_digest) == ("etloop-case/1", "r1", "0123")
    assert case.repeated_by == RepeatedBy(Repeat.TWIN, "cards", 7)
    assert case.steps == ("etloop twin CASE --out again",)


@pytest.mark.parametrize(
    ("lab", "options", "why"),
    [
        (LabDescription("", 4200, True, 10**9, 1000, ()), "", "it came up without options"),
        (LabDescription("", 9000, True, 10**9, 1000, ()), " --mtu 9000B", "frames of 9000 bytes crossed it"),
        (
            LabDescription("", 4200, False, 10**9, 1000, ()),
            " --allow-overcommit",
            "its rates were more than its host held",
        ),
        (
            LabDescription("", 1500, False, None, None, ()),
            " --mtu 1500B --unmeasured",
            "nobody measured what its host held",
        ),
    ],
)
def test_a_case_says_with_which_options_its_lab_came_up(
    lab: LabDescription, options: str, why: str, site: Path, tmp_path: Path
) -> None:
    assert up_options(lab) == options, why
    made = replace(made_of(site), lab="--name x --addresses 4")
    (tmp_path / "case.zip").write_bytes(
        packed_case(made, "r1", "0123", RepeatedBy(Repeat.RUN), up_options(lab))
    )
    with open_archive(tmp_path / "case.zip") as archive:
        case = case_from_json(archive.read("case.json", 1 << 20).decode(), "case.json")
    assert case.steps[1:] == (
        f"etloop lab up case/topology.yaml --name x --addresses 4{options} --agents",
        "etloop run CASE --out again",
        "etloop lab down --name x",
    )


def test_a_lab_is_brought_up_as_it_was() -> None:
    rig = parse_rig(f"lab: x\n{RIG}controller: {{bind: 'tcp://127.0.0.1:7777'}}\n".encode(), "r", Path())
    assert lab_options(rig) == "--name x --addresses 4 --bind tcp://127.0.0.1:7777"
    assert lab_options(parse_rig(RIG.encode(), "r", Path())) == ""
    assert steps_of(Repeat.RUN, lab_options(rig)) == (
        "unzip CASE -d case",
        "etloop lab up case/topology.yaml --name x --addresses 4 --bind tcp://127.0.0.1:7777 --agents",
        "etloop run CASE --out again",
        "etloop lab down --name x",
    )
    assert steps_of(Repeat.TWIN, lab_options(rig)) == ("etloop twin CASE --out again",)

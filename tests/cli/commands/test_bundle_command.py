"""A run is repeated from its directory, or from the one file that `etloop bundle` makes of it, wherever that lies."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.controller.case import bundling, pack
from etloop.results.store import case_archive
from etloop.results.store.run_dir import read_run
from tests.support.places import ROOT
from tests.support.runs.signing import sign_again

RIG = """\
agents:
  - {name: a, ports: [{name: p0, addresses: 10.0.1.1-10.0.1.4, link: 100Gbps}]}
  - {name: b, ports: [{name: p0, addresses: 10.0.2.1-10.0.2.4, link: 100Gbps}]}
"""
SEED = 7


def a_run(place: Path) -> None:
    """What a twin left at `run` whose inputs lie in folders of their own below `site`."""
    site = place / "site"
    site.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        ran("synth", "site/job", "--sweep", "all_reduce", "--sizes", "64KiB-128KiB", "--ranks", "4")
        (site / "s.yaml").write_text("# mine\nworkload: {trace: job}\nmapping: {placement: round_robin}\n")
        (site / "rig.yaml").write_text(RIG)
        (site / "t.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 100Gbps}\n")
        files = ("site/s.yaml", "--rig", "site/rig.yaml", "--topology", "site/t.yaml")
        ran("twin", *files, "--seed", str(SEED), "--out", "run")


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for all who do not ask where its traces were."""
    place = tmp_path_factory.mktemp("made")
    a_run(place)
    return place


@pytest.fixture
def run_dir(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in the working directory."""
    shutil.copytree(made_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def ran(*words: str) -> None:
    assert main(list(words)) == 0, words


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says that ends with 65."""
    capsys.readouterr()
    assert main(list(words)) == 65, words
    return capsys.readouterr().err


def jct_ns(run_dir: str) -> list[int | None]:
    job = read_run(Path(run_dir)).summary.job
    return [job.jct_ns, *(one.jct_ns for one in job.per_iteration)]


def repacked(path: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """The case with other members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    made = path.with_name("changed.zip")
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made


def test_a_twin_repeated_from_a_bundle_has_the_same_figures(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    ran("bundle", "run")
    told = capsys.readouterr().out
    assert told.startswith("case            run.etloop.zip, ")
    assert "inside          5 trace files, scenario, rig, topology, 4 result files\n" in told
    assert told.endswith("repeat          etloop twin run.etloop.zip --out again\n")
    # What happened on this machine stays on it.
    with zipfile.ZipFile("run.etloop.zip") as archive:
        assert str(tmp_path).encode() not in archive.read("case.json")
    far = tmp_path / "far"
    far.mkdir()
    Path("run.etloop.zip").rename(far / "case.zip")
    shutil.rmtree("site")
    before = jct_ns("run")
    shutil.rmtree("run")
    ran("twin", "far/case.zip", "--out", "far/again")
    assert jct_ns("far/again") == before
    summary = read_run(far / "again").summary
    assert summary.workload.source == "far/case.zip/inputs/trace0"
    # The repetition keeps its own case, and that one, too.
    ran("twin", "far/again", "--out", "far/third")
    assert jct_ns("far/third") == before
    for name in ("summary.json", "report.html", "case.json"):
        with zipfile.ZipFile(far / "case.zip") as archive:
            assert name in archive.namelist()


def test_a_run_is_repeated_from_its_directory_alone(run_dir: Path, tmp_path: Path) -> None:
    shutil.rmtree("site")
    run_dir.rename(tmp_path / "sent")
    ran("twin", "sent", "--out", "again")
    assert jct_ns("again") == jct_ns("sent")
    page = (tmp_path / "sent" / "report.html").read_text()
    assert ">etloop twin . --out ../again\netloop report ../again</pre>" in page


@pytest.mark.parametrize(
    "words",
    [
        ("twin", "."),
        ("twin", "scenario.yaml"),
        ("twin", "scenario.yaml", "--rig", "rig.yaml", "--topology", "topology.yaml"),
    ],
    ids=" ".join,
)
def test_the_files_of_a_run_directory_work_where_they_lie(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Whoever is sent a run directory types the names that he sees there."""
    shutil.rmtree("site")
    monkeypatch.chdir(run_dir.rename(tmp_path / "sent"))
    ran(*words, "--out", "../again")
    assert jct_ns("../again") == jct_ns(".")


def test_the_scenario_of_a_run_directory_is_planned_with_and_without_its_rig(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree("site")
    monkeypatch.chdir(run_dir)
    ran("plan", "scenario.yaml")
    capsys.readouterr()
    ran("plan", "scenario.yaml", "--rig", "rig.yaml")
    assert capsys.readouterr().out.startswith("./inputs/trace0: 4 ranks")
    # Another rig holds over that of the run, also one that takes the place of its file.
    Path("rig.yaml").write_text(RIG.replace("name: b", "name: c"))
    told = refused(capsys, "plan", "scenario.yaml", "--rig", "rig.yaml")
    assert "topology: c/p0: the plan uses this port, but it is attached to no switch" in told


def test_a_scenario_that_was_changed_in_its_run_directory_says_how_it_is_changed(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree("site")
    monkeypatch.chdir(run_dir)
    changed = Path("scenario.yaml").read_text() + "iterations: 2\n"
    Path("scenario.yaml").write_text(changed)
    told = refused(capsys, "plan", "scenario.yaml", "--rig", "rig.yaml")
    assert "etloop: job: no file job.<rank>.et; " in told
    assert told.endswith(
        "etloop: scenario.yaml: differs from the file that this run read; its references point into the case; unzip "
        "case.zip -d case, change case/scenario.yaml, and run that file with --rig case/rig.yaml\n"
    )
    # What it says to do works.
    with zipfile.ZipFile("case.zip") as archive:
        archive.extractall("case")
    with Path("case/scenario.yaml").open("a") as file:
        file.write("iterations: 2\n")
    ran("plan", "case/scenario.yaml", "--rig", "case/rig.yaml")
    # One that names what is there is run as any other.
    Path("scenario.yaml").write_text(changed.replace("trace: job", "trace: case/inputs/trace0"))
    ran("plan", "scenario.yaml", "--rig", "rig.yaml")


def test_an_unpacked_case_works_by_itself(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran("bundle", "run", "-o", "c.zip")
    with zipfile.ZipFile("c.zip") as archive:
        archive.extractall("case")
    shutil.rmtree("site")
    ran("twin", "case", "--out", "again")
    assert jct_ns("again") == jct_ns("run")
    monkeypatch.chdir(tmp_path / "case")
    ran("plan", "scenario.yaml", "--rig", "rig.yaml")
    ran("twin", "scenario.yaml", "--rig", "rig.yaml", "--seed", str(SEED), "--out", "../by-hand")
    assert jct_ns("../by-hand") == jct_ns("../run")
    assert "# mine\n" in Path("scenario.yaml").read_text()


def test_plan_takes_a_case_and_names_it(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran("bundle", "run", "-o", "c.zip")
    capsys.readouterr()
    ran("plan", "c.zip")
    assert capsys.readouterr().out.startswith("c.zip/inputs/trace0: 4 ranks")
    # Another rig, in which there are fewer ports.
    Path("other.yaml").write_text(RIG.replace("10.0.1.4", "10.0.1.2"))
    ran("plan", "c.zip", "--rig", "other.yaml")


def test_what_the_command_line_says_holds_over_the_case(run_dir: Path) -> None:
    ran("twin", "run", "--hosts", "software", "--seed", "3", "--out", "again")
    with zipfile.ZipFile("again/case.zip") as archive:
        case = json.loads(archive.read("case.json"))
    assert (case["repeated_by"]["hosts"], case["repeated_by"]["seed"]) == ("software", 3)
    assert json.loads(zipfile.ZipFile("run/case.zip").read("case.json"))["repeated_by"]["hosts"] == "cards"


def test_traces_may_be_elsewhere(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran("bundle", "run", "-o", "c.zip", "--no-traces")
    told = capsys.readouterr().out
    assert "not inside      inputs/trace0/w.0.et and 4 more: left out with --no-traces\n" in told
    assert told.endswith("repeat          etloop twin c.zip --out again --traces DIR\n")
    # Where they were is nobody's business: they are not looked for there.
    told = refused(capsys, "twin", "c.zip")
    assert (
        "etloop: inputs/trace0/w.0.et: is not in the case: left out with --no-traces; give --traces DIR"
        in told
    )
    Path("site/job").rename("moved")
    ran("twin", "c.zip", "--traces", "moved", "--out", "again")
    assert jct_ns("again") == jct_ns("run")
    Path("moved/w.1.et").write_bytes(b"x" * Path("moved/w.1.et").stat().st_size)
    told = refused(capsys, "twin", "c.zip", "--traces", "moved")
    assert "inputs/trace0/w.1.et: moved/w.1.et differs from the file that the run read (sha256 " in told
    assert len(told.splitlines()) == 1


class TestTracesThatAreTooLargeForRunDirectories:
    @pytest.fixture
    def run_dir(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A run that keeps no traces."""
        monkeypatch.setattr(pack, "MOST_KEPT_BYTES", 10)
        a_run(tmp_path)
        monkeypatch.chdir(tmp_path)
        return tmp_path / "run"

    def test_they_are_packed_from_where_they_were(self, run_dir: Path) -> None:
        ran("bundle", "run", "-o", "c.zip")
        shutil.rmtree("site")
        ran("twin", "c.zip", "--out", "again")
        assert jct_ns("again") == jct_ns("run")

    def test_the_directory_finds_them_there(self, run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        ran("twin", "run", "--out", "again")
        assert jct_ns("again") == jct_ns("run")
        # And so does the repetition's, for it is the same place.
        ran("bundle", "again", "-o", "c.zip")
        shutil.rmtree("site")
        assert "is not in the case, and no longer at" in refused(capsys, "twin", "again")
        ran("twin", "c.zip", "--out", "of-the-bundle")
        told = refused(capsys, "bundle", "of-the-bundle", "-o", "d.zip")
        assert "inputs/trace0/w.0.et: is not in the case: c.zip holds it; give --traces DIR" in told
        shutil.unpack_archive("c.zip", "case")
        ran("bundle", "of-the-bundle", "-o", "d.zip", "--traces", "case")

    def test_what_changed_is_refused_or_left_out(
        self, run_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("site/job/w.0.et").write_bytes(b"other")
        Path("site/job/w.2.et").unlink()
        told = refused(capsys, "bundle", "run").splitlines()
        place = run_dir.parent / "site/job"
        assert told[0].startswith(
            f"etloop: inputs/trace0/w.0.et: {place}/w.0.et differs from the file that the run read"
        )
        assert told[1].startswith(
            f"etloop: inputs/trace0/w.2.et: is not in the case, and no longer at {place}/w.2.et"
        )
        assert told[1].endswith("give --traces DIR with the unchanged files, or --no-traces")
        assert not Path("run.etloop.zip").exists()
        ran("bundle", "run", "--no-traces")

    def test_more_than_a_bundle_takes_is_left_out_with_the_reason(
        self,
        run_dir: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(bundling, "MOST_TRACES_BYTES", 100)
        ran("bundle", "run")
        assert "the traces have 756 B, expected at most 100 B" in capsys.readouterr().out
        ran("twin", "run.etloop.zip", "--traces", "site/job")


CHANGED: dict[str, tuple[Callable[[dict[str, bytes]], object], str]] = {
    "to run changed": (
        lambda members: members.update({"rig.yaml": members["rig.yaml"].replace(b"100Gbps", b"200Gbps")}),
        "changed.zip: rig.yaml: differs from the run's file: same size, other content; get the case again",
    ),
    "a file of another size": (
        lambda members: members.update({"rig.yaml": members["rig.yaml"] + b"\n"}),
        "changed.zip: rig.yaml: differs from the run's file: ",
    ),
    "a file that is missing": (
        lambda members: members.pop("inputs/trace0/w.3.et"),
        "changed.zip: inputs/trace0/w.3.et: is missing",
    ),
    "a file that is too many": (
        lambda members: members.update({"inputs/x.py": b""}),
        "changed.zip: has 'inputs/x.py', which its case.json does not list",
    ),
    "without a manifest": (
        lambda members: members.pop("case.json"),
        "changed.zip: has no case.json; name a case that etloop bundle made",
    ),
    "of another schema": (
        lambda members: members.update({"case.json": b'{"schema": "etloop-case/9", "new": 1}'}),
        'changed.zip: case.json: schema is "etloop-case/9", this version reads etloop-case/1; read it with',
    ),
    "a manifest that is none": (
        lambda members: members.update({"case.json": b"{"}),
        "changed.zip: case.json: not JSON: ",
    ),
    "a manifest without a scenario": (
        lambda members: (
            members.update({"case.json": members["case.json"].replace(b'"scenario.yaml"', b'"other.yaml"')}),
            members.update({"other.yaml": members.pop("scenario.yaml")}),
        ),
        "changed.zip: its case.json does not list scenario.yaml",
    ),
    "a manifest that leads out": (
        lambda members: members.update(
            {"case.json": members["case.json"].replace(b'"inputs/trace0/w.0.et"', b'"../../etc/hosts"')}
        ),
        "changed.zip",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_case_that_is_not_what_it_says_is_refused(
    what: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, told = CHANGED[what]
    ran("bundle", "run", "-o", "c.zip")
    changed = repacked(run_dir.parent / "c.zip", change)
    assert told in refused(capsys, "twin", changed.name)


def test_a_changed_file_of_an_unpacked_case_is_refused(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran("bundle", "run", "-o", "c.zip")
    shutil.unpack_archive("c.zip", "case")
    Path("case/topology.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 10Gbps}\n")
    told = refused(capsys, "twin", "case")
    assert "case: topology.yaml: differs from the run's file" in told
    assert "to run changed files, use etloop run scenario.yaml --rig rig.yaml" in told


def test_what_is_no_case_or_no_run_is_refused(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    Path("no.zip").write_bytes(b"workload: {}")
    for words, told in (
        (("twin", "empty"), "empty: is a directory without case.json and case.zip; name a case"),
        (("run", "no.zip", "--out", "x"), "no.zip: is not a zip archive, or was not copied whole"),
        (("plan", "missing.zip"), "missing.zip: cannot be read: No such file or directory"),
        (("bundle", "empty"), "empty: has no summary.json"),
        (("bundle", "run", "-o", "no.zip"), "no.zip: already exists; name a new file with -o"),
        (("bundle", "run", "-o", "missing/c.zip"), "missing/c.zip: cannot be written: No such file"),
        (
            ("twin", "site/s.yaml", "--rig", "site/rig.yaml", "--traces", "x"),
            "--traces: applies only to a case",
        ),
    ):
        assert told in refused(capsys, *words), words
    Path("run/case.zip").unlink()
    sign_again(run_dir)
    assert "run: has no case.zip: the run had no scenario" in refused(capsys, "bundle", "run")


def test_secrets_stay_where_they_are(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("site/keys/agents").mkdir(parents=True)
    Path("site/keys/c.key_secret").write_text("secret")
    secure = "security: {curve: {server_key: keys/c.key_secret, authorised_keys: keys/agents}}\n"
    Path("site/rig.yaml").write_text(RIG + secure)
    ran("twin", "site/s.yaml", "--rig", "site/rig.yaml", "--topology", "site/t.yaml", "--out", "run2")
    ran("bundle", "run2", "-o", "c.zip")
    assert "secrets of the site are never packed" in capsys.readouterr().out
    with zipfile.ZipFile("c.zip") as archive:
        assert not [name for name in archive.namelist() if "private" in name]
    ran("twin", "c.zip")
    told = refused(capsys, "run", "c.zip", "--out", "x")
    assert (
        "c.zip: inputs/private1/c.key_secret: is secrets of the site are never packed; give --rig FILE"
        in told
    )


def test_another_version_is_said_once(
    run_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "installed_version", lambda: "99.0")
    capsys.readouterr()
    ran("twin", "run")
    told = capsys.readouterr().err
    assert (
        told.count("note: run/case.zip was run by etloop ") + told.count("note: run was run by etloop ") == 1
    )
    assert "(here 99.0): figures may differ for this reason alone" in told


def test_a_mistake_inside_is_told_by_the_name_of_the_case(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other.yaml").write_text(RIG.replace("name: b", "name: x"))
    told = refused(capsys, "twin", "run", "--rig", "other.yaml")
    assert "etloop-case-" not in told


def test_a_repetition_compares_as_the_same_thing_and_another_plugin_does_not(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("site/p.cpp").write_bytes((ROOT / "examples" / "cc_plugin" / "aimd.cpp").read_bytes())
    Path("site/s.yaml").write_text(Path("site/s.yaml").read_text() + "transport: {cc: {plugin: p.cpp}}\n")
    words = ("twin", "site/s.yaml", "--rig", "site/rig.yaml", "--topology", "site/t.yaml", "--out")
    ran(*words, "a")
    Path("site/p.cpp").write_text("// the same\n" + Path("site/p.cpp").read_text())
    ran(*words, "b")
    ran("bundle", "a", "-o", "c.zip")
    shutil.rmtree("site")
    ran("twin", "c.zip", "--out", "again")

    def differing(other: str) -> list[tuple[str, str]]:
        capsys.readouterr()
        main(["compare", "a", other, "--json"])
        answer = json.loads(capsys.readouterr().out)
        return [(one["thing"], one["path"]) for one in answer["differing"]]

    assert differing("again") == []
    assert differing("b") == [("files", "inputs/plugin1/p.cpp")]


def test_the_page_on_run_directories_names_every_file_of_one(run_dir: Path) -> None:
    page = (ROOT / "docs" / "run-directory.md").read_text(encoding="utf-8")
    assert [path.name for path in run_dir.iterdir() if f"`{path.name}`" not in page] == []
    assert {"case.zip", "report.html", "trace.perfetto.json", "topology.yaml"} <= {
        one.name for one in run_dir.iterdir()
    }


def test_what_packs_too_well_for_a_reader_goes_in_as_it_is(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case_archive, "FREE_BYTES", 1 << 16)
    monkeypatch.setattr(case_archive, "MOST_RATIO", 1)
    ran("bundle", "run", "-o", "c.zip")
    with zipfile.ZipFile("c.zip") as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
    ran("twin", "c.zip")


def test_a_run_directory_whose_case_was_changed_is_not_packed(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def slower(members: dict[str, bytes]) -> None:
        members["rig.yaml"] = members["rig.yaml"].replace(b"100Gbps", b"200Gbps")

    repacked(run_dir / "case.zip", slower).replace(run_dir / "case.zip")
    assert "case.zip: is damaged or was changed" in refused(capsys, "bundle", "run")
    sign_again(run_dir)
    assert "rig.yaml: differs from the file that the run read, or changed while" in refused(
        capsys, "bundle", "run"
    )
    assert not Path("run.etloop.zip").exists()


def test_as_json(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    ran("bundle", "run", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert answer["path"] == "run.etloop.zip"
    assert answer["bytes"] == Path("run.etloop.zip").stat().st_size
    assert {file["role"] for file in answer["case"]["files"]} >= {
        "trace",
        "scenario",
        "rig",
        "topology",
        "result",
    }


def test_a_directory_or_an_archive_needs_no_rig_and_a_scenario_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "s.yaml"])
    assert ended.value.code == 2
    assert "the following arguments are required: --rig" in capsys.readouterr().err

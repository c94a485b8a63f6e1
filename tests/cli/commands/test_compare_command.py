"""`etloop compare`, from command line to exit code, over small runs in virtual time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from etloop.results.compare.samples import read_samples
from etloop.results.store.run_dir import read_run
from tests.support.runs.signing import sign_again
from tests.support.runs.sweep_by_hand import answered, copy_study, make_study, point


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def files(study: Path, tmp_path: Path) -> Path:
    return copy_study(study, tmp_path)


def test_a_planted_regression_of_five_percent_is_found(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A link that is five percent slower; the job is all network."""
    page = tmp_path / "compare.html"
    code, out, _ = answered(capsys, "compare", point(study, 0), point(study, 1), "--html", str(page))
    assert code == ExitCode.VERDICT_FAILED
    assert "verdict         REGRESSION" in out
    assert "jct: +5." in out.splitlines()[1]
    assert "longer in B: collectives, per iteration" in out
    assert "topology single.rate 10Gbps 9.5Gbps".split() in [line.split() for line in out.splitlines()]
    assert "REGRESSION" in page.read_text()


def test_and_is_an_improvement_the_other_way_round(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answered(capsys, "compare", point(study, 1), point(study, 0), "--json")
    assert code == ExitCode.PASS
    answer = json.loads(out)
    assert answer["verdict"] == "improvement"
    assert answer["metrics"][0]["name"] == "jct"
    assert answer["settings"]["paired"] is True


def test_two_runs_of_the_same_thing_are_no_regression(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other seeds of the switch, so other marks."""
    for number in (1, 2):
        code, out, _ = answered(
            capsys, "compare", f"{point(study, 0)}/r000", f"{point(study, 0)}/r{number:03d}"
        )
        assert code in {ExitCode.PASS, ExitCode.INCONCLUSIVE}, out
        assert "A and B are one run each: what another seed would change is not in the intervals" in out
        assert "A and B are runs of the same files" in out


def test_a_copy_of_a_run_is_no_different_from_it(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(f"{point(study, 0)}/r000", tmp_path / "copy")
    code, out, _ = answered(capsys, "compare", f"{point(study, 0)}/r000", str(tmp_path / "copy"))
    assert code == ExitCode.PASS
    assert "verdict         NO DIFFERENCE" in out


def test_a_jobs_time_is_the_sum_of_its_steps(study: Path) -> None:
    """Whatever of its iterations overlaps."""
    run = read_run(Path(point(study, 0)) / "r000").summary
    found = read_samples(Path(point(study, 0)) / "r000", 0)
    assert found.jct_ns.sum() == run.job.jct_ns
    assert len(read_samples(Path(point(study, 0)) / "r000", 3).jct_ns) == 5
    assert len(read_samples(Path(point(study, 0)) / "r000", 8).jct_ns) == 8, "a warm-up never leaves nothing"


def test_damaged_runs_are_refused_by_name(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text, reported in (
        ("kpis.json", "{}", "kpis.json: is damaged or was changed"),
        ("collectives.parquet", "PAR", "collectives.parquet: is damaged or was changed"),
    ):
        file = Path(point(files, 0)) / "r000" / name
        kept = file.read_bytes()
        file.write_text(text)
        code, _, err = answered(capsys, "compare", point(files, 0), point(files, 1))
        assert code == ExitCode.PREPARATION_FAILED
        assert reported in err
        file.write_bytes(kept)


REFUSALS = (
    (
        "a directory that is not there",
        ("{p0}", "{here}/none"),
        "cannot be looked into: No such file or directory",
    ),
    ("an empty one", ("{p0}", "{here}"), "holds no run; name what --out of `etloop run` named"),
    ("a sweep", ("{out}", "{p0}"), "it is a sweep; name two of its points"),
    ("the same twice", ("{p0}", "{p0}"), "is the same directory as A; name two different directories"),
    ("a figure that is none", ("{p0}", "{p1}", "--figures", "speed"), 'there is no figure "speed"'),
    (
        "a page that cannot be written",
        ("{p0}", "{p1}", "--html", "{here}/no/x.html"),
        "cannot be written: No such file",
    ),
)


@pytest.mark.parametrize(
    ("words", "reported"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
def test_what_cannot_be_compared(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reported: str
) -> None:
    places = {"p0": point(study, 0), "p1": point(study, 1), "out": str(study / "out"), "here": str(tmp_path)}
    code, _, err = answered(capsys, "compare", *(word.format(**places) for word in words))
    assert code == ExitCode.PREPARATION_FAILED
    assert reported in err


def test_two_jobs_that_have_but_a_barrier_in_common_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounds of several jobs begin with barriers."""
    (tmp_path / "rig.yaml").write_text(
        "agents:\n"
        "  - {name: a, ports: [{name: p0, addresses: 10.0.0.1-10.0.0.2, link: 10Gbps}]}\n"
        "  - {name: b, ports: [{name: p0, addresses: 10.0.0.3-10.0.0.4, link: 10Gbps}]}\n"
    )
    (tmp_path / "t.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 10Gbps}\n")
    for name, kind in (("x", "all_to_all"), ("y", "all_gather")):
        (tmp_path / f"{name}.yaml").write_text(
            "rounds: 2\njobs:\n"
            + "".join(
                f"  - name: {name}{number}\n"
                f"    workload: {{collective: {{kind: {kind}, ranks: 2, size: 4KiB}}}}\n"
                "    mapping: {ports: [a/p0, b/p0], placement: round_robin}\n"
                for number in range(2)
            )
        )
        files = ["--rig", str(tmp_path / "rig.yaml"), "--topology", str(tmp_path / "t.yaml")]
        assert main(["twin", str(tmp_path / f"{name}.yaml"), *files, "--out", str(tmp_path / name)]) == 0
    capsys.readouterr()
    code, _, err = answered(capsys, "compare", str(tmp_path / "x"), str(tmp_path / "y"))
    assert code == ExitCode.PREPARATION_FAILED
    assert "is a run of another job than" in err


def test_odd_shares_are_refused_on_the_command_line(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--confidence", "20%"), ("--confidence", "100%"), ("--least-effect", "0.1")):
        with pytest.raises(SystemExit) as ended:
            main(["compare", point(study, 0), point(study, 1), option, value])
        assert ended.value.code == ExitCode.USAGE
    assert "is out of range; write 50% to 99.9999%" in capsys.readouterr().err


def test_a_run_that_broke_off_is_left_out_and_keeps_the_answer_open(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = files / "out" / "points" / "p000" / "r001" / "summary.json"
    text = json.loads(summary.read_text()) | {"state": "aborted", "reason": "agent 'b' was lost"}
    summary.write_text(json.dumps(text))
    sign_again(summary.parent)
    code, out, _ = answered(capsys, "compare", point(files, 1), point(files, 0))
    assert code == ExitCode.INCONCLUSIVE
    assert "r001: it ended early: agent 'b' was lost" in out


def test_runs_of_different_jobs_are_refused(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "other.yaml"
    scenario.write_text("workload: {collective: {kind: all_to_all, ranks: 2, size: 4KiB}}\n")
    (tmp_path / "rig.yaml").write_text(
        "agents:\n"
        "  - {name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 10Gbps}]}\n"
        "  - {name: b, ports: [{name: p0, addresses: 10.0.0.2, link: 10Gbps}]}\n"
    )
    (tmp_path / "t.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 10Gbps}\n")
    rig, topology = str(tmp_path / "rig.yaml"), str(tmp_path / "t.yaml")
    twin = ["twin", str(scenario), "--rig", rig, "--topology", topology, "--out", str(tmp_path / "other")]
    assert main(twin) == 0
    capsys.readouterr()
    code, _, err = answered(capsys, "compare", point(study, 0), str(tmp_path / "other"))
    assert code == ExitCode.PREPARATION_FAILED
    assert "is a run of another job than" in err

"""The files of a release: notes, checksums, archives; and what a trial of one measures."""

from __future__ import annotations

import base64
import hashlib
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tools import make_release, try_release
from tools.agent_wheel import make_agent_wheel
from tools.make_release import ReleaseError, changes_of, notes_of, pack_site, sums_of, unpack
from tools.try_release import READ_SOURCE, TESTS, TrialError, size_bytes, wheel_for

CHANGELOG = "# Changes\n\n## 0.2.0 (unreleased)\n\nNew: [labs](docs/lab.md), [NCCL](https://x.org).\n\n## 0.1.0\n\nOld.\n"


def test_notes_have_the_changes_of_their_version_without_links_into_the_tree() -> None:
    changes = changes_of(CHANGELOG, "0.2.0")
    assert changes == "New: [labs](docs/lab.md), [NCCL](https://x.org).\n"
    assert changes_of(CHANGELOG, "0.1.0") == "Old.\n"
    notes = notes_of("0.2.0", "abc123", changes, [("a.whl", 4_010_835)])
    assert "| `a.whl` | 4.0 MB |\n" in notes
    assert notes.endswith("## Changes\n\nNew: labs, [NCCL](https://x.org).\n")
    with pytest.raises(ReleaseError, match=r"no section of 0\.3\.0; write one"):
        changes_of(CHANGELOG, "0.3.0")


def test_the_version_of_this_tree_has_a_section() -> None:
    assert changes_of((ROOT / "CHANGELOG.md").read_text(), "0.1.0")


def test_a_tree_with_changes_makes_no_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_release, "run", lambda *_, **__: " M cli/main.py\n")
    assert make_release.main(["python3"]) == 1
    assert "the tree differs from its commit:\nM cli/main.py" in capsys.readouterr().err
    assert make_release.main([]) == 2


def test_a_failing_step_shows_its_end() -> None:
    with pytest.raises(ReleaseError, match="sh ended with 3: reason"):
        make_release.run("sh", "-c", "echo reason; exit 3")


def test_a_site_is_packed_the_same_twice(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "docs").mkdir(parents=True)
    (site / "docs" / "a.html").write_text("a")
    for name in ("first", "second"):
        pack_site(site, tmp_path / name, 1_790_000_000)
        (site / "docs" / "a.html").touch()
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    with tarfile.open(tmp_path / "first") as packed:
        assert packed.getnames() == ["site/docs", "site/docs/a.html"]


def test_sums_are_of_every_file_but_themselves(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"b")
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "SHA256SUMS").write_text("old")
    assert sums_of(tmp_path) == "".join(
        f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("a", "b")
    )


def test_a_source_distribution_replaces_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "tree" / "etloop-1").mkdir(parents=True)
    with tarfile.open(tmp_path / "etloop-1.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "tree" / "etloop-1", "etloop-1")
    (tmp_path / "into" / "old").mkdir(parents=True)
    assert unpack(tmp_path / "etloop-1.tar.gz", tmp_path / "into") == tmp_path / "into" / "etloop-1"
    assert not (tmp_path / "into" / "old").exists()


def test_an_interpreter_gets_the_wheel_that_fits(tmp_path: Path) -> None:
    def python(version: str) -> str:
        file = tmp_path / f"python{version}"
        file.write_text(f"#!/bin/sh\necho {version.replace('.', ' ')}\n")
        file.chmod(0o755)
        return str(file)

    for tag in ("cp311-cp311", "cp312-abi3"):
        zipfile.ZipFile(tmp_path / f"etloop-0.1.0-{tag}-manylinux_2_28_x86_64.whl", "w").close()
    assert "cp311-cp311" in wheel_for(tmp_path, python("3.11")).name
    assert "cp312-abi3" in wheel_for(tmp_path, python("3.14")).name
    with pytest.raises(TrialError, match=r"no wheel for Python 3\.10"):
        wheel_for(tmp_path, python("3.10"))


def test_pip_is_not_part_of_an_agents_size(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, size in (("pip/a.py", 9), ("numpy/b.so", 5), ("numpy/__pycache__/b.pyc", 7), ("six.py", 2)):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_bytes(b"0" * size)
    assert size_bytes(tmp_path) == 14


def test_the_tests_of_a_trial_exist() -> None:
    assert [name for name in (*TESTS, *READ_SOURCE) if not (ROOT / name).exists()] == []
    assert try_release.main([]) == 2


def test_an_agents_wheel_has_its_rooms_and_its_command_alone(tmp_path: Path) -> None:
    whole = tmp_path / "etloop-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    metadata = (
        "Metadata-Version: 2.4\nName: etloop\nVersion: 0.1.0\nRequires-Dist: numpy>=1.26\nProvides-Extra: agent\n"
        'Requires-Dist: aiomqtt>=2.3; extra == "agent"\nProvides-Extra: otel\nRequires-Dist: otel; extra == "otel"\n\nWhat it is'
    )
    commands = (
        "[pytest11]\netloop = p\n\n[console_scripts]\netloop = c:main\netloop-agent = etloop.agent.cli:main\n"
    )
    files = {
        "etloop/__init__.py": "",
        "etloop/agent/cli.py": "print()",
        "etloop/cli/main.py": "",
        "etloop/traffic/_native.so": "code",
        "etloop-0.1.0.dist-info/METADATA": metadata,
        "etloop-0.1.0.dist-info/entry_points.txt": commands,
        "etloop-0.1.0.dist-info/RECORD": "old",
        "etloop-0.1.0.data/data/share/man/man1/etloop.1": "",
    }
    with zipfile.ZipFile(whole, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    (tmp_path / "out").mkdir()
    made = make_agent_wheel(whole, tmp_path / "out")
    assert made.name == "etloop_agent-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(made) as wheel:
        texts = {name: wheel.read(name).decode() for name in wheel.namelist()}
    info = "etloop_agent-0.1.0.dist-info"
    record = texts.pop(f"{info}/RECORD")
    assert texts == {
        "etloop/__init__.py": "",
        "etloop/agent/cli.py": "print()",
        "etloop/traffic/_native.so": "code",
        f"{info}/METADATA": "Metadata-Version: 2.4\nName: etloop-agent\nVersion: 0.1.0\nRequires-Dist: numpy>=1.26\n"
        'Provides-Extra: agent\nRequires-Dist: aiomqtt>=2.3; extra == "agent"\n\nWhat it is',
        f"{info}/entry_points.txt": "[console_scripts]\netloop-agent = etloop.agent.cli:main\n",
    }
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"print()").digest()).rstrip(b"=").decode()
    assert f"etloop/agent/cli.py,sha256={digest},7\n" in record
    assert record.endswith(f"{info}/RECORD,,\n")

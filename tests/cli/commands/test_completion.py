"""`etloop completion` in the shells themselves: commands, actions, options and choices are completed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from etloop.cli import main
from etloop.cli.commands.completion import SHELLS
from etloop.cli.parser import find_commands

LINES = [
    ("a command", "etloop comp", {"compare", "completion"}),
    ("an action of one", "etloop nic ", {"profile", "show", "compare"}),
    ("an option of that", "etloop nic profile --sim", {"--simulated"}),
    ("a choice", "etloop bench mes", {"messages"}),
]


def script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main.main(("completion", shell)) == 0
    path = tmp_path / ("_etloop" if shell == "zsh" else f"etloop.{shell}")
    path.write_text(capsys.readouterr().out)
    return path


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("sentence", "line", "offered"), LINES)
def test_bash_offers(
    sentence: str, line: str, offered: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.split(" ")
    asked = (
        f"source {script('bash', tmp_path, capsys)}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1};"
        + ('COMP_WORDS+=("");' if not words[-1] else "")
        + ' COMPREPLY=(); _shtab_etloop; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert offered <= {word.strip() for word in run("bash", "-c", asked).split()}, sentence


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish to try it in (Debian package fish)")
@pytest.mark.parametrize(("sentence", "line", "offered"), LINES)
def test_fish_offers(
    sentence: str, line: str, offered: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = f"source {script('fish', tmp_path, capsys)}; complete -C '{line}'"
    assert offered <= {one.split("\t")[0] for one in run("fish", "-c", asked).splitlines()}, sentence


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh to try it in (Debian package zsh)")
def test_zsh_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it offers depends on widgets that want a terminal; that it is read whole, and registers itself, does not."""
    place = script("zsh", tmp_path, capsys).parent
    asked = f"fpath=({place} $fpath); autoload -Uz compinit; compinit -D -u; print $_comps[etloop]"
    assert run("zsh", "-f", "-c", asked).strip() == "_etloop"
    assert run("zsh", "-f", "-n", str(place / "_etloop")) == ""


def test_every_command_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        assert main.main(("completion", shell)) == 0
        text = capsys.readouterr().out
        assert all(name in text for name in find_commands()), shell


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(("completion", "cmd"))
    assert "choose from" in capsys.readouterr().err

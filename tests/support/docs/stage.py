"""Where the commands of a page are run: one shell in namespaces of its own, whose network, processes and /run end with it.

Decides how a page becomes one script, and what its results were. The page's commands run as they are printed; what they
need and the page does not show (a trace, agents, a broker), and where they are made shorter, is said by `Stage`.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.docs.pages import Block
from tests.support.places import ROOT

NO_NAMESPACES: Final = "this kernel gives no network namespaces"
READY_GLANCES: Final = 600
GLANCE_S: Final = 0.05
_APART: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_PROGRAM: Final = """\
import ast, asyncio, inspect, sys
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
ended = eval(code, {"__name__": "__main__"})
asyncio.run(ended) if inspect.iscoroutine(ended) else None
"""
"""Runs a file as Python does, and lets it await where no function is, as pages do."""
_NOT_COPIED: Final = shutil.ignore_patterns("job", "traces", "state")
"""What commands of the documentation leave below examples/."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is different about one printed command when a test runs it."""

    before: str = ""
    """Lines of shell that run before it, where what it needs is made by no command of the page."""
    change: Mapping[str, str] = field(default_factory=dict)
    """Words of it that are replaced: placeholders by what they stand for, and sizes by shorter ones."""
    exits: tuple[int, ...] = (0,)
    """Exit codes that are right; several where a measurement decides."""
    writes: str = ""
    """Of a program: the file that it is, for a command that follows; "": it is run."""
    stays: str = ""
    """What it prints when it is ready, if it does not end by itself; it goes on beside the others."""
    until: str = ""
    """What it has printed when it is interrupted, as by Ctrl-C; "": it ends by itself."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a page needs besides what it shows."""

    before: str = ""
    """Lines of shell that run first; the files that the page shows are there already."""
    steps: Mapping[str, Step] = field(default_factory=dict)
    """By how the command begins, or all of it; each key must fit exactly one command of the page, `KEY#2` the second."""
    directory: str = "."
    """Where its commands run, below a copy of the repository's examples."""
    equal: tuple[str, ...] = ()
    """Regular expressions of those parts of lines of measured output that are the same everywhere."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One command that was run."""

    block: Block
    printed: str
    """The command as the page has it."""
    expected: tuple[int, ...]
    code: int | None
    """What it exited with; None if it was never reached or did not end."""
    output: str


@functools.cache
def apart() -> tuple[str, ...]:
    """Return what runs a command in namespaces of its own; () where this kernel gives none."""
    if shutil.which("unshare") is None:
        return ()
    prefix = _APART if os.geteuid() == 0 else (_APART[0], "--map-root-user", *_APART[1:])
    tried = subprocess.run(
        [*prefix, "mount", "-t", "tmpfs", "none", "/run"], check=False, capture_output=True
    )
    return prefix if tried.returncode == 0 else ()


def step_of(stage: Stage, commands: Sequence[str], at: int) -> Step:
    """Return what is different about the command at this place of a page."""
    for key, step in stage.steps.items():
        if place_of(key, commands) == at:
            return step
    return Step()


def place_of(key: str, commands: Sequence[str]) -> int:
    """Return which command of a page a key of `Stage.steps` means; ValueError if none or several fit."""
    beginning, _, number = key.partition("#")
    fitting = [at for at, command in enumerate(commands) if command.startswith(beginning)]
    if number:
        fitting = fitting[int(number) - 1 : int(number)]
    if len(fitting) != 1:
        raise ValueError(f"{key!r} fits {len(fitting)} commands of the page; it must fit one")
    return fitting[0]


def changed(command: str, step: Step) -> str:
    """Return the command as it is run; ValueError if it has not the words that are to be replaced."""
    for old, new in step.change.items():
        if old not in command:
            raise ValueError(f"{command!r} has no {old!r} to be replaced")
        command = command.replace(old, new)
    return command


def play(blocks: Sequence[Block], stage: Stage, directory: Path, limit_s: int) -> list[Ran]:
    """Run a page's commands in order in `directory` until one fails; no longer than `limit_s`."""
    kept = directory / "outputs"
    kept.mkdir()
    shutil.copytree(ROOT / "examples", directory / "examples", ignore=_NOT_COPIED)
    printed = [(block, one) for block in blocks if _is_run(block) for one in _commands(block)]
    script = directory / "page.sh"
    script.write_text(_script(blocks, stage, directory))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_COLOR": "1",
    }
    environment.pop("XDG_RUNTIME_DIR", None)
    try:
        with (directory / "script.log").open("wb") as log:
            subprocess.run(
                [*apart(), "bash", str(script)],
                check=False,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
            )
    except subprocess.TimeoutExpired:
        pass  # the command that did not end has no exit code
    commands = [one for _, one in printed]
    return [
        Ran(
            block,
            command,
            step_of(stage, commands, at).exits,
            _number(kept / f"{at}.code"),
            _text(kept / f"{at}.out") or _text(directory / "script.log"),
        )
        for at, (block, command) in enumerate(printed)
    ]


def _is_run(block: Block) -> bool:
    return block.language in ("sh", "python") and not {"not-run", "run-by", "form"} & set(block.words)


def _commands(block: Block) -> list[str]:
    """A program is one command."""
    return block.commands() if block.language == "sh" else [block.text]


def _script(blocks: Sequence[Block], stage: Stage, directory: Path) -> str:
    commands = [one for block in blocks if _is_run(block) for one in _commands(block)]
    for key in stage.steps:
        place_of(key, commands)
    here = directory / stage.directory
    lines = [
        "exec 2>&1",
        # A run directory of labs that is nobody else's: their sockets, and the descriptors that hold namespaces.
        "mount -t tmpfs none /run && mkdir -m 700 /run/labs && ip link set lo up || exit 1",
        f"export HOME={shlex.quote(str(directory))} XDG_RUNTIME_DIR=/run/labs",
        f"cd {shlex.quote(str(here))} || exit 1",
    ]
    shown: dict[str, str] = {}
    for block in blocks:
        if block.language == "yaml" and block.file_name():
            shown.setdefault(block.file_name(), block.text)
    lines += [_file(name, text) for name, text in shown.items()]
    lines += ["set -e", stage.before, "set +e"]
    at = 0
    for block in blocks:
        if block.language == "yaml" and block.file_name() and block.text != shown[block.file_name()]:
            lines.append(_file(block.file_name(), block.text))
        for command in _commands(block) if _is_run(block) else ():
            step, name = step_of(stage, commands, at), f"{directory}/outputs/{at}"
            done = changed(command, step)
            if block.language == "python":
                file = step.writes or f"{name}.py"
                done = f"{_file(file, done)}\n" + (
                    "" if step.writes else f"python -c {shlex.quote(_PROGRAM)} {file}"
                )
            lines.append(_run(done, step, name))
            at += 1
    return "\n".join(lines) + "\n"


def _file(name: str, text: str) -> str:
    return f"cat > {name} <<'END OF FILE'\n{text}END OF FILE"


def _run(done: str, step: Step, name: str) -> str:
    codes = " ".join(str(code) for code in step.exits)
    keep = f'echo $? > {name}.code; [[ " {codes} " == *" $(cat {name}.code) "* ]] || exit 1'
    before = f"set -e\n{step.before}\nset +e\n" if step.before else ""
    if not (ready := step.stays or step.until):
        return f"{before}{{ {done}\n}} > {name}.out 2>&1\n{keep}"
    seen = f"grep -qF -e {shlex.quote(ready)} {name}.out"
    # A shell without a terminal lets what it starts in the background ignore Ctrl-C, and `env` undoes that.
    started = f"( exec env --default-signal=INT {done}\n) > {name}.out 2>&1 &"
    waited = f"for glance in $(seq {READY_GLANCES}); do {seen} && break; sleep {GLANCE_S}; done"
    ended = f"{seen} && {{ kill -INT $!; wait $!; }}\n" if step.until else f"{seen}\n"
    return f"{before}{started}\n{waited}\n{ended}{keep}"


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text else None


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""

"""Record ranks: a server that forks one process for each order on its standard input, a path a line.

PyTorch is imported once, before any fork. record/launch.py writes the orders; the end of a rank is the file that its order
names as `ended`. When the input ends, the server ends the processes that still run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

_POLL_S = 0.02


def serve() -> None:
    """Fork a process for each order until the input ends."""
    from . import recorder, stand_ins  # noqa: F401 - imported once for all ranks

    running: dict[int, str] = {}
    is_open = True
    pending = b""
    while is_open or running:
        if is_open and select.select([0], [], [], _POLL_S)[0]:
            chunk = os.read(0, 1 << 16)
            is_open = bool(chunk)
            pending += chunk
        *lines, pending = pending.split(b"\n")
        for line in lines:
            order = json.loads(Path(line.decode()).read_text())
            child = os.fork()
            if not child:
                _become(order)
            running[child] = order["ended"]
        if not is_open:
            for child in running:
                os.kill(child, signal.SIGKILL)
        while running:
            child, _ = os.waitpid(-1, 0 if not is_open else os.WNOHANG)
            if not child:
                break
            Path(running.pop(child)).touch()


def _become(order: dict[str, Any]) -> None:
    """Turn a forked process into that of a rank: its environment, its output, its script. Does not return."""
    os.environ.update(order["environment"])
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        record_rank(order)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Interpreters with fake storages may fail while they are torn down; everything is written.
        os._exit(0)


def record_rank(order: dict[str, Any]) -> None:
    """Run the script of an order and write its events, the last of which is `end` or a refusal."""
    import torch

    from .events import EventFile, Refusal, ScriptPlaces

    places = ScriptPlaces(str(Path(torch.__file__).parent), _own_directory(order["module"]))
    with Path(order["events"]).open("w") as file:
        events = EventFile(file)
        events.write(
            kind="begin", rank=order["rank"], world_size=order["world_size"], torch=torch.__version__
        )
        try:
            _run(order, events, places)
        except Refusal as refusal:
            place = places.of_error(refusal.__traceback__) or order["script"]
            events.write(kind="refusal", place=place, what=refusal.what, remedy=refusal.remedy)
        except SystemExit as stop:
            if stop.code not in (None, 0):
                events.write(
                    kind="refusal",
                    place=order["script"],
                    what=f"the script ended with exit code {stop.code}",
                    remedy="run it with its usual arguments first",
                )
        except BaseException as error:  # noqa: BLE001 - whatever the script raises is reported with its place
            first = _first_error(error)
            place = (
                places.of_error(first.__traceback__)
                or places.of_error(error.__traceback__)
                or order["script"]
            )
            text = str(first).strip().splitlines()
            message = f"{type(first).__name__}: {text[0][:300] if text else ''}"
            cause = _refusal_behind(error)
            if cause is not None:
                events.write(kind="refusal", place=place, what=cause.what, remedy=cause.remedy)
            else:
                from .remedies import remedy_for

                events.write(kind="refusal", place=place, what=message, remedy=remedy_for(message))
                Path(order["events"]).with_suffix(".traceback").write_text(traceback.format_exc())
        file.flush()


def _own_directory(module: str) -> str:
    """Return where the package of a module that is run lies, "" for a script."""
    if not module:
        return ""
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        return ""
    return str(Path(spec.origin).parent)


def _first_error(error: BaseException) -> BaseException:
    """Return the error that an error was raised from: that says what happened, and the others where."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _refusal_behind(error: BaseException | None) -> Any:
    from .events import Refusal

    while error is not None:
        if isinstance(error, Refusal):
            return error
        error = error.__cause__ or error.__context__
    return None


def _run(order: dict[str, Any], events: Any, places: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from . import seeds
    from .process_groups import replace_process_groups
    from .recorder import Record, RecordingMode
    from .stand_ins import install
    from .tokens import TokenCounts

    tokens = TokenCounts(order["rank"], order["skew"], order["seed"])
    record = Record(events, places, order["rank"], tokens, order["items"])
    if order["preload"]:
        from .streams import Streams

        record.streams = Streams(order["preload"], events.write, record.note)
    replace_process_groups(record, order["rank"], order["world_size"])
    install(record, order)
    record.answers.install()
    seeds.install()
    if order["hook"]:
        import types

        record.answers.hooks = types.ModuleType("etloop_hook")
        record.answers.hooks.__file__ = order["hook"]
        exec(compile(Path(order["hook"]).read_text(), order["hook"], "exec"), vars(record.answers.hooks))  # noqa: S102
    sys.argv = [order["script"], *order["arguments"]]
    sys.path[0] = str(Path.cwd() if order["module"] else Path(order["script"]).resolve().parent)
    import random

    import torch

    if record.streams is not None:
        torch.cuda.init()
    torch.manual_seed(0)
    random.seed(0)
    with FakeTensorMode(allow_non_fake_inputs=True), record.modules, RecordingMode(record):
        if order["module"]:
            runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(order["script"], run_name="__main__")
    record.finish()

"""The process of a run that stands still at a chosen stage of its life, once, so that a test can kill it exactly there.

It is the product's own process with one function of it replaced. `stand_still_at` names the stage for those that are started
afterwards; they make the file `STOOD` of the directory when they are there, and whoever comes by later passes.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from etloop.runtime.own_module import own_module

STAGES: Final[dict[str, tuple[str, str, str]]] = {
    "before its directory is made": ("etloop.controller.run.out_directory", "_try_out", ""),
    "with its directory made": ("etloop.controller.run.kept_run", "write_files", ""),
    "with half of its material kept": ("etloop.results.store.run_dir", "_write", "material.json"),
    "with its material kept, before traffic": ("etloop.controller.session.spool", "RunSpool.begin", ""),
    "as its traffic begins": ("etloop.controller.session.spool", "RunSpool.keep_ops", ""),
    "after its traffic": ("etloop.controller.session.spool", "RunSpool.end", ""),
    "as its first table is written": ("etloop.results.store.run_dir", "_keep_existing", "ops.parquet"),
    "after its tables, before its summary": (
        "etloop.results.store.run_dir",
        "_keep_existing",
        "summary.json",
    ),
    "with its summary written": ("etloop.controller.run.run_results", "_expectation", ""),
}
"""Module, function, and the name of a file that one of its arguments has; "" for any."""
STOOD: Final = "stood"
_STAGE: Final = "ETLOOP_TEST_STAGE"
_DIRECTORY: Final = "ETLOOP_TEST_DIRECTORY"


def stand_still_at(monkeypatch: Any, stage: str, directory: Path) -> Path:
    """Has processes of runs stand still there; the file that tells that one does."""
    monkeypatch.setenv(_STAGE, stage)
    monkeypatch.setenv(_DIRECTORY, str(directory))
    monkeypatch.setattr(
        "etloop.controller.rack.runs.supervisor.own_module",
        lambda _, *words: own_module("tests.support.rack.run_that_stops", *words),
    )
    return directory / STOOD


def _stopping(function: Callable[..., Any], file_name: str, stood: Path) -> Callable[..., Any]:
    def stops(*arguments: Any, **options: Any) -> Any:
        names = {each.name for each in arguments if isinstance(each, Path)}
        if (not file_name or file_name in names) and not stood.exists():
            # By a rename, so that whoever sees the file can read the number.
            partial = stood.with_suffix(".partial")
            partial.write_text(str(os.getpid()))
            partial.rename(stood)
            threading.Event().wait()
        return function(*arguments, **options)

    return stops


def main() -> None:
    """Run one, as `etloop.controller.rack.runs.process` does."""
    module_name, path, file_name = STAGES[os.environ[_STAGE]]
    place: Any = importlib.import_module(module_name)
    *classes, name = path.split(".")
    for each in classes:
        place = getattr(place, each)
    stood = Path(os.environ[_DIRECTORY]) / STOOD
    original = getattr(place, name)
    setattr(place, name, _stopping(original, file_name, stood))
    process = importlib.import_module("etloop.controller.rack.runs.process")
    if module_name == "etloop.controller.run.kept_run":
        assert place.write_files is not original
    process.main()


if __name__ == "__main__":
    assert len(sys.argv) == 2
    main()

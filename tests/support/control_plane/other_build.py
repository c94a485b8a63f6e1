"""An agent of another build with our protocol version: `python -m tests.support.control_plane.other_build HOW run ...`.

HOW it differs: `reads` another form of an assignment, `opens` an engine that fails as no engine of ours does, or `dies` of it.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from typing import Any

from etloop.contract.model import assignment


def _with_a_field_more() -> None:
    """Before anything derives messages from it."""
    first, *others = dataclasses.fields(assignment.Assignment)
    fields: list[Any] = [(first.name, first.type), ("of_another_build", "int")]
    fields += [(each.name, each.type) for each in others]
    other = dataclasses.make_dataclass(
        "Assignment", fields, frozen=True, slots=True, namespace={"__module__": assignment.__name__}
    )
    assignment.Assignment = other  # type: ignore[assignment, misc]


def _opens(*_: object) -> Any:
    raise AttributeError("'Assignment' object has no attribute 'of_another_build'" + " and so on" * 10_000)


def _dies(*_: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Run the agent."""
    how = sys.argv.pop(1)
    if how != "reads":
        from etloop.agent import service

        opening: Any = {"opens": _opens, "dies": _dies}[how]
        service.open_allowed = opening
    else:
        _with_a_field_more()
    from etloop.agent.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())

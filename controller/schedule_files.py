"""Schedules of the user's own, from files that the scenario names: MSCCL XML, Python, custom Chakra traces.

Reads the files and, of a Python file, runs it: that is code with the rights of whoever runs the command, which is why it
is only taken from the scenario's own directory. What comes out of any of them is proved before it is used.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from contract.errors import ConfigError, EtloopError, InputError, PlanError, Problem
from controller.custom_traces import read_custom, schedule_of_custom
from traffic.collectives.choice import NO_LIMIT_BYTES, Custom
from traffic.collectives.msccl import prove
from traffic.collectives.msccl_reader import LARGEST_TEXT_BYTES, read_msccl
from traffic.collectives.msccl_schedule import msccl_schedule
from traffic.collectives.nccl_tables import NcclAlgorithm
from traffic.collectives.table import Protocol, Schedule
from traffic.collectives.validate import validate
from workload.files import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from controller.scenario_collectives import Collectives, ScheduleFile
    from traffic.collectives.cutting import Request

FUNCTION: Final = "schedule"
"""What a Python file defines: `def schedule(request: Request) -> Schedule`."""
_BEYOND_A_LOOP_BYTES: Final = 333
_FULLY_CHECKED_RANKS: Final = 64
"""Larger groups are proved for one loop, smaller ones for two."""
_PROVED_CHUNK_BYTES: Final = 2 << 20
_MSCCL_PROTOCOLS: Final = {"Simple": Protocol.SIMPLE, "LL": Protocol.LL, "LL128": Protocol.LL128}


def with_schedule_files(collectives: Collectives) -> Collectives:
    """The section with its schedule files read. Raises an `InputError` with the mistakes of all of them."""
    problems: list[Problem] = []
    found: list[tuple[str, Custom]] = []
    for file in collectives.files:
        try:
            found.append((file.collective, _READERS[file.path.suffix](file)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return replace(collectives, settings=replace(collectives.settings, custom=tuple(found)))


def check(schedule: Schedule, *, contents: bool = True) -> None:
    """Proves a schedule for an op that needs more than one loop. Raises `PlanError` with the step that breaks it."""
    # Larger chunks have more bytes, and nothing else.
    schedule = replace(schedule, chunk_bytes=min(schedule.chunk_bytes, _PROVED_CHUNK_BYTES))
    validate(schedule, _proved_bytes(schedule), contents=contents)


def _proved_bytes(schedule: Schedule) -> int:
    """An op in which every lane has two loops, the second one not full; in a large group one. Lanes that work on less than
    a share of one position and channel may have fewer."""
    loops = schedule.chunk_bytes if schedule.size <= _FULLY_CHECKED_RANKS else 0
    lane_bytes = schedule.chunks_per_loop * (loops + _BEYOND_A_LOOP_BYTES) + 1
    shared = {(lane.parts * lane.shares, max(lane.span, 1)) for table in schedule.tables for lane in table}
    least_share = max(1, schedule.size * schedule.channels)
    return max(
        -(-lane_bytes * min(parts, span * least_share) // span) for parts, span in {*shared, (1, least_share)}
    )


def _msccl(file: ScheduleFile) -> Custom:
    algorithm = read_msccl(_read(file), str(file.path))
    if algorithm.collective != file.collective:
        what = f"{file.path.name} is for {algorithm.collective}"
        raise ConfigError(Problem(file.where, what, "name it under that collective"))
    moves = prove(algorithm, str(file.path))
    name = f"msccl:{algorithm.name or file.path.stem}"

    def build(request: Request) -> Schedule:
        schedule = msccl_schedule(request, name, algorithm, moves)
        # Where a chunk lies, scratch included, was followed by `prove`.
        check(schedule, contents=False)
        return schedule

    return Custom(
        name=name,
        build=build,
        protocol=_MSCCL_PROTOCOLS[algorithm.protocol],
        channels=algorithm.channels,
        ranks=len(algorithm.gpus),
        least_bytes=algorithm.least_bytes,
        most_bytes=algorithm.most_bytes or NO_LIMIT_BYTES,
    )


def _custom_traces(file: ScheduleFile) -> Custom:
    trace = read_trace(file.path.with_suffix(""))
    program = read_custom(trace, str(file.path), file.recorded_bytes, file.collective)
    name = f"custom:{file.path.stem}"

    def build(request: Request) -> Schedule:
        schedule = schedule_of_custom(request, name, program)
        # Traces do not tell which data a message carries.
        check(schedule, contents=False)
        return schedule

    return Custom(name=name, build=build, ranks=len(trace.ranks))


@dataclass(frozen=True, slots=True)
class _Python:
    """The function of a Python file, guarded: whatever it raises or returns becomes an error with file and line."""

    path: Path
    function: Callable[[Request], Any]

    def __call__(self, request: Request) -> Schedule:
        with redirect_stdout(sys.stderr):
            return self._made(request)

    def _made(self, request: Request) -> Schedule:
        where = f"{request.collective} of {request.size}"
        try:
            schedule = self.function(request)
        except EtloopError:
            raise
        except Exception as error:  # noqa: BLE001 -- somebody else's code
            raise PlanError(_raised(self.path, error, f"{FUNCTION}() for {where}")) from None
        if not isinstance(schedule, Schedule):
            what = f"{FUNCTION}() for {where} returned {type(schedule).__name__}"
            raise PlanError(Problem(str(self.path), what, "return a Schedule, as docs/schedules.md shows"))
        asked = (request.collective, request.size)
        if (schedule.collective, schedule.size) != asked:
            what = f"{FUNCTION}() for {where} returned one for {schedule.collective} of {schedule.size}"
            raise PlanError(Problem(str(self.path), what, "return the schedule that was asked for"))
        schedule = replace(schedule, algorithm=f"file:{self.path.stem}")
        try:
            check(schedule)
        except EtloopError:
            raise
        except Exception as error:  # noqa: BLE001 -- values of any type, and tables that are made when they are read
            doing = f"proving what {FUNCTION}() for {where} returned"
            raise PlanError(_raised(self.path, error, doing)) from None
        return schedule


def _python(file: ScheduleFile) -> Custom:
    _read(file)
    module = _module(file.path)
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        what = f"{file.path.name} defines no function {FUNCTION}"
        raise ConfigError(
            Problem(str(file.path), what, f"write def {FUNCTION}(request), as docs/schedules.md shows")
        )
    numbers = {"CHANNELS": (1, 64), "RANKS": (0, 1024)}
    values = {}
    for name, (least, most) in numbers.items():
        value = getattr(module, name, least)
        if type(value) is not int or not least <= value <= most:
            what = f"{name} is {value!r:.64}"
            raise ConfigError(Problem(str(file.path), what, f"write a whole number from {least} to {most}"))
        values[name] = value
    uneven = getattr(module, "UNEVEN", False)
    if type(uneven) is not bool:
        raise ConfigError(Problem(str(file.path), f"UNEVEN is {uneven!r:.64}", "write True or False"))
    return Custom(
        name=f"file:{file.path.stem}",
        build=_Python(file.path, function),
        # One message a chunk, as other algorithms that NCCL does not have: slices of gathered chunks are not those of each.
        cut_as=NcclAlgorithm.TREE,
        channels=values["CHANNELS"],
        ranks=values["RANKS"],
        uneven=uneven,
    )


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"etloop_schedule_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        # What it prints is not the command's answer.
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except SyntaxError as error:
        what = f"not valid Python: {error.msg}"
        raise ConfigError(Problem(f"{path}:{error.lineno}", what, "correct it")) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- somebody else's code
        raise ConfigError(_raised(path, error, "reading it")) from None
    return module


def _raised(path: Path, error: BaseException, doing: str) -> Problem:
    """What an exception of the user's code says, at the last of its own lines that led to it."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{path}:{own[-1].lineno}" if own else str(path)
    return Problem(where, f"{doing} raised {type(error).__name__}: {str(error)[:500]}", "correct the file")


def _read(file: ScheduleFile) -> bytes:
    try:
        with file.path.open("rb") as stream:
            return stream.read(LARGEST_TEXT_BYTES + 1)
    except OSError as error:
        what = f"{file.path} cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(file.where, what, "check the name and that it may be read")) from None


_READERS: Final[dict[str, Callable[[ScheduleFile], Custom]]] = {
    ".xml": _msccl,
    ".py": _python,
    ".et": _custom_traces,
}

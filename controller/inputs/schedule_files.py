"""The user's own schedules, from files that the scenario names: MSCCL XML, MSCCL++ plans,
Python, custom Chakra traces.

Reads the files and executes Python files. A Python file runs with the rights of the user who runs the command; therefore it
is only accepted from the scenario's own directory. The schedules of all formats are proved before use.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from etloop.contract.base.errors import ConfigError, EtloopError, InputError, PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.chakra_schedules import name_of_node, read_custom, schedule_of_custom
from etloop.controller.inputs.mscclpp_plans import read_plan
from etloop.traffic.collectives.choice import NO_LIMIT_BYTES, Custom
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.table import Protocol, Schedule
from etloop.traffic.collectives.msccl.proof import name_of_step, prove
from etloop.traffic.collectives.msccl.reader import LARGEST_TEXT_BYTES, read_msccl
from etloop.traffic.collectives.msccl.schedule import EntryKey, msccl_schedule
from etloop.traffic.collectives.nccl.constants import NcclAlgorithm
from etloop.traffic.collectives.proof.execution import step_name
from etloop.traffic.collectives.proof.validate import Called, validate
from etloop.workload.readers.files import read_trace

if TYPE_CHECKING:
    from etloop.controller.inputs.scenario.collectives import Collectives, ScheduleFile

FUNCTION: Final = "schedule"
"""Name of the function that a Python file defines: `def schedule(request: Request) -> Schedule`."""
_BEYOND_A_LOOP_BYTES: Final = 333
_FULLY_CHECKED_RANKS: Final = 64
"""Larger groups are proved for one loop, groups up to this size for two."""
_PROVED_CHUNK_BYTES: Final = 2 << 20
_PATIENCE_S: Final = 60
"""CPU time that a Python file may take for one call."""
_Key = TypeVar("_Key")
_MSCCL_PROTOCOLS: Final = {"Simple": Protocol.SIMPLE, "LL": Protocol.LL, "LL128": Protocol.LL128}


def with_schedule_files(collectives: Collectives) -> Collectives:
    """Return the section with its schedule files read. Raises `ConfigError` with the mistakes of all of them."""
    problems: list[Problem] = []
    custom: list[tuple[str, Custom]] = []
    for file in collectives.files:
        try:
            custom.append((file.collective, _READERS[file.path.suffix](file)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return replace(collectives, settings=replace(collectives.settings, custom=tuple(custom)))


def check(schedule: Schedule, *, contents: bool = True, called: Called | None = None) -> None:
    """Prove a schedule for an op that needs more than one loop. Raises `PlanError` with the first invalid step.

    `contents` and `called` are as in `validate`.
    """
    # The chunk size changes only the number of bytes, not the steps.
    schedule = replace(schedule, chunk_bytes=min(schedule.chunk_bytes, _PROVED_CHUNK_BYTES))
    validate(schedule, _proved_bytes(schedule), contents=contents, called=called)


def _proved_bytes(schedule: Schedule) -> int:
    """Return an op size for which every lane has two loops, the second one partial; one loop in large groups.

    Lanes that carry less than the share of one position and channel may have fewer loops.
    """
    full_loop_bytes = schedule.chunk_bytes if schedule.size <= _FULLY_CHECKED_RANKS else 0
    lane_bytes = schedule.chunks_per_loop * (full_loop_bytes + _BEYOND_A_LOOP_BYTES) + 1
    lane_shapes = {
        (lane.parts * lane.shares, max(lane.span, 1)) for table in schedule.tables for lane in table
    }
    least_share = max(1, schedule.size * schedule.channels)
    return max(
        -(-lane_bytes * min(parts, span * least_share) // span)
        for parts, span in {*lane_shapes, (1, least_share)}
    )


def _step_names(entries: Mapping[EntryKey, _Key], name: Callable[[_Key], str]) -> Called:
    """Return a function that gives the name of a step in the user's file, from the location of the entry made for it."""

    @cache
    def key_of_step() -> dict[str, _Key]:
        return {step_name((position, lane), entry): key for (position, lane, entry), key in entries.items()}

    def name_at(where: str) -> str:
        return name(key_of_step()[where]) if where in key_of_step() else ""

    return name_at


def _msccl(file: ScheduleFile) -> Custom:
    algorithm = read_msccl(_read(file), str(file.path))
    if algorithm.collective != file.collective:
        problem = f"{file.path.name} is for {algorithm.collective}"
        raise ConfigError(Problem(file.where, problem, "name it under that collective"))
    moves = prove(algorithm, str(file.path))
    name = f"msccl:{algorithm.name or file.path.stem}"

    def build(request: Request) -> Schedule:
        schedule, steps = msccl_schedule(request, name, algorithm, moves)
        name_of = _step_names(steps, lambda step: f"{file.path}, {name_of_step(algorithm, step)}")
        # `prove` has already checked the location of every chunk, including scratch buffers.
        check(schedule, contents=False, called=name_of)
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
        schedule, nodes = schedule_of_custom(request, name, program)
        # Traces do not contain which data a message carries.
        check(schedule, contents=False, called=_step_names(nodes, lambda node: name_of_node(trace, node)))
        return schedule

    return Custom(name=name, build=build, ranks=len(trace.ranks))


def _mscclpp(file: ScheduleFile) -> Custom:
    plan = read_plan(_read(file), str(file.path))
    if plan.collective != file.collective:
        problem = f"{file.path.name} is for {plan.collective}"
        raise ConfigError(Problem(file.where, problem, "name it under that collective"))
    program = read_custom(plan.trace, str(file.path), plan.recorded_bytes, file.collective)
    name = f"mscclpp:{plan.name or file.path.stem}"

    def build(request: Request) -> Schedule:
        schedule, nodes = schedule_of_custom(request, name, program)
        check(
            schedule,
            contents=False,
            called=_step_names(nodes, lambda node: name_of_node(plan.trace, node)),
        )
        return schedule

    return Custom(
        name=name,
        build=build,
        protocol=Protocol.LL if plan.is_packets else Protocol.SIMPLE,
        ranks=len(plan.trace.ranks),
        least_bytes=plan.least_bytes,
        most_bytes=plan.most_bytes or NO_LIMIT_BYTES,
        # A put is one transfer, whatever its size.
        cut_as=NcclAlgorithm.TREE,
    )


@dataclass(frozen=True, slots=True)
class _Python:
    """The function of a Python file. Whatever it raises or returns becomes an error with file and line."""

    path: Path
    function: Callable[[Request], Any]

    def __call__(self, request: Request) -> Schedule:
        where = f"{request.collective} of {request.size}"
        with _user_code(self.path, f"{FUNCTION}() for {where}", PlanError):
            schedule = self.function(request)
        if not isinstance(schedule, Schedule):
            problem = f"{FUNCTION}() for {where} returned {type(schedule).__name__}"
            raise PlanError(Problem(str(self.path), problem, "return a Schedule, as docs/schedules.md shows"))
        requested = (request.collective, request.size)
        if (schedule.collective, schedule.size) != requested:
            problem = (
                f"{FUNCTION}() for {where} returned a schedule for {schedule.collective} of {schedule.size}"
            )
            raise PlanError(Problem(str(self.path), problem, "return the requested schedule"))
        schedule = replace(schedule, algorithm=f"file:{self.path.stem}")
        # Fields may have any type, and tables may run user code when read. The proof has no time limit.
        with _user_code(
            self.path, f"proving what {FUNCTION}() for {where} returned", PlanError, patience_s=0
        ):
            check(schedule)
        return schedule


def _python(file: ScheduleFile) -> Custom:
    module = _load_module(file.path, _read(file))
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        problem = f"{file.path.name} defines no function {FUNCTION}"
        raise ConfigError(
            Problem(str(file.path), problem, f"write def {FUNCTION}(request), as docs/schedules.md shows")
        )
    ranges = {"CHANNELS": (1, 64), "RANKS": (0, 1024)}
    values = {}
    for name, (least, most) in ranges.items():
        value = getattr(module, name, least)
        if type(value) is not int or not least <= value <= most:
            problem = f"{name} is {value!r:.64}"
            raise ConfigError(
                Problem(str(file.path), problem, f"write a whole number from {least} to {most}")
            )
        values[name] = value
    uneven = getattr(module, "UNEVEN", False)
    if type(uneven) is not bool:
        raise ConfigError(Problem(str(file.path), f"UNEVEN is {uneven!r:.64}", "write True or False"))
    return Custom(
        name=f"file:{file.path.stem}",
        build=_Python(file.path, function),
        # One message per chunk, as for other algorithms that NCCL does not have: slices of a gathered chunk would not match.
        cut_as=NcclAlgorithm.TREE,
        channels=values["CHANNELS"],
        ranks=values["RANKS"],
        uneven=uneven,
    )


def _load_module(path: Path, source: bytes) -> ModuleType:
    """Execute the file as a module, directly from `source`: no bytecode cache is written or used."""
    module = ModuleType(f"etloop_schedule:{path}")
    module.__file__ = str(path)
    # Dataclasses and pickle look up the module of a class in sys.modules.
    sys.modules[module.__name__] = module
    with _user_code(path, "reading it", ConfigError):
        exec(_compile(path, source), module.__dict__)  # noqa: S102 -- executing the file is its purpose
    return module


def _compile(path: Path, source: bytes) -> CodeType:
    try:
        return compile(source, str(path), "exec")
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno is not None else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(Problem(f"{path}{line}", f"not valid Python: {reason}", "correct it")) from None


class _TooSlow(BaseException):
    """The CPU time limit is exceeded. A BaseException, so that `except Exception` in user code cannot catch it."""

    def __str__(self) -> str:
        return f"it took more than {_PATIENCE_S} s of processor time"


@contextmanager
def _user_code(
    path: Path, doing: str, raised: type[InputError], patience_s: float | None = None
) -> Iterator[None]:
    """Run user code: whatever it raises, SystemExit included, becomes an error at its line; its output goes to stderr.

    `patience_s` limits its CPU time; 0 means no limit. Outside the main thread there is never a limit.
    """
    patience_s = _PATIENCE_S if patience_s is None else patience_s
    try:
        with redirect_stdout(sys.stderr), _cpu_limit(patience_s):
            yield
    except (EtloopError, KeyboardInterrupt):
        raise
    except _TooSlow as error:
        raise raised(_exception_problem(path, error, f"{doing} does not end:")) from None
    except BaseException as error:  # noqa: BLE001 -- SystemExit among them
        raise raised(_exception_problem(path, error, f"{doing} raised {type(error).__name__}:")) from None


@contextmanager
def _cpu_limit(patience_s: float) -> Iterator[None]:
    if not patience_s or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TooSlow

    previous_handler = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, patience_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous_handler)


def _exception_problem(path: Path, error: BaseException, doing: str) -> Problem:
    """Return the problem for an exception, located at the innermost line of the user's file in its traceback."""
    user_frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    where = f"{path}:{user_frames[-1].lineno}" if user_frames else str(path)
    return Problem(where, f"{doing} {str(error)[:500]}", "correct the file")


def _read(file: ScheduleFile) -> bytes:
    try:
        # Opening a pipe would block until it has a writer.
        if file.path.exists() and not file.path.is_file():
            raise ConfigError(Problem(file.where, f"{file.path} is not a regular file", "name one"))
        with file.path.open("rb") as stream:
            return stream.read(LARGEST_TEXT_BYTES + 1)
    except OSError as error:
        problem = f"{file.path} cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(file.where, problem, "check the name and the permissions")) from None


_READERS: Final[dict[str, Callable[[ScheduleFile], Custom]]] = {
    ".xml": _msccl,
    ".py": _python,
    ".et": _custom_traces,
    ".json": _mscclpp,
}

"""Checks that an archive is a trace that a job can use, in a process of its own with resource limits. A shell.

The archive is not trusted: none of it is unpacked, links and names that point outside are refused although nothing
would follow them, and reading it is bounded in memory and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sys
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import EtloopError, InputError, Problem
from etloop.contract.base.units import approximate_bytes
from etloop.runtime.own_module import own_module
from etloop.workload.readers.decompression import CompressionFault, decompress
from etloop.workload.readers.files import read_trace
from etloop.workload.readers.stores import file_pieces
from etloop.workload.readers.tar_members import MemberKind, TarFault, members

CHECK_TIMEOUT_S: Final = 300.0
_PROCESSOR_S: Final = 300
_MOST_FILES: Final = 50_000
_MOST_TIMES: Final = 200
"""Highest ratio of unpacked size to the archive's size, as for a case."""
_LEAST_BYTES: Final = 16 << 20
"""Unpacked size that is allowed in any case."""
_MOST_PROBLEMS: Final = 20
_MOST_CHARACTERS: Final = 2000
_MOST_ANSWER_BYTES: Final = 1 << 20
_PACK_ANEW: Final = "pack the regular files of one job with tar"


async def trace_problems(path: Path, memory_bytes: int) -> tuple[Problem, ...]:
    """Return why an archive is not a usable trace; () if it is one."""
    process = await asyncio.create_subprocess_exec(
        *own_module("etloop.controller.rack.transfers.trace_check", str(path), str(memory_bytes)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_MOST_ANSWER_BYTES,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            answer = await process.stdout.readline()
            code = await process.wait()
    except (TimeoutError, ValueError):
        return (_beyond(f"was not read within {CHECK_TIMEOUT_S:.0f} s"),)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if code != 0 or not answer:
        return (_beyond(f"could not be read: reading it ended with code {code}"),)
    return tuple(Problem(*fields) for fields in json.loads(answer))


def _beyond(problem: str) -> Problem:
    return Problem("the trace", problem, "upload a smaller one, or have its rack read it below scenario_root")


def archive_problems(path: Path) -> tuple[Problem, ...]:
    """Return what is wrong with an archive itself: members other than regular files, or too much content."""
    most_bytes = max(_MOST_TIMES * path.stat().st_size, _LEAST_BYTES)
    inside_bytes = 0
    try:
        for number, member in enumerate(members(decompress(file_pieces(path))), 1):
            inside_bytes += member.size_bytes
            parts = member.name.rstrip("/").split("/")
            is_folder = (
                member.kind is MemberKind.OTHER and not member.size_bytes and member.name[-1:] in ("/", "")
            )
            if member.name.startswith("/") or ".." in parts:
                problem = f'holds "{member.name[:200]}", which is outside the archive'
            elif member.kind is not MemberKind.FILE and not is_folder:
                problem = f'holds "{member.name[:200]}", which is not a regular file'
            elif number > _MOST_FILES:
                problem = f"holds more than {_MOST_FILES} files"
            elif inside_bytes > most_bytes:
                problem = f"holds more than {approximate_bytes(most_bytes)}, {_MOST_TIMES} times its size"
            else:
                continue
            return (Problem("the archive", problem, _PACK_ANEW),)
    except (TarFault, CompressionFault) as error:
        return (Problem("the archive", f"cannot be read: {error}", _PACK_ANEW),)
    return ()


def found_problems(path: Path) -> tuple[Problem, ...]:
    """Return everything that keeps an archive from being the trace of one job."""
    if problems := archive_problems(path):
        return problems
    try:
        read_trace(path)
    except InputError as error:
        return error.problems
    except EtloopError as error:
        return (Problem("the trace", str(error), _PACK_ANEW),)
    except MemoryError:
        return (_beyond("needs more memory than limits.run_memory of the rack allows"),)
    return ()


def main() -> None:
    """Print the problems of the archive that the command line names, as one line of JSON."""
    path, memory_bytes = Path(sys.argv[1]), int(sys.argv[2])
    for kind, limit in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, _PROCESSOR_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    rows = [
        [
            part.replace(str(path), "the archive")[:_MOST_CHARACTERS]
            for part in (problem.where, problem.what, problem.remedy)
        ]
        for problem in found_problems(path)[:_MOST_PROBLEMS]
    ]
    print(json.dumps(rows))


if __name__ == "__main__":
    main()

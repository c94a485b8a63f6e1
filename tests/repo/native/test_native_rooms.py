"""The rooms of the native code: which room may include which, which may touch the outside.

The rules stand in the tables at the top. The second half plants violations, so that a check which cannot fire is noticed.
"""

from __future__ import annotations

import graphlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
ENGINE: Final = "traffic/native"
FOLDERS: Final = (ENGINE, "workload/native", "tests/native")

NATIVE_MAY_INCLUDE: Final[Mapping[str, tuple[str, ...]]] = {
    "base": (),
    "wire": ("base",),
    "plan": ("base", "wire"),
    "cc": ("base", "wire", "plan"),
    "qp": ("base", "wire", "plan", "cc"),
    "multipath": ("base", "wire", "plan", "cc", "qp"),
    "mrc": ("base", "wire", "plan", "cc", "qp", "multipath"),
    "uet": ("base", "wire", "plan", "cc", "qp", "multipath"),
    "core": ("base", "wire", "plan", "cc", "qp", "multipath", "mrc", "uet"),
    "port": ("base", "wire", "plan", "core"),
    "loop": ("base", "wire", "plan", "core", "port"),
    "switch": ("base", "wire"),
    "virtual": ("base", "wire", "plan", "cc", "core", "switch"),
    "bare": ("base", "wire", "plan", "qp", "port", "switch"),
    "bind": ("base", "wire", "plan", "cc", "qp", "core", "port", "loop", "switch", "virtual", "bare"),
}
"""Room of traffic/native -> the rooms it may include, besides itself: only rooms above it in this table."""

NATIVE_SHELLS: Final = frozenset({"port", "loop", "bare", "bind"})
"""The rooms that may see the operating system and Python; all others are pure."""

NATIVE_OUTSIDE: Final = re.compile(
    r"(sys|linux|net|netinet|nanobind)/.*"
    r"|(dlfcn|unistd|fcntl|poll|pthread|sched|signal|errno|time|stdio|Python)\.h"
    r"|c(errno|signal|stdio|time)"
    r"|atomic|chrono|condition_variable|filesystem|fstream|future|iostream|mutex|random|semaphore|stop_token|thread"
)
"""Headers of the operating system, clocks, threads, chance and files: not for pure rooms, which get `now` and bytes.
`arpa/inet.h` is none of them: addresses to text and back."""


def room_of(path: str) -> str:
    """Return the room of a file of traffic/native, by its path from the root; files below a room's folders are the room's."""
    return path.removeprefix(f"{ENGINE}/").split("/", maxsplit=1)[0]


def is_shell(path: str) -> bool:
    """Return whether a file may see the outside: those of the shells' rooms, and workload's one binding."""
    if path.startswith(f"{ENGINE}/"):
        return room_of(path) in NATIVE_SHELLS
    return path == "workload/native/bind.cpp"


def includes_of(source: str) -> list[tuple[str, bool]]:
    """Return the headers that a C++ file includes, each with whether it stands in quotes."""
    found = re.findall(r'^\s*#\s*include\s*([<"])([^">]+)[">]', source, re.MULTILINE)
    return [(header, quote == '"') for quote, header in found]


def room_violations(path: str, source: str) -> list[str]:
    """Return the includes of one file of traffic/native against NATIVE_MAY_INCLUDE."""
    room = room_of(path)
    if room not in NATIVE_MAY_INCLUDE:
        return [f"{path}: {room} is no room; give it a row of NATIVE_MAY_INCLUDE"]
    found = []
    for header, quoted in includes_of(source):
        other = header.split("/", maxsplit=1)[0]
        if quoted and ("/" not in header or other not in NATIVE_MAY_INCLUDE):
            found.append(f'{path}: "{header}" names no room; write it from {ENGINE}, as "wire/packet_run.h"')
        elif quoted and other != room and other not in NATIVE_MAY_INCLUDE[room]:
            may = ", ".join(NATIVE_MAY_INCLUDE[room]) or "no other room"
            found.append(
                f"{path}: {room} must not include {header}; it may include {may}: move what both need up"
            )
    return found


def purity_violations(path: str, source: str) -> list[str]:
    """Return the includes of NATIVE_OUTSIDE by a file that is no shell."""
    if is_shell(path):
        return []
    return [
        f"{path}: a pure room includes <{header}>; pass the time and the bytes in, or do this in "
        f"{', '.join(sorted(NATIVE_SHELLS))}"
        for header, _ in includes_of(source)
        if NATIVE_OUTSIDE.fullmatch(header)
    ]


def table_violations(table: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the rows that name a room which does not stand above them."""
    rooms = list(table)
    return [
        f"{room} may include {other}, which does not stand above it"
        for place, room in enumerate(rooms)
        for other in table[room]
        if other not in rooms[:place]
    ]


def impure_rows(table: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the pure rooms that may include a shell, which would bring the outside with it."""
    return [
        f"{room} is pure and may include {other}, which is a shell"
        for room, others in table.items()
        if room not in NATIVE_SHELLS
        for other in others
        if other in NATIVE_SHELLS
    ]


def circle(sources: Mapping[str, str]) -> list[str]:
    """Return one circle of headers that include each other, or nothing."""
    graph = {
        path.removeprefix(f"{ENGINE}/"): [header for header, quoted in includes_of(source) if quoted]
        for path, source in sources.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def native_sources() -> dict[str, str]:
    """Return every C++ file of ours: path from the root -> source."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.[hc]*"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


SOURCES: Final = native_sources()
ENGINE_SOURCES: Final = {path: text for path, text in SOURCES.items() if path.startswith(f"{ENGINE}/")}
PRODUCT_SOURCES: Final = {path: text for path, text in SOURCES.items() if not path.startswith("tests/")}


def test_rooms_include_only_rooms_above_them() -> None:
    assert len(ENGINE_SOURCES) > 300, "the rooms were looked for in the wrong place"
    assert [found for path, text in ENGINE_SOURCES.items() for found in room_violations(path, text)] == []


def test_pure_rooms_include_nothing_of_the_outside() -> None:
    assert [found for path, text in PRODUCT_SOURCES.items() for found in purity_violations(path, text)] == []


def test_the_table_is_in_include_order() -> None:
    assert table_violations(NATIVE_MAY_INCLUDE) == []
    assert impure_rows(NATIVE_MAY_INCLUDE) == []


def test_every_room_of_the_table_is_there() -> None:
    assert {room_of(path) for path in ENGINE_SOURCES} == NATIVE_MAY_INCLUDE.keys()


def test_headers_do_not_include_each_other_in_circles() -> None:
    assert circle(ENGINE_SOURCES) == []


@pytest.mark.parametrize("room", NATIVE_MAY_INCLUDE)
def test_a_planted_include_of_each_forbidden_room_is_found(room: str) -> None:
    path = f"{ENGINE}/{room}/planted.h"
    for other in NATIVE_MAY_INCLUDE:
        allowed = other == room or other in NATIVE_MAY_INCLUDE[room]
        assert len(room_violations(path, f'#include "{other}/any.h"\n')) == (0 if allowed else 1), other


@pytest.mark.parametrize(
    ("sentence", "path", "source"),
    [
        ("an include without its room", "wire/wire.cpp", '#include "opcode.h"'),
        ("one with spaces", "wire/wire.cpp", '  #  include "core/port.h"'),
        ("a folder below a room", "port/verbs/verbs_port.h", '#include "loop/loop.h"'),
        ("a room that nobody planned", "attic/old.h", ""),
    ],
)
def test_a_planted_include_against_the_rooms_is_found(sentence: str, path: str, source: str) -> None:
    assert len(room_violations(f"{ENGINE}/{path}", source)) == 1, sentence


@pytest.mark.parametrize(
    "header", ["sys/socket.h", "unistd.h", "dlfcn.h", "chrono", "random", "thread", "nanobind/nanobind.h"]
)
def test_a_planted_impurity_is_found(header: str) -> None:
    source = f"#include <vector>\n#  include <{header}>\n"
    assert len(purity_violations(f"{ENGINE}/core/rank.cpp", source)) == 1
    assert len(purity_violations("workload/native/et_decoder.cpp", source)) == 1
    assert purity_violations(f"{ENGINE}/port/verbs/verbs_library.cpp", source) == []


def test_what_is_allowed_is_not_reported() -> None:
    source = '#include "wire/wire.h"\n#include <span>\n// #include <thread>\n// #include "loop/loop.h"\n'
    assert purity_violations(f"{ENGINE}/core/rank.cpp", source) == []
    assert room_violations(f"{ENGINE}/core/rank.cpp", source) == []


def test_a_planted_row_against_the_order_is_found() -> None:
    assert len(table_violations({"base": ("wire",), "wire": ("base",)})) == 1
    assert len(table_violations({"base": ("attic",)})) == 1
    assert len(impure_rows({"port": (), "virtual": ("port",), "bare": ("port",)})) == 1


def test_a_planted_circle_is_named() -> None:
    sources = {
        f"{ENGINE}/qp/a.h": '#include "qp/b.h"',
        f"{ENGINE}/qp/b.h": '#include "qp/c.h"\n#include "base/time.h"',
        f"{ENGINE}/qp/c.h": '#include "qp/a.h"',
    }
    assert set(circle(sources)) == {"qp/a.h", "qp/b.h", "qp/c.h"}

"""Every native file names what it uses of the standard library: the build reads some headers once for all, which hides it.

A name counts as named where a file includes its header, itself or by headers of ours. The second half plants a violation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.places import ROOT

FOLDERS: Final = ("traffic/native", "workload/native", "tests/native")
ALGORITHMS: Final = (
    "sort stable_sort min max clamp copy copy_n fill fill_n find find_if any_of all_of none_of lower_bound upper_bound equal "
    "count_if reverse min_element max_element minmax remove_if rotate generate transform binary_search nth_element "
    "partition_point push_heap pop_heap make_heap unique shuffle"
)
USES: Final[Mapping[str, str]] = {
    "algorithm": rf"std::(ranges::)?({ALGORITHMS.replace(' ', '|')})\(",
    "array": r"std::array\b",
    "bit": r"std::(bit_width|bit_ceil|bit_floor|countr_zero|countl_zero|popcount|has_single_bit|bit_cast|rotl|rotr|endian)\b",
    "cstring": r"std::(memcpy|memset|memcmp|memmove|strerror|strlen|strcmp)\(",
    "deque": r"std::deque\b",
    "functional": r"std::(function|hash|greater|less|plus)<",
    "map": r"std::(multi)?map<",
    "memory": r"std::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared|addressof)\b",
    "memory_resource": r"std::pmr::",
    "optional": r"std::(optional|nullopt)\b",
    "span": r"std::(span|as_bytes)\b",
    "string": r"std::(string|to_string)\b",
    "tuple": r"std::(tuple|tie|make_tuple)\b",
    "utility": r"std::(move|forward|exchange|swap|make_pair)\(|std::(pair|index_sequence)<",
    "variant": r"std::(variant|visit|get_if|holds_alternative|monostate)\b",
    "vector": r"std::vector\b",
}
"""Of each header that the build reads once (CMakeLists.txt, PARSED_ONCE), the names that people use it for."""


def sources() -> dict[str, str]:
    """Return every native file by its path from the root, without what stands in comments."""
    paths = sorted(
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in {".h", ".cpp"}
    )
    return {path.relative_to(ROOT).as_posix(): re.sub(r"//.*", "", path.read_text()) for path in paths}


def place_of(header: str, includer: str, files: Mapping[str, str]) -> str | None:
    """Return which of our files an include in quotes means; None: it is not of ours."""
    tried = (*(f"{folder}/{header}" for folder in FOLDERS), (Path(includer).parent / header).as_posix())
    return next((path for path in tried if path in files), None)


def violations(files: Mapping[str, str]) -> list[str]:
    """Return the names that files use without their header."""
    quoted = {
        path: [place_of(header, path, files) for header in re.findall(r'#include "([^"]+)"', text)]
        for path, text in files.items()
    }
    named = {path: set(re.findall(r"#include <([^>]+)>", text)) for path, text in files.items()}
    found = []
    for path, text in files.items():
        reached, open_ends = {path}, [path]
        while open_ends:
            new = {other for other in quoted[open_ends.pop()] if other is not None} - reached
            reached |= new
            open_ends += new
        headers = set().union(*(named[other] for other in reached))
        for header, use in USES.items():
            if header not in headers and (used := re.search(use, text)):
                found.append(f"{path}: uses {used.group()} without <{header}>; include it")
    return found


def test_every_native_file_names_what_it_uses() -> None:
    assert violations(sources()) == []


def test_every_header_that_is_read_once_is_looked_for() -> None:
    build = (ROOT / "CMakeLists.txt").read_text()
    row = re.search(r"set\(PARSED_ONCE ([^)]+)\)", build)
    assert row is not None
    assert set(re.findall(r"<(\w+)>", row.group(1))) == set(USES)


@pytest.mark.parametrize(
    ("sentence", "files", "found"),
    [
        (
            "by itself",
            {"traffic/native/base/a.cpp": "#include <vector>\nstd::vector<int> a;\n"},
            [],
        ),
        (
            "by a header of a header",
            {
                "traffic/native/base/a.cpp": '#include "base/a.h"\nstd::vector<int> a;\n',
                "traffic/native/base/a.h": '#include "base/b.h"\n',
                "traffic/native/base/b.h": "#include <vector>\n",
            },
            [],
        ),
        (
            "by nobody",
            {"traffic/native/base/a.cpp": "#include <span>\nint b = std::max(1, 2);\n"},
            ["traffic/native/base/a.cpp: uses std::max( without <algorithm>; include it"],
        ),
        (
            "by the file that includes it",
            {
                "traffic/native/base/a.cpp": '#include <vector>\n#include "base/a.h"\n',
                "traffic/native/base/a.h": "std::vector<int> a;\n",
            },
            ["traffic/native/base/a.h: uses std::vector without <vector>; include it"],
        ),
    ],
)
def test_a_name_without_its_header_is_found(sentence: str, files: dict[str, str], found: list[str]) -> None:
    assert violations(files) == found, sentence

"""Communication that is not NCCL's by the names of its kernels and of the calls that launch them: the project's table
(kernels.yaml beside this file), and a file of the user's own in front of it.

Decides what may stand in such a file, and which entry a name means. What an operation carries is decided by device_comms.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_parsers import integer, one_of, words
from etloop.contract.base.yaml_reader import LARGEST_FILE_BYTES, ConfigFile, Section, read_document
from etloop.workload.readers.json_stream import INT64_MAX
from etloop.workload.trace.trace import CollectiveKind
from etloop.workload.trace.trace_names import shown

MOST_ENTRIES: Final = 1000
"""Of one file, kernels and operations each."""

_SHIPPED: Final = Path(__file__).with_name("kernels.yaml")
_COLLECTIVES: Final[dict[str, CollectiveKind | None]] = {
    **{
        kind.name.lower(): kind
        for kind in CollectiveKind
        if kind not in (CollectiveKind.REDUCE_SCATTER_BLOCK, CollectiveKind.BARRIER)
    },
    "none": None,
}
_WORDS: Final = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_?device|multimem|symm_?mem|nvshmem|deep_?ep|hccl|hcom_"
    r"|nccl",
    re.IGNORECASE,
)
_UNNAMED: Final = "(anonymous namespace)::"
_END_OF_NAME: Final = re.compile(r"[<(]")


@dataclass(frozen=True, slots=True)
class TableEntry:
    """What a name stands for."""

    name: str
    collective: CollectiveKind | None
    """None: it is no communication, or part of one that another kernel stands for."""
    size_bytes: int | None = None
    """What a rank puts in, where the entry says it; None: as the launching call has it."""
    argument: int | None = None
    """Of an operation: the argument that a rank puts in; None: the first tensor."""
    group: str | None = None
    """Key of its process group; None: the only one of several ranks."""


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Entries in the order in which they are asked."""

    kernels: tuple[TableEntry, ...] = ()
    operations: tuple[TableEntry, ...] = ()
    _known: dict[str, TableEntry | None] = field(default_factory=dict, compare=False, repr=False)

    def kernel(self, name: str) -> TableEntry | None:
        """Return the first entry whose name is part of the name of a kernel."""
        if name not in self._known:
            if len(self._known) > 1 << 16:
                self._known.clear()
            self._known[name] = next((entry for entry in self.kernels if entry.name in name), None)
        return self._known[name]

    def operation(self, name: str) -> TableEntry | None:
        """Return the first entry of exactly this name."""
        return next((entry for entry in self.operations if entry.name == name), None)


def function_name(kernel: str) -> str:
    """Return a kernel's name without what it returns, its template arguments and its parameters."""
    plain = kernel.removeprefix("void ").replace(_UNNAMED, "")
    return _END_OF_NAME.split(plain, maxsplit=1)[0].strip()


def looks_communicating(kernel: str) -> bool:
    """Whether a name has a word of communication in it. Compilers name kernels after what stood around them (triton_*)."""
    plain = function_name(kernel)
    return not plain.startswith("triton_") and _WORDS.search(plain) is not None


@lru_cache(maxsize=1)
def shipped_table() -> KernelTable:
    """Return the project's own table."""
    return parse_table(_SHIPPED.read_bytes(), _SHIPPED.name)


def table_with(path: Path | None) -> KernelTable:
    """Return the project's table with the entries of a file in front. Raises `ConfigError`."""
    shipped = shipped_table()
    if path is None:
        return shipped
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise ConfigError(
            Problem(shown(str(path)), what, "name a file of kernels, as docs/traces.md shows")
        ) from None
    own = parse_table(text, shown(str(path)))
    return KernelTable(own.kernels + shipped.kernels, own.operations + shipped.operations)


def parse_table(text: bytes, name: str) -> KernelTable:
    """Return the table that a YAML text spells. Raises `ConfigError` with all its mistakes."""
    file = ConfigFile(name)
    document = read_document(text, file)
    kernels = tuple(_kernel(one) for one in _entries(document, "kernels"))
    operations = tuple(_operation(one) for one in _entries(document, "operations"))
    if not kernels and not operations and not file.problems:
        file.mistake(None, "", "the file names nothing", "write kernels or operations")
    document.close()
    file.refuse_mistakes()
    return KernelTable(kernels, operations)


def _entries(document: Section, key: str) -> tuple[Section, ...]:
    return document.up_to(
        MOST_ENTRIES, key, key, "write items such as - {name: my_kernel, collective: all_reduce}"
    )


def _kernel(entry: Section) -> TableEntry:
    name, collective, group = _named(entry)
    size_bytes = entry.optional("bytes", integer(0, INT64_MAX), None)
    entry.close()
    return TableEntry(name, collective, size_bytes, None, group)


def _operation(entry: Section) -> TableEntry:
    name, collective, group = _named(entry)
    argument = entry.optional("input", integer(0, 255), None)
    entry.close()
    return TableEntry(name, collective, None, argument, group)


def _named(entry: Section) -> tuple[str, CollectiveKind | None, str | None]:
    name = entry.required("name", _name, "?", "write the kernel's or the operation's name")
    known = ", ".join(_COLLECTIVES)
    collective = entry.required("collective", one_of(_COLLECTIVES), None, f"write one of {known}")
    return name, collective, entry.optional("group", words, None)


def _name(text: str) -> str:
    if len(text.strip()) < 4:
        raise QuantityError(f'"{text}" is in the names of too many kernels', "write 4 characters or more")
    return text.strip()

"""MSCCL XML -> typed values: who sends which chunk to whom, in thread blocks of ordered steps. Text in, no file access.

This module decides the valid form of an MSCCL file: bounded size and counts, known attributes in range, references that
exist, no document type (and thus no entities). `msccl.proof` checks whether the program performs its collective.
Source: microsoft/msccl src/include/msccl and microsoft/msccl-tools msccl/language/ir.py (`ir_to_xml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from xml.parsers import expat

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass

LARGEST_TEXT_BYTES: Final = 64 << 20
MOST_GPUS: Final = 1024
MOST_CHUNKS: Final = 1 << 14
MOST_BLOCKS: Final = 1 << 12
MOST_STEPS: Final = 1 << 12
"""Per thread block; MSCCL itself allows 256."""
MOST_STEPS_IN_ALL: Final = 1 << 20
MOST_CHANNELS: Final = 64
MOST_BYTES: Final = 1 << 46
MOST_PROBLEMS: Final = 20


class Buffer(StrEnum):
    """Buffer of a chunk."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"


class StepType(StrEnum):
    """Operation of a step."""

    SEND = "s"
    RECV = "r"
    RECV_COPY_SEND = "rcs"
    RECV_REDUCE_SEND = "rrs"
    RECV_REDUCE_COPY = "rrc"
    RECV_REDUCE_COPY_SEND = "rrcs"
    COPY = "cpy"
    REDUCE = "re"
    NOP = "nop"


# A value spells the parts of its step in order: r(eceive), r(educe), c(opy), s(end).
SENDING: Final = frozenset(kind for kind in StepType if kind.endswith("s"))
RECEIVING: Final = frozenset(kind for kind in StepType if kind.startswith("r")) - {StepType.REDUCE}
REDUCING: Final = frozenset(kind for kind in StepType if kind.startswith("rr")) | {StepType.REDUCE}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a thread block."""

    kind: StepType
    src: Buffer
    src_offset: int
    dst: Buffer
    dst_offset: int
    count: int
    """Chunks that it moves."""
    after_block: int
    """Thread block of the same GPU that it waits for; -1: none."""
    after_step: int
    line: int


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """Steps in order, with at most one peer to send to and one to receive from."""

    number: int
    send_to: int
    recv_from: int
    channel: int
    steps: tuple[Step, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """The program of one rank."""

    number: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    blocks: tuple[ThreadBlock, ...]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The content of a file."""

    name: str
    collective: str
    """As `Schedule.collective`."""
    protocol: str
    """"Simple", "LL" or "LL128"."""
    channels: int
    chunks_per_loop: int
    in_place: bool
    least_bytes: int
    most_bytes: int
    """0: no limit."""
    gpus: tuple[Gpu, ...]


COLLECTIVES: Final = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
_PROTOCOLS: Final = ("Simple", "LL", "LL128")
_KNOWN: Final = {
    "algo": (
        "name proto ngpus coll",
        "nchannels nchunksperloop inplace outofplace minBytes maxBytes redop instances nthreadblocks nthreads",
    ),
    "gpu": ("id", "i_chunks o_chunks s_chunks"),
    "tb": ("id send recv", "chan"),
    "step": ("s type", "srcbuf srcoff dstbuf dstoff cnt depid deps hasdep"),
}
"""Element -> (attributes it must have, attributes it may have)."""
_INSIDE: Final = {"algo": "", "gpu": "algo", "tb": "gpu", "step": "tb"}


class _Reader:
    """Expat's callbacks; they collect mistakes and continue, so that all are reported."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.algorithm: Algorithm | None = None
        self.steps_in_all = 0
        self._open: list[tuple[str, Mapping[str, str], int]] = []
        self._gpus: list[Gpu] = []
        self._blocks: list[ThreadBlock] = []
        self._steps: list[Step] = []
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._doctype

    def mistake(self, line: int, problem: str, remedy: str) -> None:
        """Record a mistake. Raises `ConfigError` when there are `MOST_PROBLEMS`."""
        self.problems.append(Problem(f"{self.source}:{line}", problem, remedy))
        if len(self.problems) >= MOST_PROBLEMS:
            raise ConfigError(*self.problems)

    def _doctype(self, name: str, *_: object) -> None:
        """Reject a document type. Raises `ConfigError`."""
        self.mistake(
            self.parser.CurrentLineNumber,
            f"a document type ({name[:64]}) is not supported",
            "remove the DOCTYPE",
        )
        raise ConfigError(*self.problems)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        """Check an element's name, parent and attributes."""
        line = self.parser.CurrentLineNumber
        outer = self._open[-1][0] if self._open else ""
        if name not in _INSIDE:
            self.mistake(line, f"<{name[:64]}> is not an element of MSCCL", f"write {', '.join(_INSIDE)}")
        elif _INSIDE[name] != outer:
            self.mistake(line, f"<{name}> is inside <{outer[:64]}>", f"put it into <{_INSIDE[name]}>")
        else:
            required, optional = (frozenset(words.split()) for words in _KNOWN[name])
            for missing in sorted(required - attributes.keys()):
                self.mistake(line, f"<{name}> has no {missing}", f'write {missing}="..."')
            for unknown in sorted(attributes.keys() - required - optional):
                known_names = ", ".join(sorted(required | optional))
                self.mistake(
                    line, f"<{name}> has the unknown attribute {unknown[:64]}", f"write {known_names}"
                )
        self._open.append((name, attributes, line))

    def _end(self, _: str) -> None:
        """Read an element once its children have been read."""
        name, attributes, line = self._open.pop()
        match name:
            case "step":
                self._step(attributes, line)
            case "tb":
                self._thread_block(attributes, line)
            case "gpu":
                self._gpu(attributes, line)
            case "algo":
                self._algorithm(attributes, line)

    def _step(self, attributes: Mapping[str, str], line: int) -> None:
        """Read a <step>."""
        number = len(self._steps)
        self.steps_in_all += 1
        if number >= MOST_STEPS or self.steps_in_all > MOST_STEPS_IN_ALL:
            self.mistake(
                line, f"there are more than {MOST_STEPS} steps here, or too many in all", "use fewer"
            )
            raise ConfigError(*self.problems)
        self._number(attributes, "s", line, number, number, number)
        self._steps.append(
            Step(
                kind=StepType(self._word(attributes, "type", line, tuple(StepType), "nop")),
                src=Buffer(self._word(attributes, "srcbuf", line, tuple(Buffer), "i")),
                src_offset=self._number(attributes, "srcoff", line, -1, MOST_CHUNKS, -1),
                dst=Buffer(self._word(attributes, "dstbuf", line, tuple(Buffer), "i")),
                dst_offset=self._number(attributes, "dstoff", line, -1, MOST_CHUNKS, -1),
                count=self._number(attributes, "cnt", line, 0, MOST_CHUNKS, 1),
                after_block=self._number(attributes, "depid", line, -1, MOST_BLOCKS, -1),
                after_step=self._number(attributes, "deps", line, -1, MOST_STEPS, -1),
                line=line,
            )
        )

    def _thread_block(self, attributes: Mapping[str, str], line: int) -> None:
        """Read a <tb> with the steps read before."""
        number = len(self._blocks)
        block = ThreadBlock(
            number=self._number(attributes, "id", line, number, min(number, MOST_BLOCKS), number),
            send_to=self._number(attributes, "send", line, -1, MOST_GPUS - 1, -1),
            recv_from=self._number(attributes, "recv", line, -1, MOST_GPUS - 1, -1),
            channel=self._number(attributes, "chan", line, 0, MOST_CHANNELS - 1, 0),
            steps=tuple(self._steps),
            line=line,
        )
        self._steps = []
        self._blocks.append(block)

    def _gpu(self, attributes: Mapping[str, str], line: int) -> None:
        """Read a <gpu> with the thread blocks read before."""
        number = len(self._gpus)
        gpu = Gpu(
            number=self._number(attributes, "id", line, number, min(number, MOST_GPUS - 1), number),
            input_chunks=self._number(attributes, "i_chunks", line, 0, MOST_CHUNKS, 0),
            output_chunks=self._number(attributes, "o_chunks", line, 0, MOST_CHUNKS, 0),
            scratch_chunks=self._number(attributes, "s_chunks", line, 0, MOST_CHUNKS, 0),
            blocks=tuple(self._blocks),
        )
        self._blocks = []
        self._gpus.append(gpu)

    def _algorithm(self, attributes: Mapping[str, str], line: int) -> None:
        """Read an <algo> with the GPUs read before."""
        ngpus = self._number(attributes, "ngpus", line, 2, MOST_GPUS, len(self._gpus))
        if ngpus != len(self._gpus):
            self.mistake(
                line, f"ngpus is {ngpus}, but there are {len(self._gpus)} <gpu> elements", "make both equal"
            )
        collective = self._word(attributes, "coll", line, tuple(COLLECTIVES), "allreduce")
        self.algorithm = Algorithm(
            name=attributes.get("name", "")[:64],
            collective=COLLECTIVES[collective],
            protocol=self._word(attributes, "proto", line, _PROTOCOLS, "Simple"),
            channels=self._number(attributes, "nchannels", line, 1, MOST_CHANNELS, 1),
            chunks_per_loop=self._number(attributes, "nchunksperloop", line, 1, MOST_CHUNKS, 1),
            in_place=bool(self._number(attributes, "inplace", line, 0, 1, 0)),
            least_bytes=self._number(attributes, "minBytes", line, 0, MOST_BYTES, 0),
            most_bytes=self._number(attributes, "maxBytes", line, 0, MOST_BYTES, 0),
            gpus=tuple(self._gpus),
        )

    def _number(
        self, attributes: Mapping[str, str], key: str, line: int, least: int, most: int, default: int
    ) -> int:
        """Return an integer attribute; record a mistake and return the default if it is not one in range."""
        text = attributes.get(key)
        if text is None:
            return default
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(text) <= most:
            return int(text)
        range_text = f"{least}" if least == most else f"a whole number from {least} to {most}"
        self.mistake(line, f'{key} is "{text[:32]}"', f"write {range_text}")
        return default

    def _word(
        self, attributes: Mapping[str, str], key: str, line: int, words: tuple[str, ...], default: str
    ) -> str:
        """Return an attribute that must be one of `words`; record a mistake and return the default otherwise."""
        text = attributes.get(key, default)
        if text in words:
            return text
        self.mistake(line, f'{key} is "{text[:32]}"', f"write one of {', '.join(words)}")
        return default


def read_msccl(text: bytes, source: str) -> Algorithm:
    """Parse an MSCCL file; `source` names it in messages.

    Raises `ConfigError` with the mistakes found.
    """
    if len(text) > LARGEST_TEXT_BYTES:
        problem = f"the file has {len(text)} bytes"
        raise ConfigError(Problem(source, problem, f"keep it under {LARGEST_TEXT_BYTES} bytes"))
    reader = _Reader(source)
    try:
        reader.parser.Parse(text, True)
    except expat.ExpatError as error:
        problem = f"not well-formed XML: {expat.errors.messages[error.code]}"
        reader.problems.append(Problem(f"{source}:{error.lineno}", problem, "correct the XML at this place"))
    except UnicodeError as error:
        reader.problems.append(Problem(source, f"not readable text: {error}", "save the file as UTF-8"))
    if reader.problems:
        raise ConfigError(*reader.problems)
    if reader.algorithm is None:
        raise ConfigError(Problem(source, "has no <algo>", "write an MSCCL algorithm"))
    return reader.algorithm

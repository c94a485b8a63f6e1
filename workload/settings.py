"""What the user states about a trace that its files do not say: size unit, honoured dependencies, compute speed, scale.

Decides what is a legal statement; leaves its effect to the modules that read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

from contract.errors import ConfigError, Problem

STAGE_SCHEMA: Final = "symbolic_tensor_network"
"""Schema attribute of files written by astra-sim/stage, whose comm_size counts elements."""

DEFAULT_ELEMENT_BYTES: Final = 2
"""bf16, what current language models are trained in; taken when a trace counts elements and nobody said their size."""

MAX_BYTES_SCALE: Final = 1024
"""Scaling is for shrinking; this much growth still leaves every size far inside an int64."""


class SizeUnit(StrEnum):
    """What comm_size and tensor_size count."""

    AUTO = "auto"
    """Elements for STAGE files, bytes for all others."""
    BYTES = "bytes"
    ELEMENTS = "elements"


class DependencyPolicy(StrEnum):
    """Which edges hold an operation back. Real traces have broken ctrl_deps, so they are opt-in."""

    DATA = "data"
    DATA_CTRL = "data+ctrl"
    DATA_COMMUNICATOR = "data+communicator"
    """Operations of one communicator also start in their order on each rank, as on an NCCL stream."""
    DATA_CTRL_COMMUNICATOR = "data+ctrl+communicator"

    @property
    def honours_ctrl(self) -> bool:
        return "ctrl" in self.value.split("+")

    @property
    def honours_communicator_order(self) -> bool:
        return "communicator" in self.value.split("+")


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """How a trace is to be read. Raises ConfigError when a statement makes no sense, all mistakes together."""

    size_unit: SizeUnit = SizeUnit.AUTO
    element_bytes: int | None = None
    """Bytes of one element where sizes count elements; None: not stated."""
    dependencies: DependencyPolicy = DependencyPolicy.DATA_COMMUNICATOR
    flops: int | None = None
    """FLOP/s of one rank, for compute nodes without a duration."""
    memory_bandwidth_bytes_per_s: int | None = None
    """Memory bandwidth of one rank, the other limit of the roofline."""
    bytes_scale: Fraction = Fraction(1)
    time_scale: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        problems = [*self._choice_problems(), *self._positive_problems()]
        if problems:
            raise ConfigError(*problems)

    def _choice_problems(self) -> list[Problem]:
        problems = []
        choices: tuple[tuple[str, str, type[StrEnum]], ...] = (
            ("size_unit", self.size_unit, SizeUnit),
            ("dependencies", self.dependencies, DependencyPolicy),
        )
        for name, value, kind in choices:
            if not isinstance(value, kind):
                known = ", ".join(f'"{choice.value}"' for choice in kind)
                problems.append(
                    Problem(f"workload.{name}", f"{value!r} is not known", f"write one of {known}")
                )
        return problems

    def _positive_problems(self) -> list[Problem]:
        stated: tuple[tuple[str, int | Fraction | None], ...] = (
            ("workload.element_bytes", self.element_bytes),
            ("workload.compute.flops", self.flops),
            ("workload.compute.memory_bandwidth", self.memory_bandwidth_bytes_per_s),
            ("scale.bytes", self.bytes_scale),
            ("scale.time", self.time_scale),
        )
        problems = [
            Problem(where, f"{value} is not above 0", "write a positive number or leave the key out")
            for where, value in stated
            if value is not None and value <= 0
        ]
        if self.bytes_scale > MAX_BYTES_SCALE:
            where, limit = "scale.bytes", f"write at most {MAX_BYTES_SCALE}"
            problems.append(Problem(where, f"{self.bytes_scale} makes messages too large to count", limit))
        if self.element_bytes is not None and self.element_bytes > 64:
            problems.append(
                Problem(
                    "workload.element_bytes",
                    f"{self.element_bytes} is not a data type's size",
                    "write 1 to 64",
                )
            )
        return problems

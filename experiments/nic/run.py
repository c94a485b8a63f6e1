"""Runs a battery and stores its results: a file per experiment, so that a stopped battery resumes where it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.battery import BATTERY, BY_NAME
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.document import (
    EXPERIMENT_SCHEMA,
    PROFILE_FILE,
    PROFILE_SCHEMA,
    ExperimentRecord,
    NicProfile,
)
from etloop.experiments.nic.dut_profile import DUT_FILE, dut_profile_text
from etloop.experiments.nic.link.figures import Curve, Figure, Finding
from etloop.experiments.nic.link.kept_wire import KeptWire
from etloop.experiments.nic.link.pcapng import PcapngFile
from etloop.experiments.nic.link.probe import USUAL_PAIRS, NicError, Probe
from etloop.experiments.nic.link.wire import NicControl, Wire
from etloop.results.schema.typed_json import from_json, to_json
from etloop.runtime.clock import wall_time_text

_MOST_JSON_BYTES: Final = 4 << 20
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Probed:
    """A card, with the wire and the control connection to it."""

    wire: Wire
    nic: NicControl
    card: str
    """Description of the card."""
    most_pairs: int = USUAL_PAIRS
    """Most queue pairs open at once."""


def select_experiments(names: Sequence[str]) -> tuple[Experiment, ...]:
    """Return the experiments of these names, all if none is named. Raises `ConfigError`."""
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        remedy = f"write one of {', '.join(BY_NAME)}"
        raise ConfigError(Problem("--only", f'unknown experiment "{unknown[0][:64]}"', remedy))
    return tuple(experiment for experiment in BATTERY if not names or experiment.name in names)


def run_battery(
    probed: Probed, out_dir: Path, experiments: Sequence[Experiment], report: Report
) -> NicProfile:
    """Run experiments, and return the profile, which is also written to `out_dir`.

    Experiments of this card that have a record there are not repeated. Raises `ConfigError` if the directory is of
    another card, or cannot be written.
    """
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot be made: {error.strerror or error}"
        raise ConfigError(Problem(str(out_dir), reason, "name another directory with --out")) from None
    wire, card = KeptWire(probed.wire), probed.card
    probe = Probe(wire, probed.nic, probed.most_pairs)
    records: list[ExperimentRecord] = []
    for number, experiment in enumerate(experiments, 1):
        path = out_dir / f"{experiment.name}.json"
        record = _read_kept(path, card)
        if record is None:
            report(f"[{number}/{len(experiments)}] {experiment.name}: {experiment.provokes}")
            record = _run_experiment(experiment, probe, wire, card, out_dir)
            path.write_text(to_json(record))
        else:
            report(f"[{number}/{len(experiments)}] {experiment.name}: reused from the last run")
        records.append(record)
    profile = NicProfile(PROFILE_SCHEMA, card, wire.resolution_ns, _floor(probe), tuple(records))
    (out_dir / PROFILE_FILE).write_text(to_json(profile))
    (out_dir / DUT_FILE).write_text(dut_profile_text(profile))
    return profile


def read_profile(place: Path) -> NicProfile:
    """Return the profile of a directory, or of its file. Raises an `InputError`."""
    path = place / PROFILE_FILE if place.is_dir() else place
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST_JSON_BYTES + 1)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(str(path), reason, "name a directory of etloop nic profile")) from None
    if len(text) > _MOST_JSON_BYTES:
        raise ConfigError(Problem(str(path), f"is larger than {_MOST_JSON_BYTES} bytes", "name another file"))
    return from_json(NicProfile, text.decode(errors="replace"), str(path), PROFILE_SCHEMA)


def _floor(probe: Probe) -> int | None:
    try:
        return probe.floor_ns()
    except NicError:
        return None


def _read_kept(path: Path, card: str) -> ExperimentRecord | None:
    if not path.exists():
        return None
    record = from_json(ExperimentRecord, path.read_text(), str(path), EXPERIMENT_SCHEMA)
    if record.card != card:
        difference = f"is of card {record.card}; the card under test is {card}"
        raise ConfigError(Problem(str(path), difference, "name another directory with --out"))
    return None if record.failure else record


def _run_experiment(
    experiment: Experiment, probe: Probe, kept: KeptWire, card: str, out_dir: Path
) -> ExperimentRecord:
    began_at, begun_ns = wall_time_text(), kept.now_ns()
    findings: tuple[Finding, ...] = ()
    failure = ""
    with PcapngFile(out_dir / f"{experiment.name}.pcapng") as capture:
        kept.begin(capture)
        try:
            findings = experiment.run(probe)
        except NicError as error:
            failure = str(error)
        sent_frames, received_frames = kept.end()
    lasted_ns = kept.now_ns() - begun_ns
    figures = tuple(finding for finding in findings if isinstance(finding, Figure))
    curves = tuple(finding for finding in findings if isinstance(finding, Curve))
    return ExperimentRecord(
        EXPERIMENT_SCHEMA,
        experiment.name,
        card,
        figures,
        curves,
        failure,
        began_at,
        lasted_ns,
        sent_frames,
        received_frames,
    )

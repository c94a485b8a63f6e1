"""Qualify a fabric before GPUs arrive: find slow, lossy, mis-hashed and misconfigured parts by name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.inputs import add_json, add_strict
from etloop.cli.arguments.processes import add_overcommit
from etloop.cli.arguments.values import parse_whole
from etloop.cli.result import CommandResult
from etloop.runtime.module_loading import quick_loading

if TYPE_CHECKING:
    from etloop.controller.run.prepare import InputFile
    from etloop.results.schema.certificate import Certificate

EXAMPLE: Final = (
    "  etloop certify --rig rig.yaml --out certificate/              the fabric of a rig whose agents run\n"
    "  etloop certify --topology topology.yaml                       its twin, in virtual time\n"
    "  etloop certify --topology topology.yaml --rig rig.yaml        its twin, at the rates that the rig states\n"
    "  etloop certify --topology topology.yaml --lab                 a lab of it, started for this command\n"
    "\n"
    "exit codes: 0 every step passed, 20 a step was inconclusive, 30 a part is named, "
    "65 files, rig or lab cannot be used"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the fabric, the steps and the results."""
    add_json(parser)
    parser.add_argument(
        "--rig",
        type=Path,
        metavar="FILE",
        help="rig.yaml; without --topology its agents run the steps, with it its rates are the stated ones",
    )
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="topology of the switches: run in virtual time, or with --lab through soft switches",
    )
    parser.add_argument(
        "--lab", action="store_true", help="run through a lab of --topology, started for this command"
    )
    parser.add_argument(
        "--scenario", type=Path, metavar="FILE", help="scenario.yaml for the transport, such as its DSCPs"
    )
    parser.add_argument(
        "--steps", default="", metavar="NAMES", help="run only these steps, such as pairs,loss"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="keep the certificate and the run of every step"
    )
    parser.add_argument(
        "--seed",
        type=parse_whole,
        metavar="N",
        help="seed of the switches of a twin, instead of the topology's",
    )
    add_overcommit(parser)
    add_strict(parser)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Certify the fabric that the command line names. Raise an `InputError` before any traffic."""
    with quick_loading():
        import tempfile

        from etloop.cli.progress import StatusWatcher
        from etloop.experiments.certify.run import CertifyRequest, certify
        from etloop.results.schema.sweep import Mode
        from etloop.results.schema.typed_json import to_json
        from etloop.results.schema.verdict import RunResult
        from etloop.results.text.certificate import render_certificate

    _refuse_contradictions(parsed)
    mode = Mode.LIVE if parsed.topology is None else Mode.LAB if parsed.lab else Mode.TWIN
    with tempfile.TemporaryDirectory(prefix="etloop-certify-") as scratch:
        request = CertifyRequest(
            rig=_file(parsed.rig),
            topology=_file(parsed.topology),
            mode=mode,
            scenario=_file(parsed.scenario),
            directory=Path(scratch) / "steps" if parsed.out is None else parsed.out,
            steps=tuple(filter(None, parsed.steps.split(","))),
            seed=parsed.seed,
            strict=parsed.strict,
            allow_overcommit=parsed.allow_overcommit,
        )
        certificate = certify(request, StatusWatcher())
        if parsed.out is not None:
            keep_certificate(parsed.out, certificate)
    text = to_json(certificate) if parsed.json else render_certificate(certificate, str(parsed.out or ""))
    return CommandResult(text, RunResult(certificate.result.value).exit_code)


def _file(path: Path | None) -> InputFile | None:
    from etloop.controller.run.prepare import InputFile

    return None if path is None else InputFile(path)


def _refuse_contradictions(parsed: argparse.Namespace) -> None:
    from etloop.contract.base.errors import ConfigError, Problem

    if parsed.rig is None and parsed.topology is None:
        remedy = "name the rig of running agents, or the topology of a twin or a lab"
        raise ConfigError(Problem("--rig", "and --topology are missing", remedy))
    if parsed.lab and (parsed.topology is None or parsed.rig is not None):
        remedy = "give --topology FILE and no --rig: the lab makes its own"
        raise ConfigError(Problem("--lab", "needs a topology alone", remedy))
    if parsed.seed is not None and (parsed.topology is None or parsed.lab):
        raise ConfigError(
            Problem("--seed", "applies only to a twin", "leave it out, or give --topology FILE")
        )


def keep_certificate(directory: Path, certificate: Certificate) -> None:
    """Write the certificate as JSON, text and page into the directory of its runs."""
    from etloop.results.html.certificate import certificate_html
    from etloop.results.schema.certificate import CERTIFICATE_FILE, CERTIFICATE_PAGE, CERTIFICATE_TEXT
    from etloop.results.schema.typed_json import to_json
    from etloop.results.store.run_dir import write_files
    from etloop.results.text.certificate import render_certificate

    write_files(
        directory,
        {
            CERTIFICATE_TEXT: render_certificate(certificate, str(directory)),
            CERTIFICATE_PAGE: certificate_html(certificate),
            CERTIFICATE_FILE: to_json(certificate),
        },
    )

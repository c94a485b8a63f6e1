"""Run a scenario in virtual time on the modelled switches of a topology."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.inputs import add_json, add_scenario_and_rig, add_strict
from etloop.cli.arguments.values import parse_duration, parse_part, parse_whole
from etloop.cli.result import CommandResult, to_json
from etloop.runtime.module_loading import quick_loading

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.run.prepare import Prepared
    from etloop.controller.transfers.protocol import ServedNetwork, TransferNetwork
    from etloop.traffic.twin import TwinSettings
    from etloop.workload.serving.spec import ServingLoad

EXAMPLE: Final = (
    "  etloop twin scenario.yaml --topology topology.yaml                      a port for each attachment\n"
    "  etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml\n"
    "  etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml --seed 7 --out twin1/\n"
    "  etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml --level flow     for very large jobs\n"
    "  etloop twin --serve twin.sock --topology topology.yaml                  the network of another simulator"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add scenario and rig, the switches, and the level of the model."""
    add_json(parser)
    add_scenario_and_rig(parser, without_rig="a port for each attachment of --topology", needs_scenario=False)
    parser.add_argument(
        "--serve",
        metavar="SOCKET",
        help="in place of a scenario: answer another simulator when its transfers end, at a new socket, or - for standard "
        "input and output; at flow level unless --level packet is given (docs/twin-server.md)",
    )
    add_strict(parser)
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="topology of the switches (docs/device.md), if scenario and rig name none",
    )
    parser.add_argument(
        "--device",
        default="",
        metavar="PROFILE",
        help="device profile of all switches for which the topology names none (etloop dut list, or a file)",
    )
    parser.add_argument(
        "--level",
        choices=("packet", "flow"),
        help="flow: compute completion times without simulating packets, for very large jobs; no ECN marks or drops "
        "(docs/flow_level.md); default packet, with --serve flow",
    )
    parser.add_argument(
        "--hosts",
        choices=("cards", "software"),
        help="model of the senders: NICs (default), or agents over udp, packet and xdp ports, which have fewer bytes in flight",
    )
    parser.add_argument(
        "--find-rate",
        type=parse_part,
        metavar="SHARE",
        help="of a serving workload: find the highest request rate at which this share of its requests, such as 99%%, "
        "meets its slo",
    )
    parser.add_argument("--out", type=Path, metavar="RUN_DIR", help="write the results to this new directory")
    parser.add_argument(
        "--seed", type=parse_whole, metavar="N", help="seed of the switches, instead of the topology's"
    )
    parser.add_argument(
        "--sample",
        type=parse_duration,
        metavar="TIME",
        help="sampling interval of the queues, with --out (default 10us, longer for long jobs)",
    )
    parser.add_argument(
        "--limit",
        type=parse_duration,
        metavar="TIME",
        help="virtual time after which the job is aborted (default 1h)",
    )
    parser.set_defaults(parser=parser)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Run the twin. Raise an `InputError` with all mistakes of the files before the run."""
    if parsed.serve is not None:
        return _serve(parsed)
    if parsed.scenario is None:
        parsed.parser.error("the following arguments are required: SCENARIO (or --serve)")
    with quick_loading():
        from functools import partial

        from etloop.cli.case_files import open_inputs
        from etloop.cli.progress import StatusWatcher, reading_bar
        from etloop.controller.plan.jobs import build_jobs
        from etloop.controller.plan.run_numbers import TWIN_ID
        from etloop.controller.plan.serving_jobs import serving_load
        from etloop.controller.run.out_directory import refuse_used_directory
        from etloop.controller.run.prepare import PrepareOptions, prepare
        from etloop.results.schema.case import Repeat, RepeatedBy
        from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings

    if parsed.out is not None:
        refuse_used_directory(parsed.out)
    with open_inputs(parsed, Repeat.TWIN, TWIN_ID) as inputs:
        # Options that the command line leaves open are those of the case's run.
        case_run = RepeatedBy(Repeat.TWIN) if inputs.case is None else inputs.case.case.repeated_by
        seed = case_run.seed if parsed.seed is None else parsed.seed
        limit_ns = _first_stated(parsed.limit, case_run.limit_ns, TwinSettings().limit_ns)
        with reading_bar() as bar:
            options = PrepareOptions(
                device=parsed.device,
                strict=parsed.strict,
                jobs=partial(build_jobs, progress=bar),
                admit=partial(_refuse_options, parsed),
                keeps_case=parsed.out is not None,
            )
            prepared = inputs.label_case(prepare(inputs.files, options))
        if (load := serving_load(prepared.scenario)) is not None:
            return _run_serving(prepared, load, TwinSettings(seed=seed, limit_ns=limit_ns), parsed)
        if parsed.level == "flow":
            return _run_flow_level(prepared, seed, limit_ns, as_json=parsed.json)
        from etloop.cli.text.twin import render_twin, twin_values
        from etloop.controller.run.pipeline import RunOptions, run_plan
        from etloop.controller.run.twin import TwinExecution, TwinHosts

        sample_ns = _first_stated(parsed.sample, case_run.sample_ns, SAMPLE_INTERVAL_NS)
        settings = TwinSettings(
            seed=seed, limit_ns=limit_ns, sample_interval_ns=0 if parsed.out is None else sample_ns
        )
        hosts = TwinHosts(parsed.hosts or case_run.hosts or TwinHosts.CARDS)
        run_options = RunOptions(parsed.out, expects=False)
        finished = run_plan(prepared, TwinExecution(settings, hosts), run_options, StatusWatcher())
        if parsed.json:
            text = to_json(twin_values(prepared, finished))
        else:
            text = render_twin(prepared, finished, parsed.out)
    return CommandResult(text, finished.summary.result.exit_code)


def _refuse_options(parsed: argparse.Namespace, scenario: Scenario) -> None:
    """Raise `ConfigError` for an option that does not apply to the scenario's workload."""
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.controller.plan.serving_jobs import serving_load

    if serving_load(scenario) is not None:
        return
    if parsed.find_rate is not None:
        problem = "the scenario has no serving workload"
        raise ConfigError(Problem("--find-rate", problem, "leave it out (docs/serving.md)"))
    if parsed.level == "flow" and parsed.out is not None:
        problem = "the flow level has no op records to write"
        raise ConfigError(
            Problem("--out", problem, "leave out --out, or --level flow; --json has all results")
        )


def _serve(parsed: argparse.Namespace) -> CommandResult:
    """Answer another simulator until its input ends. Raise an `InputError` for the topology or the socket."""
    options = ("scenario", "rig", "traces", "strict", "hosts", "out", "sample", "limit", "find_rate")
    for option in options:
        if getattr(parsed, option) not in (None, False):
            name = "SCENARIO" if option == "scenario" else f"--{option.replace('_', '-')}"
            parsed.parser.error(f"argument {name}: not allowed with argument --serve")
    if parsed.topology is None:
        parsed.parser.error("--serve needs --topology FILE, whose attachments are the endpoints")
    with quick_loading():
        from contextlib import nullcontext

        from etloop.cli.progress import print_status
        from etloop.cli.text.twin import render_transfers, transfer_values
        from etloop.controller.run.packet_network import packet_network
        from etloop.controller.run.prepare import InputFile, read_device_file
        from etloop.controller.run.transfer_server import STANDARD_STREAMS, flow_network, serve
        from etloop.controller.transfers.protocol import TransferSession
        from etloop.runtime.stop_signals import terminate_as_interrupt
        from etloop.traffic.twin import with_seed

    file = InputFile(parsed.topology)
    with terminate_as_interrupt():
        network: AbstractContextManager[tuple[ServedNetwork, TransferNetwork]]
        if parsed.level == "packet":
            network = packet_network(file, parsed.device, parsed.seed)
        else:
            topology = with_seed(read_device_file(file, parsed.device).topology, parsed.seed)
            network = nullcontext(flow_network(topology))
        with network as (served, transfers):
            figures = serve(TransferSession(served, transfers), parsed.serve, print_status)
    if parsed.serve == STANDARD_STREAMS:
        return CommandResult("")
    return CommandResult(to_json(transfer_values(figures)) if parsed.json else render_transfers(figures))


def _first_stated(*values: int | None) -> int:
    """Return the first value that is not None; the last one must not be."""
    return next(value for value in values if value is not None)


def _run_flow_level(prepared: Prepared, seed: int | None, limit_ns: int, *, as_json: bool) -> CommandResult:
    """Compute the job's times at flow level, without packets. Raise `PlanError` as `expect_by_flows` does."""
    from dataclasses import asdict, replace

    from etloop.contract.base.errors import ExitCode
    from etloop.controller.run.expectation import expect_by_flows
    from etloop.controller.run.twin import described_device
    from etloop.results.expected.expected_vs_measured import expected_figures
    from etloop.results.text.expected import expected_lines
    from etloop.traffic.twin import with_seed

    device = described_device(prepared)
    device = replace(device, topology=with_seed(device.topology, seed))
    expectation = expect_by_flows(prepared.plan, device, limit_ns)
    figures = expected_figures(expectation.runs, expectation.absent, prepared.plan.tables)
    is_complete = not figures.absent and all(expected.complete for expected in figures.expected)
    code = ExitCode.PASS if is_complete else ExitCode.RUN_ERROR
    if as_json:
        return CommandResult(to_json(asdict(figures)), code)
    return CommandResult("".join(f"{line.rstrip()}\n" for line in expected_lines(figures)), code)


def _run_serving(
    prepared: Prepared, load: ServingLoad, settings: TwinSettings, parsed: argparse.Namespace
) -> CommandResult:
    """Run a serving workload; write requests, figures and report to `--out`. Raise as `serve_in_twin`."""
    from etloop.cli.progress import StatusWatcher
    from etloop.cli.serving_answer import serving_answer
    from etloop.controller.run.serving import serve_in_twin
    from etloop.controller.run.twin import TwinHosts

    hosts = TwinHosts(parsed.hosts or TwinHosts.CARDS)
    level = parsed.level or "packet"
    if parsed.find_rate is not None:
        from dataclasses import asdict

        from etloop.contract.base.errors import ExitCode
        from etloop.controller.run.serving_search import find_rate
        from etloop.results.serving.rates import rate_lines, write_rates

        watcher = StatusWatcher()
        search = find_rate(
            load,
            parsed.find_rate,
            lambda scaled: serve_in_twin(prepared, scaled, settings, hosts, level, watcher),
        )
        if parsed.out is not None:
            write_rates(parsed.out, search, load.model.name)
        text = to_json(asdict(search)) if parsed.json else "\n".join(rate_lines(search)) + "\n"
        return CommandResult(text, ExitCode.PASS if search.rate else ExitCode.VERDICT_FAILED)
    served = serve_in_twin(prepared, load, settings, hosts, level, StatusWatcher())
    return serving_answer(served, prepared, parsed.out, as_json=parsed.json)

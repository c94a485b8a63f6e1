"""Submit a job to a rack and wait for its result, for `etloop submit`. A shell: a client of the rack API, the terminal."""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.rack.named_rack import rack_client, use_named_rack, use_place
from etloop.cli.rack.placement import Placing, PortRequest, job_wish, place_job
from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.job import job_line, job_table
from etloop.contract.base.clock import NS_PER_S, seconds_text
from etloop.contract.base.errors import ConfigError, EtloopError, ExitCode, Problem
from etloop.contract.base.printable import printable
from etloop.contract.base.units import approximate_bytes
from etloop.contract.protocol.codec import plain
from etloop.controller.rack.actor import MOST_CLAIM_CHARACTERS
from etloop.controller.rack.client.client import BrokerAbsent, RackClient, RackUnreachable, RequestRefused
from etloop.controller.rack.job import ENDED
from etloop.controller.rack.mqtt.messages import JobStatus, ProgressStatus, ResultStatus
from etloop.controller.racks.filters import parse_labels
from etloop.controller.racks.racks_file import RackPlace
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.text_file import read_text

if TYPE_CHECKING:
    import argparse

    from etloop.controller.racks.choice import JobWish

_PAUSE_S: Final = 1.0
_START_NS: Final = 5 * NS_PER_S
"""In which a controller that was started at the same time listens."""
_TRANSIENT: Final = frozenset(("controller", "queue"))
"""Places of problems that may disappear without a change of the request."""
_LONG_ATTEMPT_NS: Final = 30 * NS_PER_S
"""Longer than a client waits for an answer."""


class JobNotEnded(EtloopError):
    """A job took longer than --wait-limit."""


async def carry_out_submission(parsed: argparse.Namespace) -> CommandResult:
    """Send the request, again for --patience while the rack cannot take it, and return the answer."""
    # One key for all attempts: a request whose answer was lost does not become a second job.
    placing = Placing(not parsed.key, parsed.token_file)
    parsed.key = parsed.key or f"etloop-submit-{secrets.token_hex(8)}"
    wish = job_wish(parsed, _ports(parsed)) if parsed.any else None
    if wish is None:
        use_named_rack(parsed)
    begin_ns = monotonic_ns()
    while True:
        attempt_begin_ns = monotonic_ns()
        try:
            return await (_attempt(parsed) if wish is None else _attempt_any(parsed, wish, placing))
        except RackUnreachable as error:
            # An attempt that lasted this long had reached the rack, and lost it only now.
            if monotonic_ns() - attempt_begin_ns > _LONG_ATTEMPT_NS:
                begin_ns = monotonic_ns()
            if monotonic_ns() >= begin_ns + _patience_ns(parsed, error):
                raise
            sys.stderr.write(f"{error}; retrying\n")
        except RequestRefused as error:
            # Errors of the request itself persist; a rack that drains, or whose queue is full, may take it later.
            if monotonic_ns() >= begin_ns + _patience_ns(parsed, error) or any(
                problem.where not in _TRANSIENT for problem in error.problems
            ):
                raise
            sys.stderr.write(f"{error}; retrying\n")
        await asyncio.sleep(_PAUSE_S)


def _patience_ns(parsed: argparse.Namespace, error: EtloopError) -> int:
    """Return how long to try again after this error, by default only where a broker may be starting."""
    if parsed.patience is None:
        return _START_NS if isinstance(error, BrokerAbsent) else 0
    patience_ns: int = parsed.patience
    return patience_ns


async def _attempt(parsed: argparse.Namespace) -> CommandResult:
    async with rack_client(parsed) as rack:
        if parsed.list:
            jobs = await rack.jobs()
            return CommandResult(
                to_json({"jobs": [plain(job) for job in jobs]}) if parsed.json else job_table(jobs)
            )
        if parsed.cancel:
            job = await rack.cancel(parsed.cancel)
            if job is None:
                raise ConfigError(
                    Problem("--cancel", f"there is no job {parsed.cancel}", "see etloop submit --list")
                )
            return CommandResult(to_json(plain(job)) if parsed.json else job_line(job))
        if parsed.follow:
            return await wait_for_job(rack, parsed.follow, parsed)
        port_request = PortRequest(tuple(_ports(parsed)), parsed.port_count, parsed.least_link)
        job = await _submit(rack, parsed, port_request)
        return await _answer(rack, job, parsed)


async def _attempt_any(parsed: argparse.Namespace, wish: JobWish, placing: Placing) -> CommandResult:
    token_file = placing.token_file

    async def submit(place: RackPlace, ports: PortRequest) -> JobStatus:
        use_place(parsed, place, token_file)
        async with rack_client(parsed) as rack:
            return await _submit(rack, parsed, ports)

    place, job = await place_job(parsed, wish, placing, submit)
    use_place(parsed, place, token_file)
    if not parsed.wait and parsed.json:
        refusals = dict(placing.refused)
        return CommandResult(
            to_json({"rack": place.name, "why": placing.why, "others": refusals, "job": plain(job)})
        )
    async with rack_client(parsed) as rack:
        return await _answer(rack, job, parsed)


async def _submit(rack: RackClient, parsed: argparse.Namespace, ports: PortRequest) -> JobStatus:
    text = read_text(parsed.scenario)
    if parsed.upload:
        upload_url = (await rack.controller()).http_url
        text = await asyncio.to_thread(_upload, parsed, text, upload_url)
    return await rack.submit(
        text,
        ports=ports.ports,
        port_count=ports.port_count,
        least_link_bps=ports.least_link_bps,
        priority=parsed.priority,
        client_key=parsed.key,
        labels=parse_labels("--label", parsed.label),
        time_limit_ns=parsed.time_limit,
        strict=parsed.strict,
        retries=parsed.retries,
        scenario_name=parsed.scenario.name[:MOST_CLAIM_CHARACTERS],
    )


async def _answer(rack: RackClient, job: JobStatus, parsed: argparse.Namespace) -> CommandResult:
    if parsed.wait:
        return await wait_for_job(rack, job.job_id, parsed)
    return CommandResult(to_json(plain(job)) if parsed.json else f"{job.job_id}\n")


def _ports(parsed: argparse.Namespace) -> list[str]:
    return [port.strip() for port in parsed.ports.split(",") if port.strip()]


def _upload(parsed: argparse.Namespace, text: str, base: str) -> str:
    """Upload the traces of a scenario and return its text with their digests in place of their paths."""
    if not base:
        remedy = "add http: with tokens: to its controller.yaml, or put the trace below its scenario_root"
        raise ConfigError(Problem("--upload", "the rack has no HTTP server", remedy))
    # Imported here, because only an upload reads traces.
    from etloop.controller.rack.client.packing import Mention, mentions, pack_trace, with_digests
    from etloop.controller.rack.client.web import RackWeb

    web = RackWeb(parsed.token_file, parsed.ca)
    digests: dict[Mention, str] = {}
    for mention in mentions(text, str(parsed.scenario)):
        with tempfile.TemporaryDirectory(prefix="etloop-upload-") as directory:
            place = Path(directory) / "trace.tar.gz"
            archive, digest = pack_trace(mention, parsed.scenario.parent, place)
            is_known = web.upload(base, archive, digest)
            outcome = (
                "the rack has it" if is_known else f"uploaded {approximate_bytes(archive.stat().st_size)}"
            )
            sys.stderr.write(f"trace {printable(mention.trace)}: {outcome}, sha256:{digest}\n")
        digests[mention] = digest
    return with_digests(text, digests)


async def wait_for_job(rack: RackClient, job_id: str, parsed: argparse.Namespace) -> CommandResult:
    """Wait for the end of a job and return its result.

    Raise `JobNotEnded` after --wait-limit, which also cancels the job, and as `etloop submit` does.
    """
    limit = parsed.wait_limit
    try:
        async with asyncio.timeout(limit / NS_PER_S if limit else None):
            return await _follow(rack, job_id, as_json=parsed.json)
    except asyncio.CancelledError:
        follow_command, cancel_command = (
            f"etloop submit --follow {job_id}",
            f"etloop submit --cancel {job_id}",
        )
        sys.stderr.write(
            f"\njob {job_id} continues: {follow_command} waits for it again, {cancel_command} cancels it\n"
        )
        raise
    except TimeoutError:
        await rack.cancel(await rack.newest(job_id), "etloop submit --wait-limit")
        raise JobNotEnded(f"job {job_id} did not end within {seconds_text(limit)}; it is cancelled") from None


async def _follow(rack: RackClient, job_id: str, *, as_json: bool) -> CommandResult:
    last_line = ""
    async for update in rack.follow(job_id):
        line = _progress_line(update)
        if line != last_line and not as_json:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        last_line, job_id = line, update.job_id
    result = await rack.result(job_id)
    text = to_json(plain(result)) if as_json else _result_text(result)
    return CommandResult(text, ExitCode(result.exit_code))


def _progress_line(update: JobStatus | ProgressStatus) -> str:
    if isinstance(update, JobStatus):
        reason_text = f" ({update.reason})" if update.reason and update.state not in ENDED else ""
        return f"job {update.job_id}: {update.state}{reason_text}"
    sent_text = approximate_bytes(update.wire_tx_bytes)
    return f"job {update.job_id}: {update.phase} {update.ops_done}/{update.ops_total} ops, {sent_text}"


def _result_text(result: ResultStatus) -> str:
    lines = [f"job {result.job_id} {result.state}, exit code {result.exit_code}"]
    lines += [f"verdict: {verdict}"] if (verdict := _verdict_text(result.summary)) else []
    lines += [f"reason: {result.reason}"] if result.reason else []
    lines += _findings_text(result.summary)
    place = result.results_url or f"{result.run_directory} (below the rack's artifacts)"
    lines += [f"results: {place}"] if result.run_directory else []
    return "\n".join(lines) + "\n"


def _findings_text(summary: object) -> list[str]:
    """Return a line for each cause in a rack's summary.json; none if there is no summary."""
    diagnosis = summary.get("diagnosis") if isinstance(summary, dict) else None
    findings = diagnosis.get("findings") if isinstance(diagnosis, dict) else None
    return [
        printable(f"finding: {finding.get('sentence')}; remedy: {finding.get('remedy')}")
        for finding in (findings if isinstance(findings, list) else [])
        if isinstance(finding, dict) and finding.get("effect_of") is None
    ]


def _verdict_text(summary: object) -> str:
    """Return the verdict of a rack's summary.json as text, or "" if there is no summary."""
    if not isinstance(summary, dict):
        return ""
    verdict = summary.get("verdict")
    if not isinstance(verdict, dict):
        return "none: the scenario has no conditions"
    checks = verdict.get("checks")
    results = (
        [str(check.get("result")) for check in checks if isinstance(check, dict)]
        if isinstance(checks, list)
        else []
    )
    counts_text = ", ".join(f"{count} {result}" for result, count in Counter(results).items())
    return printable(f"{str(verdict.get('result')).upper()}: {counts_text}")

"""The rack's figures at a real OTLP/HTTP receiver that decodes the protobuf; without the extra, a word on what to install."""

from __future__ import annotations

import gzip
import json
import queue
import sys
import threading
from asyncio import to_thread
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, ExitCode
from etloop.controller.rack.config import parse_rack_config
from etloop.controller.rack.events import RackState
from etloop.controller.rack.job import JobRequest, JobState, PortDemand
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.runs.submitted_code import AllowedCode
from etloop.controller.rack.startup import open_daemon
from etloop.controller.rack.telemetry.metrics import Lag, RackCollector, Tallies
from etloop.controller.rack.telemetry.otel_points import EndedJob, metrics_data
from tests.controller.rack.runs.test_rack_code import rack as rack_of
from tests.controller.rack.runs.test_rack_code import root
from tests.controller.rack.test_rack_daemon import SCENARIO, place, serving
from tests.support.first_light.commands import PATIENCE_S, Place, agents

__all__ = ["place", "root"]


class Receiver:
    """An OTLP/HTTP collector that keeps what it was sent, or refuses as long as `refuses` says so."""

    def __init__(self) -> None:
        self.exports: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.headers: list[dict[str, str]] = []
        self.refuses = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                named = {name.lower(): value for name, value in self.headers.items()}
                receiver.headers.append(named | {"path": self.path})
                if receiver.refuses:
                    self.send_error(400)
                    return
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.exports.put(service.ExportMetricsServiceRequest.FromString(body))
                answer = service.ExportMetricsServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A collector of the test's own."""
    receiver = Receiver()
    yield receiver
    receiver.close()


def metrics_of(export: Any) -> dict[str, Any]:
    """Name -> metric."""
    (resource,) = export.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def attributes(of: Any) -> dict[str, str]:
    """Attributes of a point or resource."""
    return {each.key: each.value.string_value for each in of.attributes}


def value(point: Any) -> float:
    """A point's number."""
    return float(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)


def set_up(place: Place, receiver: Receiver, more: str = "") -> None:
    path = place.directory / "controller.yaml"
    path.write_text(
        path.read_text()
        + f"rack: bench7\notel: {{endpoint: '{receiver.endpoint}/', interval: 200ms{more}}}\n"
    )


async def test_a_collector_gets_the_racks_figures_and_those_of_every_job_once(
    place: Place, receiver: Receiver
) -> None:
    (place.directory / "token").write_text("Bearer 0a1b2c\n")
    (place.directory / "token").chmod(0o600)
    set_up(place, receiver, ", authorization_file: token")
    with agents(place):
        async with serving(place) as rack:
            job = await rack.reaches(rack.submit(SCENARIO), JobState.FINISHED)
            exports: list[Any] = []
            while not exports or "etloop.job.exit_code" not in metrics_of(exports[-1]):
                exports.append(await to_thread(receiver.exports.get, timeout=PATIENCE_S))
            after = await to_thread(receiver.exports.get, timeout=PATIENCE_S)
            log = rack.log()
    metrics = metrics_of(exports[-1])
    resource = attributes(exports[-1].resource_metrics[0].resource)
    assert resource["service.name"] == "etloop-controller"
    assert resource["test.testbed"] == "bench7"
    (ended,) = metrics["etloop.rack.jobs.ended"].sum.data_points
    assert attributes(ended) == {"etloop.job.state": "finished", "etloop.job.exit_code": "0"}
    assert value(ended) == 1
    assert metrics["etloop.rack.jobs.ended"].sum.is_monotonic
    assert ended.start_time_unix_nano < ended.time_unix_nano
    (duration,) = metrics["etloop.rack.job.duration"].histogram.data_points
    assert (duration.count, sum(duration.bucket_counts)) == (1, 1)
    assert len(duration.bucket_counts) == len(duration.explicit_bounds) + 1
    assert duration.sum > 0
    assert not duration.HasField("min")
    present = {
        attributes(p)["device.id"]: value(p) for p in metrics["etloop.rack.agent.present"].gauge.data_points
    }
    assert present == {"a": 1, "b": 1}
    ports = {attributes(p)["device.port.id"] for p in metrics["etloop.rack.port.leased"].gauge.data_points}
    assert ports == {"a/p0", "a/p1", "b/p0", "b/p1"}

    summary = json.loads((place.directory / "state" / "artifacts" / job.job_id / "summary.json").read_text())
    (completion,) = metrics["etloop.job.completion_time"].gauge.data_points
    assert metrics["etloop.job.completion_time"].unit == "s"
    assert attributes(completion)["test.job.id"] == job.job_id
    assert value(completion) == pytest.approx(summary["job"]["jct_ns"] / 1e9)
    (sent,) = metrics["etloop.job.wire.sent"].gauge.data_points
    assert value(sent) == summary["bytes"]["wire_tx_bytes"] > 0
    assert "etloop.job.exit_code" not in metrics_of(after), "a job's figures are said once"

    assert {each["path"] for each in receiver.headers} == {"/v1/metrics"}
    assert {each["authorization"] for each in receiver.headers} == {"Bearer 0a1b2c"}
    assert "0a1b2c" not in json.dumps(log)
    assert [each["to"] for each in log if each["event"] == "figures are pushed"] == [receiver.endpoint], (
        "once"
    )


async def test_what_a_collector_refuses_is_sent_again_and_said_once(place: Place, receiver: Receiver) -> None:
    receiver.refuses = True
    set_up(place, receiver)
    async with serving(place) as rack:
        job_id = rack.submit(SCENARIO)
        rack.rack.cancel(job_id, "test")
        await rack.until(lambda: len(receiver.headers) >= 3)
        printed = [each["event"] for each in rack.log()]
        assert printed.count("figures cannot be pushed") == 1
        receiver.refuses = False
        export = await to_thread(receiver.exports.get, timeout=PATIENCE_S)
    (code,) = metrics_of(export)["etloop.job.exit_code"].gauge.data_points
    assert attributes(code) == {"test.job.id": job_id, "etloop.job.state": "cancelled"}
    assert value(code) == ExitCode.RUN_ERROR
    assert "etloop.job.wire.sent" not in metrics_of(export), "nothing was measured, and nothing is claimed"


async def test_what_ended_last_is_pushed_on_the_way_out(place: Place, receiver: Receiver) -> None:
    path = place.directory / "controller.yaml"
    path.write_text(path.read_text() + f"otel: {{endpoint: '{receiver.endpoint}', interval: 1h}}\n")
    async with serving(place) as rack:
        await rack.until(lambda: any(entry["event"] == "ready" for entry in rack.log()))
        rack.rack.cancel(rack.submit(SCENARIO), "test")
    export = receiver.exports.get(timeout=PATIENCE_S)
    assert len(metrics_of(export)["etloop.job.exit_code"].gauge.data_points) == 1


def test_every_figure_of_metrics_has_a_name_in_opentelemetry_too(root: Path) -> None:
    rack = rack_of(root, AllowedCode())
    rack.enter(RackState.DRAINING)
    collector = RackCollector(rack, lambda: (), Tallies(), lambda: 7, lambda: False)
    shown = metrics_data(collector.collect(), (), "r", "0", 1, 2).resource_metrics[0].scope_metrics[0].metrics
    assert {metric.name for metric in shown} >= {"etloop.rack.ready", "etloop.rack.disk.free"}
    for metric in shown:
        assert metric.name == metric.name.lower()
        assert metric.unit
        assert metric.description


def test_the_loops_lag_is_remembered_for_a_minute_or_two_whoever_reads_it() -> None:
    minute_ns, lag = 60 * NS_PER_S, Lag()
    begin_ns = 10 * minute_ns
    lag.saw(0.25, begin_ns + 1)
    lag.saw(0.125, begin_ns + 2)
    assert [lag.longest_s(begin_ns + 3) for _ in range(3)] == [0.25] * 3
    lag.saw(0.5, begin_ns + minute_ns)
    assert lag.longest_s(begin_ns + 2 * minute_ns - 1) == 0.5
    assert lag.longest_s(begin_ns + 3 * minute_ns - 1) == 0.5
    assert lag.longest_s(begin_ns + 3 * minute_ns) == 0


def test_figures_that_a_run_does_not_have_are_left_out(root: Path) -> None:
    rack = rack_of(root, AllowedCode())
    job, _ = rack.store.submit("j1", JobRequest("x", PortDemand()), "t")
    summary: dict[str, Any] = {"job": {"jct_ns": None, "iteration_jct_avg_ns": None}, "slip": None}
    summary |= {"bytes": {"wire_tx_bytes": 0}, "transport": {}}
    shown = (
        metrics_data((), [EndedJob(job, 5, summary)], "r", "0", 1, 2)
        .resource_metrics[0]
        .scope_metrics[0]
        .metrics
    )
    assert {metric.name for metric in shown} == {"etloop.job.wire.sent"}


REFUSED = {
    "no URL": ("collector:4318", "is not the base URL of an OTLP/HTTP collector"),
    "a secret in the URL": ("https://user:secret@collector:4318", "is not the base URL"),
    "another scheme": ("grpc://collector:4317", "is not the base URL"),
}


@pytest.mark.parametrize(("endpoint", "printed"), REFUSED.values(), ids=REFUSED)
def test_an_endpoint_that_cannot_be_meant_is_refused(tmp_path: Path, endpoint: str, printed: str) -> None:
    text = f"rig: r\nstate_dir: s\nscenario_root: t\notel: {{endpoint: '{endpoint}'}}\n"
    with pytest.raises(ConfigError, match=printed):
        parse_rack_config(text.encode(), "c", tmp_path)


def test_a_secret_does_not_leave_unencrypted(tmp_path: Path) -> None:
    text = "rig: r\nstate_dir: s\nscenario_root: t\notel: {endpoint: 'http://collector:4318', authorization_file: f}\n"
    with pytest.raises(ConfigError, match="would cross the network to collector unencrypted; write https://"):
        parse_rack_config(text.encode(), "c", tmp_path)
    assert parse_rack_config(text.replace("http:", "https:").encode(), "c", tmp_path).otel is not None


def test_without_the_extra_the_remedy_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "etloop.controller.rack.telemetry.otel", None)
    path = place.directory / "controller.yaml"
    text = path.read_text() + "otel: {}\n"
    with pytest.raises(ConfigError, match=r"pip install 'etloop\[otel\]'"):
        open_daemon(parse_rack_config(text.encode(), "c", place.directory), RackLog(LogFormat.TEXT))


def test_a_port_that_no_job_gets_is_out_of_service(root: Path) -> None:
    rack = rack_of(root, AllowedCode())
    collector = RackCollector(rack, lambda: (), Tallies(), lambda: 7, lambda: False)

    def in_service() -> dict[str, float]:
        (family,) = (f for f in collector.collect() if f.name == "etloop_rack_port_in_service")
        return {sample.labels["port"]: sample.value for sample in family.samples}

    first, *others = in_service()
    assert set(in_service().values()) == {1}
    for job in ("j1", "j2"):
        rack.health.note_unprepared(first, job, "its link is down")
    assert in_service() == {first: 0} | dict.fromkeys(others, 1)

"""What a rack shows over HTTP: figures that Prometheus parses, health with its reasons, run directories and nothing else."""

from __future__ import annotations

import urllib.error
import urllib.request
from asyncio import to_thread
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from etloop.contract.base.errors import ConfigError
from etloop.controller.rack.config import parse_rack_config
from etloop.controller.rack.events import RackState
from etloop.controller.rack.job import JobState
from etloop.runtime.version import installed_version
from tests.controller.rack.test_rack_daemon import LONG, SCENARIO, place, serving
from tests.support.first_light.commands import Place, agents
from tests.support.ports import free_port

__all__ = ["place"]


def fetched(url: str) -> tuple[int, str]:
    """Status and body of a GET."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_a_rack_is_looked_at_over_http(place: Place) -> None:
    port = free_port()
    path = place.directory / "controller.yaml"
    path.write_text(path.read_text() + f"http: {{port: {port}}}\n")
    base = f"http://127.0.0.1:{port}"
    with agents(place):
        async with serving(place) as rack:
            await rack.until(lambda: any(entry["event"] == "http listens" for entry in rack.log()))
            job = await rack.reaches(rack.submit(SCENARIO), JobState.FINISHED)
            status, text = await to_thread(fetched, f"{base}/metrics")
            families = {family.name: family for family in text_string_to_metric_families(text)}
            assert status == 200
            assert all(family.documentation for family in families.values())
            samples = families["etloop_rack_jobs_ended"].samples
            ended = {(s.labels["state"], s.labels["exit_code"]): s.value for s in samples}
            assert ended == {("finished", "0"): 1.0}
            assert families["etloop_rack_wire_sent_bytes"].samples[0].value > 0
            roles = {s.labels["kind"]: s.labels["role"] for s in families["etloop_rack_findings"].samples}
            assert roles.items() >= {"slow_link": "fault", "emulator_late": "emulator"}.items()
            present = families["etloop_rack_agent_present"].samples
            assert {sample.labels["agent"]: sample.value for sample in present} == {"a": 1.0, "b": 1.0}

            assert families["etloop_rack_oldest_queued_seconds"].samples[0].value == 0
            assert families["etloop_rack_build_info"].samples[0].labels == {"version": installed_version()}
            assert families["process_resident_memory_bytes"].samples[0].value > 1 << 20
            assert families["process_open_fds"].samples[0].value > 0

            assert (await to_thread(fetched, f"{base}/healthz"))[0] == 200
            status, text = await to_thread(fetched, f"{base}/runs/")
            assert job.job_id in text
            status, text = await to_thread(fetched, f"{base}/runs/{job.job_id}/")
            assert "summary.json" in text
            status, text = await to_thread(fetched, f"{base}/runs/{job.job_id}/summary.json")
            assert (status, '"state": "done"' in text) == (200, True)

            directory = place.directory / "state" / "artifacts" / job.run_directory
            (directory / "link").symlink_to("/etc/passwd")
            for way_out in (
                "link",
                "..%2f..%2fjobs.sqlite",
                "%2e%2e",
                "%2fetc%2fpasswd",
                "none",
                2000 * "%2e",
                300 * "x",
            ):
                status, _ = await to_thread(fetched, f"{base}/runs/{job.job_id}/{way_out}")
                assert status in (403, 404), way_out
            for way_out in ("..", "%2e%2e", "jobs.sqlite"):
                assert (await to_thread(fetched, f"{base}/runs/{way_out}/"))[0] == 404, way_out

            # With a job under way the controller drains until that has ended.
            await rack.reaches(rack.submit(LONG), JobState.RUNNING)
            rack.rack.enter(RackState.DRAINING)
            status, text = await to_thread(fetched, f"{base}/healthz")
            assert (status, "the controller is draining" in text) == (503, True)


def test_http_that_others_reach_has_to_be_asked_for_aloud(tmp_path: Path) -> None:
    text = b"rig: r\nstate_dir: s\nscenario_root: t\nhttp: {host: 0.0.0.0}\n"
    with pytest.raises(
        ConfigError, match="reachable from other machines, and HTTP does not authenticate clients"
    ):
        parse_rack_config(text, "controller.yaml", tmp_path)

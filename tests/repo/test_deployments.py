"""What is shipped for racks to run ETLoop with: systemd units, Kubernetes manifests, the compose file and its image.

Held against the programs and schemas that read them. That the compose file works is test_compose's part.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from etloop.agent import cli as agent_cli
from etloop.cli.parser import make_parser
from etloop.contract.base.units import parse_duration_ns
from tests.support.kustomized import kustomized
from tests.support.places import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
MANIFESTS = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("host-network", "sriov")
Document = dict[str, Any]


def documents(overlay: str = "host-network") -> list[Document]:
    return kustomized(MANIFESTS / "overlays" / overlay)


def compose() -> Document:
    loaded: Document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def workloads() -> list[Document]:
    return [document for document in documents() if document["kind"] in ("Deployment", "DaemonSet")]


def commands() -> Iterator[tuple[str, str]]:
    """Every command line of ours in what is shipped: (where, command)."""
    for unit in UNITS:
        for line in re.findall(r"^ExecStart=((?:.*\\\n)*.*)", unit.read_text(), re.MULTILINE):
            yield unit.name, line.replace("\\\n", " ")
    for workload in workloads():
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        yield workload["metadata"]["name"], shlex.join(container["command"])
    for name, service in compose()["services"].items():
        text = service["command"][-1] if service["command"][0] == "sh" else shlex.join(service["command"])
        for line in text.replace("\\\n", " ").splitlines():
            if found := re.match(r"(?:exec )?(etloop.*)", line.strip()):
                yield f"compose service {name}", found.group(1)


@pytest.mark.parametrize(("where", "command"), list(commands()))
def test_every_command_is_one_of_ours_with_options_that_it_has(where: str, command: str) -> None:
    # Unlike ${NAME}, $NAME becomes words of its own in a unit, and none where it is not set (systemd.service).
    program, *arguments = (word for word in shlex.split(command) if not re.fullmatch(r"\$[A-Z]+", word))
    parser: argparse.ArgumentParser = (
        agent_cli.make_parser() if program.endswith("etloop-agent") else make_parser(arguments)
    )
    assert Path(program).name in ("etloop", "etloop-agent"), where
    parser.parse_args(arguments)


# ---- systemd


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_units_without_a_remark(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian package systemd)")
    text = unit.read_text()
    for program in ("etloop", "etloop-agent"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(text.replace("/opt/etloop/bin", str(tmp_path)))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=one", str(copy)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    copy.write_text(copy.read_text() + "[Service]\nNoSuchSetting=yes\n")
    assert (
        "NoSuchSetting"
        in subprocess.run(command, check=False, capture_output=True, text=True, timeout=60).stderr
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_give_up_every_privilege(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    for line in (
        "User=etloop",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "AmbientCapabilities=",
        "ProtectSystem=strict",
        "SystemCallFilter=@system-service",
    ):
        assert line in lines, line
    assert "RestartPreventExitStatus=65 2" in lines, "a mistake in the configuration is not tried for ever"


def test_runs_outlive_a_controller_that_is_killed_and_not_each_other() -> None:
    lines = (ROOT / "deploy" / "systemd" / "etloop-controller.service").read_text().splitlines()
    assert "KillMode=process" in lines, "any other mode kills what would store an interrupted run"
    assert "OOMPolicy=continue" in lines, "by default one run that is too large stops them all"


# ---- Kubernetes


def test_a_full_disk_neither_restarts_a_controller_nor_keeps_agents_from_it() -> None:
    (controller,) = [workload for workload in workloads() if workload["kind"] == "Deployment"]
    container = controller["spec"]["template"]["spec"]["containers"][0]
    assert "livenessProbe" not in container
    assert "tcpSocket" in container["startupProbe"]
    services = [document["spec"] for document in documents() if document["kind"] == "Service"]
    assert all(spec["publishNotReadyAddresses"] for spec in services)


def test_what_asks_nobody_who_he_is_stays_within_the_cluster() -> None:
    services = [document["spec"] for document in documents() if document["kind"] == "Service"]
    outside = [port["name"] for spec in services if "type" in spec for port in spec["ports"]]
    assert outside == ["control"]


@pytest.mark.parametrize(
    "document",
    [document for overlay in OVERLAYS for document in documents(overlay)],
    ids=lambda document: f"{document['kind']}-{document['metadata']['name']}",
)
def test_manifests_follow_the_schema_of_kubernetes(document: Document) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own use of importlib
        import kubernetes_validate  # type: ignore[import-untyped]
    version = kubernetes_validate.latest_version()
    kubernetes_validate.validate(document, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document | {"specc": {}}, version, strict=True)


@pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload["kind"])
def test_pods_mount_what_they_declare_and_have_no_privileges(workload: Document) -> None:
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == volumes
    claims = {d["metadata"]["name"] for d in documents() if d["kind"] == "PersistentVolumeClaim"}
    assert {
        v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v
    } <= claims
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_agents_are_a_daemon_set_on_the_network_of_their_hosts() -> None:
    (agents,) = [workload for workload in workloads() if workload["kind"] == "DaemonSet"]
    pod = agents["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    assert pod["dnsPolicy"] == "ClusterFirstWithHostNet", "or the controller's name means nothing there"
    resources = pod["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"], "whole cores are only given to guaranteed pods"


def test_whoever_stops_the_controller_waits_longer_than_it_drains() -> None:
    default_drain_ns = parse_duration_ns("60s")
    (controller,) = [workload for workload in workloads() if workload["kind"] == "Deployment"]
    assert controller["spec"]["strategy"] == {"type": "Recreate"}
    grace_s = controller["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    stop_s = int(re.findall(r"TimeoutStopSec=(\d+)", UNITS[0].read_text() + UNITS[1].read_text())[-1])
    waits = (f"{grace_s}s", f"{stop_s}s", compose()["services"]["controller"]["stop_grace_period"])
    assert all(parse_duration_ns(wait) > default_drain_ns for wait in waits), waits


# ---- compose


PRIVILEGES = {
    "mosquitto": {"user": "65534:65534"},
    "soft-switch": {"user": "0:0", "cap_add": ["NET_RAW", "NET_ADMIN"], "network_mode": "none"},
    "cable-a": {
        "user": "0:0",
        "cap_add": ["NET_ADMIN"],
        "network_mode": "service:agent-a",
        "pid": "service:soft-switch",
    },
    "cable-b": {
        "user": "0:0",
        "cap_add": ["NET_ADMIN"],
        "network_mode": "service:agent-b",
        "pid": "service:soft-switch",
    },
}
"""What a switch and its cables need of their engine, and nothing else of ours needs anything."""


def test_containers_have_no_privileges_but_those_that_a_switch_needs() -> None:
    services = compose()["services"]
    assert set(services) == {"mosquitto", "controller", "agent-a", "agent-b", "demo", *PRIVILEGES}
    asked = {
        "privileged",
        "cap_add",
        "pid",
        "network_mode",
        "devices",
        "user",
        "ipc",
        "userns_mode",
        "group_add",
        "cgroup_parent",
    }
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"] is True, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {key: service[key] for key in asked & service.keys()} == PRIVILEGES.get(name, {}), name


def test_who_is_privileged_is_given_no_network_of_its_own_and_no_secret() -> None:
    for name in PRIVILEGES.keys() - {"mosquitto"}:
        service = compose()["services"][name]
        assert "networks" not in service, name
        assert service["volumes"] == ["./deploy/compose:/etc/etloop:ro"], name


def test_compose_accepts_the_file() -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip("docker-compose is not installed (Debian package docker-compose)")
    command = ["docker-compose", "-f", str(ROOT / "docker-compose.yml"), "config", "--quiet"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_nothing_is_published_beyond_this_machine() -> None:
    for name, service in compose()["services"].items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} publishes {port}"


def test_the_image_runs_as_nobody_in_particular_and_leaves_the_compiler_behind() -> None:
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    last = stages[-1]
    assert "\nUSER etloop\n" in last
    assert "g++" not in last
    assert "g++" in stages[1]
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {"/.git", "/.venv", "/keys"} <= set(ignored), "neither secrets nor what was built here gets in"

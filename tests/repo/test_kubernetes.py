"""The overlays for Kubernetes: what each changes, and that its network policies let the rack's own speak and nobody else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kustomized import identity, kustomized, merged
from tests.support.places import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
HOST_NETWORK, SRIOV = (kustomized(FOLDER / "overlays" / name) for name in ("host-network", "sriov"))
PRINTED = ROOT / "tests" / "data" / "kustomize"
"""What Kustomize 5.6.0 prints (Debian 13's package, which runs on Debian 12; `kubectl kustomize` 1.32 prints the same)."""
Document = dict[str, Any]
NODE = {"app.kubernetes.io/name": "etloop", "app.kubernetes.io/component": "agent"}
CONTROLLER = {"app.kubernetes.io/name": "etloop", "app.kubernetes.io/component": "controller"}
BROKER = {"app.kubernetes.io/name": "mosquitto"}
STRANGER = {"app.kubernetes.io/name": "stranger"}
PROMETHEUS = {"etloop/http": "allowed"}


def matches(selector: Document, labels: dict[str, str]) -> bool:
    """Whether a label selector takes a pod, by the two forms that stand in the policies."""
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    listed = selector.get("matchExpressions", [])
    assert all(one["operator"] == "In" for one in listed)
    return exact and all(labels.get(one["key"]) in one["values"] for one in listed)


def allows(
    documents: list[Document], direction: str, pod: dict[str, str], peer: dict[str, str], port: int
) -> bool:
    """Whether the policies let TCP between a pod and a peer of its namespace pass, seen from the pod."""
    side = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}[direction]
    chosen = [
        one["spec"]
        for one in documents
        if one["kind"] == "NetworkPolicy"
        and matches(one["spec"]["podSelector"], pod)
        and direction in one["spec"]["policyTypes"]
    ]
    rules = [rule for spec in chosen for rule in spec.get(side[0], [])]
    return not chosen or any(
        {"protocol": "TCP", "port": port} in rule["ports"]
        and any(
            "namespaceSelector" not in one
            and matches(one.get("podSelector", {"matchLabels": {"no": ""}}), peer)
            for one in rule[side[1]]
        )
        for rule in rules
    )


def passes(documents: list[Document], source: dict[str, str], target: dict[str, str], port: int) -> bool:
    """Whether both sides' policies let a connection pass."""
    return allows(documents, "Egress", source, target, port) and allows(
        documents, "Ingress", target, source, port
    )


@pytest.mark.parametrize(
    ("sentence", "source", "target", "port", "expected"),
    [
        ("an agent joins the controller", NODE, CONTROLLER, 7420, True),
        ("an agent says to the broker that it lives", NODE, BROKER, 8883, True),
        ("the controller speaks to the broker", CONTROLLER, BROKER, 8883, True),
        ("an agent has no business with the controller's HTTP", NODE, CONTROLLER, 9420, False),
        ("nor with the broker's port without TLS", NODE, BROKER, 1883, False),
        (
            "agents do not speak to each other here: their traffic has ports of its own",
            NODE,
            NODE,
            7420,
            False,
        ),
        ("the controller calls no agent", CONTROLLER, NODE, 7420, False),
        ("a stranger does not reach the controller", STRANGER, CONTROLLER, 7420, False),
        ("nor its HTTP", STRANGER, CONTROLLER, 9420, False),
        ("nor the broker", STRANGER, BROKER, 8883, False),
        ("nor anybody outside, for the namespace is closed", STRANGER, STRANGER, 80, False),
    ],
)
def test_who_may_speak_to_whom(
    sentence: str, source: dict[str, str], target: dict[str, str], port: int, expected: bool
) -> None:
    assert passes(SRIOV, source, target, port) is expected, sentence


def test_who_carries_the_label_reads_metrics_and_is_not_asked_to_have_others() -> None:
    assert allows(SRIOV, "Ingress", CONTROLLER, PROMETHEUS, 9420)
    assert not allows(SRIOV, "Ingress", CONTROLLER, PROMETHEUS, 7420)


def test_agents_on_the_network_of_their_hosts_come_from_addresses() -> None:
    (policy,) = [one for one in HOST_NETWORK if identity(one)[1::2] == ("NetworkPolicy", "etloop-controller")]
    control, http = policy["spec"]["ingress"]
    assert control == {
        "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "ports": [{"protocol": "TCP", "port": 7420}],
    }
    assert allows(HOST_NETWORK, "Ingress", CONTROLLER, PROMETHEUS, http["ports"][0]["port"])
    assert (
        policy["spec"]["egress"]
        == [one["spec"]["egress"] for one in SRIOV if identity(one) == identity(policy)].pop()
    )


def test_ports_of_policies_are_those_of_the_pods() -> None:
    (controller,) = [one for one in SRIOV if one["kind"] == "Deployment"]
    ports = {
        port["containerPort"] for port in controller["spec"]["template"]["spec"]["containers"][0]["ports"]
    }
    (policy,) = [one for one in SRIOV if identity(one)[1::2] == ("NetworkPolicy", "etloop-controller")]
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == ports


def test_an_agent_with_a_virtual_function_is_not_on_the_network_of_its_host() -> None:
    (agents,) = [one for one in SRIOV if one["kind"] == "DaemonSet"]
    pod = agents["spec"]["template"]
    assert "hostNetwork" not in pod["spec"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "agent", "a patch adds to the metadata"
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "4Gi", "example.com/etloop_port": "1"}
    assert container["resources"]["requests"] == container["resources"]["limits"]


@pytest.mark.parametrize("overlay", ["host-network", "sriov"])
def test_kustomize_prints_what_these_tests_read(overlay: str) -> None:
    printed = {identity(one): one for one in yaml.safe_load_all((PRINTED / f"{overlay}.yaml").read_text())}
    read = {identity(one): one for one in kustomized(FOLDER / "overlays" / overlay)}
    again = f"kustomize build deploy/kubernetes/overlays/{overlay} > tests/data/kustomize/{overlay}.yaml"
    assert printed == read, f"{again}: where the manifests changed, print anew; else the reader here is wrong"


def test_a_patch_for_nothing_and_an_unknown_feature_are_refused(tmp_path: Path) -> None:
    top: Document = {"resources": ["one.yaml"], "patches": [{"path": "patch.yaml"}]}
    one = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n"}, "spec": {}}
    other = copy.deepcopy(one) | {"metadata": {"name": "b", "namespace": "n"}}
    for name, content in (("one", one), ("patch", other), ("kustomization", top)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(AssertionError, match="of which there are 0"):
        kustomized(tmp_path)
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(top | {"namePrefix": "x-"}))
    with pytest.raises(AssertionError, match=r"namePrefix.* is nothing that this reader knows"):
        kustomized(tmp_path)
    with pytest.raises(AssertionError, match="how ports is merged is not known here"):
        merged({"ports": []}, {"ports": [1]})

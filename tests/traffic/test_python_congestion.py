"""A congestion control in Python does in the twin what the same one in C++ does, and its mistakes are named."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import etloop
from etloop.cli.main import main
from tests.support.places import ROOT

PLUGIN = ROOT / "examples" / "cc_plugin"
SCENARIO: dict[str, Any] = {
    "workload": {"trace": "job"},
    "transport": {"cc": {"series": {"interval": "10us"}}},
}
TOPOLOGY = {
    "leaf_spine": {
        "leaves": [{"ports": ["a/p0", "c/p0"]}, {"ports": ["b/p0", "d/p0"]}],
        "spines": 1,
        "rate": "25Gbps",
    }
}


def aimd() -> type[etloop.CongestionControl]:
    """The class of the example."""
    spec = importlib.util.spec_from_file_location("aimd", PLUGIN / "aimd.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[etloop.CongestionControl] = module.Aimd
    return found


@pytest.fixture(autouse=True)
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["synth", "job", "--sweep", "all_to_all", "--sizes", "16MiB", "--ranks", "4"]
    assert main(words) == 0


def test_the_example_does_the_same_in_both_languages() -> None:
    ours = etloop.run_twin(SCENARIO, None, "python", topology=TOPOLOGY, congestion_control=aimd())
    compiled = {
        **SCENARIO,
        "transport": {"cc": {**SCENARIO["transport"]["cc"], "plugin": str(PLUGIN / "aimd.cpp")}},
    }
    theirs = etloop.run_twin(compiled, None, "compiled", topology=TOPOLOGY)
    assert ours.frame("cc")["window_bytes"].nunique() > 10, "the window never moved: nothing is compared"
    for name in ("ops", "cc", "flows"):
        assert ours.table(name).equals(theirs.table(name)), name


class Forgetful(etloop.CongestionControl):
    """Fails at its first acknowledgement."""

    def on_ack(self, ack: etloop.CongestionAck) -> None:
        raise KeyError(ack.acked_bytes)


class Negative(etloop.CongestionControl):
    """Decides what cannot be."""

    def __init__(self, path: etloop.CongestionPath, now_ns: int) -> None:
        super().__init__(path, now_ns)
        self.window_bytes = -1


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Forgetful, r"Forgetful\.on_ack: KeyError: \d+"),
        (Negative, r"Negative\.__init__: ValueError: window_bytes is -1, expected 0 to 2\*\*63 - 1"),
    ],
)
def test_what_a_class_raises_comes_out_with_its_name(
    kind: type[etloop.CongestionControl], words: str
) -> None:
    with pytest.raises(etloop.CongestionFailed, match=words):
        etloop.run_twin(SCENARIO, None, "run", topology=TOPOLOGY, congestion_control=kind)


class Paced(etloop.CongestionControl):
    """Half of the link, from a timer on."""

    def __init__(self, path: etloop.CongestionPath, now_ns: int) -> None:
        super().__init__(path, now_ns)
        self.next_timer_ns = now_ns

    def on_timer(self, now_ns: int) -> None:
        self.rate_bps = self.path.line_rate_bps // 2
        self.next_timer_ns = now_ns + 1_000_000


def test_a_timer_is_called_and_its_rate_holds() -> None:
    paced = etloop.run_twin(SCENARIO, None, "paced", topology=TOPOLOGY, congestion_control=Paced)
    rates = set(paced.table("cc").column("rate_bps").to_pylist())
    assert 12_500_000_000 in rates

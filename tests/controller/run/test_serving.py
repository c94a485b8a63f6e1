"""Serving workloads in the twin: messages of the engine at both levels, their parts of TTFT, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import etloop
from etloop.contract.base.errors import InputError
from etloop.controller.run.twin import TwinExecution
from etloop.results.schema.serving import REQUEST_COLUMNS, TTFT_PARTS
from etloop.results.serving.figures import little_errors
from etloop.results.serving.text import milliseconds

LINK_BYTES_PER_S = 12.5e9
ONE_TOKEN = 131_072
TABLES = {"prefill": ["1 5ms"], "decode": ["1 1ms"]}
PUSHED_AFTER = {"unit": "block", "blocks": 1024}


def topology(*ports: str, rate: str = "100Gbps") -> dict[str, Any]:
    return {"single": {"ports": list(ports), "rate": rate, "delay": "500ns"}}


def scenario(**keys: Any) -> dict[str, Any]:
    serving = {
        "model": "llama-3.1-8b",
        "prefill": {"instances": 1},
        "decode": {"instances": 1},
        "compute": TABLES,
        "requests": {"rate": 50, "count": 12, "input": 64, "output": 3},
    }
    return {"workload": {"serving": serving | keys}}


def served(*inputs: Any, **options: Any) -> etloop.ServingRun:
    """Run a workload; Little's law holds for every queue of every run."""
    run = etloop.serve(*inputs, **options)
    figures = run.figures
    assert max(little_errors(figures.queues, figures.duration_ns).values()) < 1e-9
    return run


def column(run: etloop.ServingRun, name: str) -> list[int]:
    return [int(value) for value in np.asarray(run.records.requests[name]).tolist()]


@pytest.mark.parametrize("level", ["packet", "flow"])
@pytest.mark.parametrize("direction", ["push", "pull"])
def test_an_unloaded_transfer_takes_its_bytes_over_the_rate_and_the_hops(level: str, direction: str) -> None:
    """64 tokens are 8 MiB; each packet of 4,096 bytes has 82 more on the link. A pull asks first."""
    kv = PUSHED_AFTER | {"direction": direction}
    run = served(scenario(kv=kv), topology=topology("p/0", "d/0"), level=level)
    wire_ns = 64 * ONE_TOKEN * (4096 + 82) / 4096 / LINK_BYTES_PER_S * 1e9
    assert run.figures.finished == run.figures.arrived == 12
    for transfer_ns in column(run, "transfer_ns"):
        assert transfer_ns == pytest.approx(wire_ns, rel=0.02)
    assert sum(column(run, "kv_bytes")) == run.figures.kv_bytes == 12 * 64 * ONE_TOKEN


def wire_payload_bytes(monkeypatch: pytest.MonkeyPatch, **keys: Any) -> tuple[int, etloop.ServingRun]:
    """Serve one request packet by packet; return the payload that all queue pairs received, and the run."""
    received: list[int] = []
    execute = TwinExecution.execute

    def counted(self: TwinExecution, *arguments: Any) -> Any:
        executed = execute(self, *arguments)
        assert executed.twin is not None
        received.append(int(executed.twin.flows["rx_payload_bytes"].sum()))
        return executed

    monkeypatch.setattr(TwinExecution, "execute", counted)
    gpus = [load.get("tp", 1) for load in (keys.get("prefill", {}), keys.get("decode", {}))]
    ports = [f"{side}{gpu}/0" for side, count in zip("pd", gpus, strict=True) for gpu in range(count)]
    run = served(scenario(**keys), topology=topology(*ports, rate="400Gbps"), level="packet")
    (total,) = received
    return total, run


@pytest.mark.parametrize(("model", "at_4096"), [("bmwg-cfg-a", 536_870_912), ("bmwg-cfg-d", 671_088_640)])
def test_the_kv_cache_on_the_wire_is_that_of_the_draft(
    monkeypatch: pytest.MonkeyPatch, model: str, at_4096: int
) -> None:
    requests = {"rate": 50, "count": 1, "input": 4096, "output": 2}
    received, run = wire_payload_bytes(monkeypatch, model=model, requests=requests)
    assert received == run.figures.kv_bytes == at_4096


def test_dispatch_and_combine_on_the_wire_are_those_of_the_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """M1: a token goes to two experts, as 4,096 values of two bytes; of four GPUs three are others."""
    received, run = wire_payload_bytes(
        monkeypatch,
        model="bmwg-m1",
        prefill={"instances": 1, "tp": 4},
        decode={"instances": 1, "tp": 4, "ep": 4},
        requests={"rate": 50, "count": 1, "input": 16, "output": 2},
    )
    exchanges = run.records.exchange_bytes.tolist()
    assert set(exchanges) == {2 * 4096 * 2 * 3 // 4}
    assert len(exchanges) == 2 * 2 * 61  # dispatch and combine, two steps, all layers
    assert received == run.figures.kv_bytes + sum(exchanges)


def test_nothing_begins_before_the_queue_pairs_have_been_probed() -> None:
    """The first transfer is due after a microsecond, and a probe takes longer."""
    compute = {"prefill": ["1 1us"], "decode": ["1 1ms"]}
    run = served(scenario(compute=compute, kv=PUSHED_AFTER), topology=topology("p/0", "d/0"), level="packet")
    assert run.failure == ""
    assert column(run, "prefill_end_ns")[0] == column(run, "kv_start_ns")[0] == 1_000
    assert run.figures.finished == 12


def test_a_slow_link_of_one_instance_shows_in_the_transfers_to_it_alone() -> None:
    ports = ("p/0", "d0/0", "d1/0")
    fast = served(_two_decoders(), topology=topology(*ports), level="flow")
    by_decode = _transfers(fast)
    assert by_decode[0] == pytest.approx(by_decode[1], rel=0.01)
    rig = {
        "security": {"insecure": True},
        "agents": [
            {"name": name, "ports": [{"name": "0", "addresses": f"10.0.{row}.1", "link": "100Gbps"}]}
            for row, name in enumerate(("p", "d0", "d1"))
        ],
    }
    cables = {
        "leaf_spine": {
            "leaves": [{"ports": ["p/0", "d0/0"]}, {"ports": ["d1/0"]}],
            "rate": "100Gbps",
            "uplink_rate": "10Gbps",
        }
    }
    run = served(_two_decoders(), rig, topology=cables, level="flow")
    slowed = _transfers(run)
    assert slowed[0] == pytest.approx(by_decode[0], rel=0.02)
    assert slowed[1] == pytest.approx(10 * by_decode[1], rel=0.05)
    assert set(column(run, "prefill_ns")) == {5_000_000}
    assert set(column(run, "decode_ns")) == {1_000_000}


def _two_decoders() -> dict[str, Any]:
    return scenario(decode={"instances": 2}, router="round_robin", kv=PUSHED_AFTER)


def _transfers(run: etloop.ServingRun) -> dict[int, float]:
    transfers: dict[int, list[int]] = {0: [], 1: []}
    for decode, took_ns in zip(column(run, "decode"), column(run, "transfer_ns"), strict=True):
        transfers[decode].append(took_ns)
    return {decode: float(np.median(took)) for decode, took in transfers.items()}


def test_transfers_of_eight_instances_to_one_share_its_link_at_both_levels() -> None:
    """Incast: eight prompts at once, pushed after the prefill, over one link of 100 Gb/s."""
    load = scenario(
        prefill={"instances": 8},
        router="round_robin",
        kv=PUSHED_AFTER,
        requests={"rate": 1_000_000, "count": 8, "input": 8, "output": 2, "arrivals": "constant"},
    )
    ports = topology(*(f"p{number}/0" for number in range(8)), "d/0")
    load["transport"] = {"cc": {"algorithm": "none"}}
    ports["single"]["switch"] = {"preset": "lossless"}
    last = {}
    for level in ("packet", "flow"):
        run = served(load, topology=ports, level=level)
        last[level] = max(column(run, "kv_end_ns")) - min(column(run, "kv_start_ns"))
    shared_ns = 8 * 8 * ONE_TOKEN * (4096 + 82) / 4096 / LINK_BYTES_PER_S * 1e9
    assert last["flow"] == pytest.approx(shared_ns, rel=0.05)
    assert last["packet"] == pytest.approx(shared_ns, rel=0.05)


def test_parts_add_up_requests_are_accounted_for_and_little_holds(tmp_path: Path) -> None:
    load = scenario(
        model="mixtral-8x7b",
        prefill={"instances": 1, "tp": 2},
        decode={"instances": 1, "ep": 2, "sequences": 2},
        requests={"rate": 400, "count": 40, "input": "16-64", "output": "1-4", "seed": 3},
        slo={"ttft": "100ms"},
    )
    load["verdict"] = {"checks": [{"check": "refused == 0"}, {"check": "max(requests.ttft_ns) < 1us"}]}
    out = tmp_path / "run"
    run = served(load, topology=topology("a/0", "b/0", "c/0", "d/0"), level="flow", out_dir=out)
    figures = run.figures
    assert figures.arrived == figures.finished + figures.running + figures.refused == 40
    assert sorted(column(run, "request")) == list(range(40))
    totals = np.sum([column(run, name) for name in TTFT_PARTS], axis=0)
    assert totals.tolist() == column(run, "ttft_ns")
    assert min(column(run, "decode_fabric_ns")) > 0
    assert run.verdict is not None
    assert [outcome.result for outcome in run.verdict.checks] == ["pass", "fail"]
    table = pq.read_table(out / "requests.parquet")
    assert table.column_names == list(REQUEST_COLUMNS)
    assert table.num_rows == 40
    assert json.loads((out / "serving.json").read_text())["finished"] == 40
    assert "modelled, not measured" in (out / "report.html").read_text()


def test_the_same_inputs_give_the_same_run_next_to_background_traffic() -> None:
    load = scenario(kv={"direction": "pull", "unit": "layer", "layers": 8})
    load["background"] = [{"name": "noise", "incast": {"senders": 1, "size": "64KiB", "period": "1ms"}}]
    ports = topology("a/0", "b/0", "c/0", "d/0")
    runs = [served(load, topology=ports, level="packet", seed=4) for _ in range(2)]
    assert runs[0].figures == runs[1].figures
    assert runs[0].figures.finished == 12


def beside_training() -> dict[str, Any]:
    """Return a scenario of a training job on the same two ports, which is busy for the first 12 of 24 requests or so."""
    collective = {"kind": "all_reduce", "ranks": 2, "size": "8MiB", "count": 3, "compute": "1ms"}
    training = {"name": "training", "workload": {"collective": collective}, "iterations": 50, "start": "3ms"}
    requests = {"rate": 50, "count": 24, "input": 64, "output": 3}
    chat = {"name": "chat", **scenario(kv=PUSHED_AFTER, requests=requests)}
    return {"jobs": [training, chat], "mapping": {"ranks_per_host": 1, "placement": "round_robin"}}


def test_a_training_job_shares_the_ports_while_it_lasts_and_has_its_own_figures() -> None:
    ports, both, alone = topology("p/0", "d/0"), beside_training(), beside_training()
    both["verdict"] = {"checks": [{"check": "max(jobs.iteration_most_ns) <= 8ms"}]}
    alone["jobs"][0]["iterations"] = 1
    run, by_flows = (served(both, topology=ports, level=level) for level in ("packet", "flow"))
    quiet = served(alone, topology=ports, level="flow")
    (training,), (by_flow,) = run.figures.jobs, by_flows.figures.jobs
    for job in (training, by_flow):
        assert (job.name, job.iterations, job.complete) == ("training", 50, 50)
    assert training.iteration is not None
    assert by_flow.iteration is not None
    for served_run in (run, by_flows):
        assert served_run.verdict is not None
        assert served_run.verdict.result == "pass"
    # Three times 1 ms and 8 MiB in each direction, over the whole rate, or half of it while a KV cache moves.
    exchange_ns = (8 << 20) * (4096 + 82) / 4096 / LINK_BYTES_PER_S * 1e9
    assert training.iteration.p50 == pytest.approx(3 * (1_000_000 + exchange_ns), rel=0.02)
    assert training.iteration.most > 1.03 * training.iteration.p50
    assert by_flow.iteration.p50 == pytest.approx(training.iteration.p50, rel=0.02)
    assert by_flow.iteration.mean == pytest.approx(training.iteration.mean, rel=0.02)
    assert training.end_ns == pytest.approx(3_000_000 + 50 * training.iteration.mean, rel=1e-6)
    during = np.array(column(quiet, "prefill_end_ns")) < training.end_ns
    assert 4 < during.sum() < 20
    for busy in (run, by_flows):
        slowed = np.array(column(busy, "transfer_ns")) / np.array(column(quiet, "transfer_ns"))
        assert slowed[during].max() > 1.2
        assert slowed[~during].max() < 1.02


def test_long_times_keep_columns_apart() -> None:
    assert [milliseconds(value) for value in (1_234_567, 11_360_000_000)] == ["1.235 ms", "11360 ms"]


@pytest.mark.parametrize(
    ("keys", "where", "problem"),
    [
        ({"model": "llama-3.1-405b"}, "prefill.tp", "GB of weights"),
        ({"model": "llama-4"}, "model", "is not a model"),
        (
            {"decode": {"instances": 1, "tp": 3}},
            "decode.tp",
            "8 heads of Llama-3.1-8B cannot be split over 3",
        ),
        ({"decode": {"instances": 1, "ep": 4}}, "decode.ep", "has no experts"),
        ({"decode": {"instances": 200, "tp": 8}}, "decode.instances", "1601 GPUs in all"),
        ({"decode": {}}, "decode.instances", "is missing"),
        ({"requests": {"rate": 1, "count": 10**9}}, "requests.count", "out of range"),
        ({"requests": {"rate": -1}}, "requests.rate", "is not a rate"),
        ({"requests": {"trace": "none.jsonl"}}, "requests", "No such file"),
        (
            {"requests": {"rate": 1e-6, "count": 1000}},
            "serving.requests",
            "the last request arrives after",
        ),
        ({"requests": {"rate": 1, "cv": 2}}, "requests.cv", "arrivals are poisson"),
        ({"kv": {"unit": "layer", "blocks": 2}}, "kv.blocks", "unit is layer"),
        ({"compute": {"prefill": ["5 1ms", "5 2ms"]}}, "compute.prefill", "do not rise"),
        ({"model": "bmwg-m1", "compute": {}}, "serving.compute", "no number of parameters"),
        ({"eviction": "lru"}, "serving.eviction", ""),
    ],
)
def test_mistakes_are_reported_at_their_key(keys: dict[str, Any], where: str, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        served(scenario(**keys), topology=topology("p/0", "d/0"), level="flow")
    assert any(where in found.where and problem in found.what for found in refused.value.problems), (
        refused.value
    )


def test_what_cannot_run_a_serving_workload_refuses_it_by_name(tmp_path: Path) -> None:
    ports = topology("p/0", "d/0")
    with pytest.raises(InputError, match="a serving workload has results of its own"):
        etloop.run_twin(scenario(), out_dir=tmp_path / "run", topology=ports)
    with pytest.raises(InputError, match="iterations of a serving workload"):
        served(scenario() | {"iterations": 2}, topology=ports)
    both = beside_training()
    rig = {
        "security": {"insecure": True},
        "agents": [
            {"name": name, "ports": [{"name": "0", "addresses": f"127.0.{row}.1", "link": "1Gbps"}]}
            for row, name in enumerate(("p", "d"), 1)
        ],
    }
    with pytest.raises(InputError, match="agents cannot run a serving workload with other jobs"):
        etloop.serve(both, rig, level="rig")
    training, chat = both["jobs"]
    for jobs, problem in [
        ([chat, chat | {"name": "b"}], "2 serving workloads"),
        ([training, chat | {"iterations": 2}], "2 iterations of a serving workload"),
        ([training, chat | {"start": "1ms"}], "a serving workload cannot start later"),
    ]:
        with pytest.raises(InputError, match=problem):
            served({"jobs": jobs}, topology=ports)
    with pytest.raises(InputError, match="a serving workload has no phases"):
        served(both | {"rounds": 2}, topology=ports)
    with pytest.raises(InputError, match="is not one of serving"):
        served({"workload": {"incast": {"senders": 1, "size": "1MiB"}}}, topology=ports)
    with pytest.raises(InputError, match="no figure is called ttft"):
        served(scenario() | {"verdict": {"checks": [{"check": "ttft < 1s"}]}}, topology=ports)

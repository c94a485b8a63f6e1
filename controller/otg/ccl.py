"""`ccl` of an OTG configuration, the collectives of pull request 490 of its models -> a job. Pure.

Gigabits and megabits are bits, all other units bytes; all are powers of 1,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from etloop.contract.base.clock import NS_PER_MS
from etloop.controller.otg.collective_model import (
    MOST_ITERATIONS,
    MOST_RANKS,
    MOST_SIZE_BYTES,
    MOST_STEPS,
    PATH_MTUS,
    CollectiveJob,
    Operation,
    Proposal,
    Step,
    StepTransport,
)
from etloop.controller.otg.fields import Fields
from etloop.controller.otg.options import UNMARKED_ECN_NAMES
from etloop.workload.trace.trace import CollectiveKind

UNIT_BITS: Final = {
    "gigabit": 10**9,
    "gigabyte": 8 * 10**9,
    "megabit": 10**6,
    "megabyte": 8 * 10**6,
    "kilobyte": 8 * 10**3,
}
PHASES: Final = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "all_gather": CollectiveKind.ALL_GATHER,
}
ALGORITHMS: Final = {
    ("ring_allreduce", "allreduce"): "ring",
    ("ring_allreduce", "reduce_scatter"): "ring",
    ("ring_allreduce", "all_gather"): "ring",
    ("halving_doubling", "allreduce"): "halving_doubling",
    ("halving_doubling", "reduce_scatter"): "halving_doubling",
    ("dual_tree", "allreduce"): "tree",
}
"""Algorithm and phase -> ETLoop's name; `all_to_all_direct` has no phases."""
_NO_INTERVALS: Final = 1 << 20
"""Longest interval in milliseconds."""
_WHOLE_CHUNKS_KB: Final = 4_194_304


def read_ccl(root: Fields, ends: Mapping[str, tuple[str, str]]) -> CollectiveJob:
    """Return the job of `$.ccl`; `ends` has OTG port and address by name of the device. Mistakes go to the notes of `root`."""
    ccl = root.child("ccl")
    ccl.text("name")
    ccl.choice("transport", ("rocev2",), "rocev2")
    ccl.choice("send_mode", ("async",), "async")
    ccl.choice("stage_mode", ("sequential",), "sequential")
    loops = ccl.integer("stage_loop_count", 1, MOST_STEPS, 1)
    # Without effect in the modes that are carried out.
    ccl.skip("sync_rank_interval_ms", "llm_index")
    for key in ("iteration_recording", "tail_latency_recording", "tail_latency_cdf"):
        recording = ccl.child(key)
        if recording.flag("enable", False):
            ccl.refuse(key, "records are not offered", "leave it out, or write enable: false")
    addresses: dict[str, str] = {}
    stages = [
        _read_stage(stage, index, ends, addresses) for index, stage in enumerate(ccl.children("stages"))
    ]
    if not stages:
        ccl.refuse("stages", "there is no stage", "write one stage with one communicator")
    if len(stages) * loops > MOST_STEPS:
        ccl.refuse(
            "stages", f"{len(stages) * loops} stages of all loops are more than {MOST_STEPS}", "write fewer"
        )
        loops = 1
    ccl.refuse_others()
    return CollectiveJob(Proposal.CCL, tuple(stages) * loops, addresses)


def _read_stage(
    stage: Fields, index: int, ends: Mapping[str, tuple[str, str]], addresses: dict[str, str]
) -> Step:
    name = stage.text("name")
    duration = stage.child("duration")
    duration.choice("choice", ("fixed_iterations",), "fixed_iterations")
    fixed = duration.child("fixed_iterations")
    iterations = fixed.integer("count", 1, MOST_ITERATIONS, 10)
    interval_ns = fixed.integer("interval_ms", 0, _NO_INTERVALS, 1000) * NS_PER_MS
    operations: list[Operation] = []
    transports: list[StepTransport] = []
    for communicator in stage.children("communicators"):
        own = communicator if communicator.has("algorithm") else stage
        kind, algorithm = _read_algorithm(own.child("algorithm"))
        operations.append(_read_operation(communicator, kind, algorithm, interval_ns, ends, addresses))
        transports.append(_read_transport(communicator.child("rocev2")))
        if transports[-1] != transports[0]:
            communicator.refuse(
                "rocev2", "communicators of a stage have several transports", "write the same for all"
            )
        communicator.skip("algorithm")
        communicator.refuse_others()
    if not operations:
        stage.refuse("communicators", "there is no communicator", "write one with at least two devices")
        transports.append(StepTransport(PATH_MTUS[-1], 1, 24, UNMARKED_ECN_NAMES["ect_1"], 49_152))
    if sum(len(operation.ports) for operation in operations) > MOST_RANKS:
        stage.refuse("communicators", f"they have more than {MOST_RANKS} ranks", "write fewer devices")
    for other in operations:
        if any(other.kind == entry.kind and other.algorithm != entry.algorithm for entry in operations):
            stage.refuse(
                "communicators", f"{other.kind.name.lower()} has two algorithms", "use one in a stage"
            )
            break
    for flow in stage.texts("bg_flow_names")[:1]:
        stage.refuse("bg_flow_names", f'"{flow[:64]}": flows at the same time are not offered', "remove it")
    stage.skip("algorithm")
    for fields in (fixed, duration, stage):
        fields.refuse_others()
    return Step(index, name, tuple(operations), iterations, transports[0])


def _read_algorithm(fields: Fields) -> tuple[CollectiveKind, str]:
    choices = (*dict.fromkeys(choice for choice, _ in ALGORITHMS), "all_to_all_direct")
    choice = fields.choice("choice", choices, "ring_allreduce")
    phase = fields.choice("phase", PHASES, "allreduce")
    fields.refuse_others()
    if choice == "all_to_all_direct":
        return CollectiveKind.ALL_TO_ALL, "direct"
    if (choice, phase) not in ALGORITHMS:
        fields.refuse("phase", f"{choice} has no {phase} alone", "write ring_allreduce, or phase: allreduce")
    return PHASES[phase], ALGORITHMS.get((choice, phase), "ring")


def _read_operation(
    communicator: Fields,
    kind: CollectiveKind,
    algorithm: str,
    interval_ns: int,
    ends: Mapping[str, tuple[str, str]],
    addresses: dict[str, str],
) -> Operation:
    ports: list[str] = []
    for device in communicator.texts("device_names"):
        if device not in ends:
            communicator.refuse(
                "device_names", f'no device "{device[:64]}" has an address', "write names of $.devices"
            )
            continue
        port, address = ends[device]
        if port in ports or addresses.setdefault(port, address) != address:
            communicator.refuse(
                "device_names", f"two devices of the job are on port {port}", "use one of a port"
            )
        ports.append(port)
    if len(ports) < 2:
        communicator.refuse("device_names", "fewer than two ranks", "write at least two devices")
    generation = communicator.child("generation")
    size_bits = generation.integer("data_size", 1, MOST_SIZE_BYTES, 160)
    size_bits *= UNIT_BITS[generation.choice("data_size_unit", UNIT_BITS, "gigabit")]
    size_bytes = size_bits // 8
    if size_bytes > MOST_SIZE_BYTES:
        generation.refuse("data_size", f"{size_bytes} bytes are more than 1 TiB", "write less")
    compute_ns = 0
    if generation.has("compute_gap"):
        gap = generation.child("compute_gap")
        gap.choice("choice", ("fixed",), "fixed")
        fixed = gap.child("fixed")
        compute_ns = fixed.integer("ms", 0, _NO_INTERVALS, 200) * NS_PER_MS
        for fields in (fixed, gap):
            fields.refuse_others()
    scheduling = generation.child("qp_scheduling")
    scheduling.choice("choice", ("continuous",), "continuous")
    scheduling.skip("continuous")
    for fields in (scheduling, generation):
        fields.refuse_others()
    gap_ns = interval_ns + compute_ns
    name = communicator.text("name")
    return Operation(name, kind, algorithm, tuple(ports), size_bytes, gap_ns, compute_ns)


def _read_transport(policy: Fields) -> StepTransport:
    policy.choice("encapsulation", ("ipv4",), "ipv4")
    connection_type = policy.child("connection_type")
    connection_type.choice("choice", ("reliable_connection",), "reliable_connection")
    connection = connection_type.child("reliable_connection")
    dscp = connection.integer("dscp", 0, 63, 24)
    ecn = UNMARKED_ECN_NAMES[connection.choice("ecn", UNMARKED_ECN_NAMES, "ect_1")]
    source_port = connection.integer("start_udp_src_port", 1, 65_535, 49_152)
    if connection.integer("start_qp_number", 0, (1 << 32) - 1, 0):
        connection.warn("start_qp_number", "has no effect: ETLoop assigns numbers of queue pairs")
    ib_mtu_bytes = policy.integer("ib_mtu", PATH_MTUS[0], PATH_MTUS[-1], PATH_MTUS[-1])
    path_mtu_bytes = max(size for size in PATH_MTUS if size <= ib_mtu_bytes)
    if path_mtu_bytes != ib_mtu_bytes:
        policy.warn("ib_mtu", f"{ib_mtu_bytes} is clamped to {path_mtu_bytes}, a path MTU of InfiniBand")
    queue_pairs = policy.integer("qps_per_peer", 1, 64, 1)
    if source_port + queue_pairs > 1 << 16:
        connection.refuse(
            "start_udp_src_port", f"{queue_pairs} ports from it end above 65535", "write a lower one"
        )
    if policy.integer("chunk_size_kb", 1, _WHOLE_CHUNKS_KB, _WHOLE_CHUNKS_KB) != _WHOLE_CHUNKS_KB:
        policy.warn("chunk_size_kb", "has no effect: messages are cut as the algorithm does")
    for fields in (connection, connection_type, policy):
        fields.refuse_others()
    return StepTransport(path_mtu_bytes, queue_pairs, dscp, ecn, source_port)

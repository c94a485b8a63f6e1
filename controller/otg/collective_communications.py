"""`collective_communications` of an OTG configuration, the collectives of pull request 491 of its models -> a job. Pure.

A rank's address is that of the Ethernet interface to which its NIC is bound; DSCP, ECN and path MTU are those of the RoCEv2
queue pairs there, as the proposal has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from etloop.contract.base.clock import NS_PER_MS
from etloop.controller.otg.collective_model import (
    MOST_ITERATIONS,
    MOST_RANKS,
    MOST_SIZE_BYTES,
    MOST_STEPS,
    CollectiveJob,
    Operation,
    Proposal,
    Step,
    StepTransport,
)
from etloop.controller.otg.fields import Fields
from etloop.controller.otg.model import QueuePair
from etloop.controller.otg.options import UNMARKED_ECN_NAMES
from etloop.workload.trace.trace import CollectiveKind

ALGORITHMS: Final = {
    "all_to_all_parallel": (CollectiveKind.ALL_TO_ALL, "direct"),
    "all_reduce_unidirectional_ring": (CollectiveKind.ALL_REDUCE, "ring"),
    "all_reduce_bidirectional_ring": (CollectiveKind.ALL_REDUCE, "bidirectional_ring"),
    "all_reduce_vector_halving_doubling": (CollectiveKind.ALL_REDUCE, "halving_doubling"),
    "all_reduce_double_binary_tree": (CollectiveKind.ALL_REDUCE, "tree"),
    "all_gather_ring": (CollectiveKind.ALL_GATHER, "ring"),
    "reduce_scatter_ring": (CollectiveKind.REDUCE_SCATTER, "ring"),
    "gather_parallel": (CollectiveKind.GATHER, "linear"),
}
"""System algorithm -> kind, and ETLoop's name; the others are refused."""
_WHOLE_MESSAGES_BYTES: Final = 131_072
_MOST_HOSTS: Final = 8192
_Place: TypeAlias = tuple[str, int, str, int]
"""A device and component, as an infrastructure_ref names them."""


def read_communications(
    root: Fields, ends: Mapping[str, tuple[str, str]], queue_pairs: Iterable[QueuePair]
) -> CollectiveJob:
    """Return the job of `$.collective_communications`; `ends` has OTG port and address by name of the Ethernet interface.

    Mistakes go to the notes of `root`.
    """
    fields = root.child("collective_communications")
    workload = fields.child("workload")
    workload.choice("choice", ("single_collective",))
    single = workload.child("single_collective")
    kind, label, algorithm = _read_algorithm(single)
    sizes = _read_sizes(single.child("datasizes"))
    iterations = single.integer("iterations", 1, MOST_ITERATIONS, 1)
    gap_ns = single.integer("iteration_append_delay", 0, 10_000, 100) * NS_PER_MS
    queue_pairs_of_pair = _read_transport(single.child("transport"))
    _check_infrastructure(fields.child("infrastructure"))
    bindings = fields.child("bindings")
    bindings.choice("choice", ("basic_binding",), "basic_binding")
    basic = bindings.child("basic_binding")
    ports, addresses = _read_ranks(basic, ends)
    transport = _transport_of(basic, ports, queue_pairs_of_pair, {pair.port: pair for pair in queue_pairs})
    basic.ignore(physical_bindings="ports are those of the rig")
    fields.ignore(
        platforms="there is one platform, the agents of the rig", result_info="results have no description"
    )
    fields.skip("result_info")
    for part in (single, workload, basic, bindings, fields):
        part.refuse_others()
    steps = tuple(
        Step(
            index, label, (Operation(label, kind, algorithm, ports, size, gap_ns, 0),), iterations, transport
        )
        for index, size in enumerate(sizes)
    )
    return CollectiveJob(Proposal.COMMUNICATIONS, steps, addresses)


def _read_algorithm(single: Fields) -> tuple[CollectiveKind, str, str]:
    """Return kind, the client's name and ETLoop's name of the algorithm."""
    algorithm = single.child("collective_algorithm")
    kind_fields = algorithm.child("algorithm_type")
    kind_fields.choice("choice", ("system",), "system")
    label = kind_fields.choice("system", ALGORITHMS, "all_to_all_parallel")
    for fields in (kind_fields, algorithm):
        fields.refuse_others()
    kind, name = ALGORITHMS[label]
    return kind, label, name


def _read_sizes(datasizes: Fields) -> tuple[int, ...]:
    """Return the sizes in bytes, one after the other."""
    choice = datasizes.choice("choice", ("list", "multiplier"), "list")
    listed, multiplied = datasizes.child("list"), datasizes.child("multiplier")
    if choice == "list":
        sizes = [_size(listed, value) for value in listed.items("size_bytes")] or [1 << 30]
    else:
        size = multiplied.integer("start", 1, MOST_SIZE_BYTES, 128 << 20)
        factor = multiplied.integer("multiplier", 2, 1 << 20, 2)
        end = multiplied.integer("end", 1, MOST_SIZE_BYTES, 4 << 30)
        sizes = []
        while size <= end:
            sizes.append(size)
            size *= factor
        if not sizes:
            multiplied.refuse("end", "there is no size from start to end", "write an end of at least start")
    if len(sizes) > MOST_STEPS:
        datasizes.refuse("list", f"{len(sizes)} sizes are more than {MOST_STEPS}", "write fewer")
    for fields in (listed if choice == "list" else multiplied, datasizes):
        fields.skip("list", "multiplier")
        fields.refuse_others()
    return tuple(sizes[:MOST_STEPS])


def _size(listed: Fields, value: object) -> int:
    if (
        isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and len(value) <= len(str(MOST_SIZE_BYTES))
    ):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SIZE_BYTES:
        return value
    listed.refuse(
        "size_bytes", f"{str(value)[:64]} is not a size", f"write whole numbers from 1 to {MOST_SIZE_BYTES}"
    )
    return 1


def _read_transport(transport: Fields) -> int:
    """Return the queue pairs of each pair of ranks."""
    transport.choice("choice", ("rocev2",), "rocev2")
    rocev2 = transport.child("rocev2")
    if rocev2.integer("rdma_message_size", 1, (1 << 32) - 1, _WHOLE_MESSAGES_BYTES) != _WHOLE_MESSAGES_BYTES:
        rocev2.warn("rdma_message_size", "has no effect: messages are cut as the algorithm does")
    rocev2.choice("verb", ("write",), "write")
    if not rocev2.flag("reuse_qps", True):
        rocev2.refuse("reuse_qps", "queue pairs of a run carry all its messages", "write reuse_qps: true")
    negotiation = rocev2.child("qp_negotiation")
    negotiation.choice("choice", ("automatic",), "automatic")
    queue_pairs = rocev2.integer("qps_per_rankpair", 1, 64, 1)
    for fields in (negotiation, rocev2, transport):
        fields.refuse_others()
    return queue_pairs


def _check_infrastructure(infrastructure: Fields) -> None:
    """Refuse what is not hosts of one XPU each around a fabric that is not described."""
    infrastructure.choice("choice", ("high_level",), "high_level")
    high_level = infrastructure.child("high_level")
    high_level.text("name", "infrastructure")
    config = high_level.child("config")
    hosts, fabric = config.child("hosts"), config.child("fabric")
    hosts.choice("choice", ("uniform",), "uniform")
    uniform = hosts.child("uniform")
    uniform.integer("count", 1, _MOST_HOSTS, 4)
    host = uniform.child("host")
    host.choice("choice", ("generic",), "generic")
    generic = host.child("generic")
    generic.text("name", "host")
    generic.skip("xpu_interconnect_bandwidth_gbps")
    if generic.integer("xpu_count", 1, _MOST_HOSTS, 1) != 1:
        generic.refuse("xpu_count", "hosts of several XPUs are not offered", "write one, and more hosts")
    fabric.choice("choice", ("blackbox",), "blackbox")
    fabric.skip("blackbox")
    for fields in (generic, host, uniform, hosts, fabric, config, high_level, infrastructure):
        fields.refuse_others()


def _read_ranks(basic: Fields, ends: Mapping[str, tuple[str, str]]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the OTG port of each rank, and the address of each port."""
    ethernet_of_nic: dict[_Place, str] = {}
    for binding in basic.children("nic_bindings"):
        ethernet = binding.text("ethernet_name")
        if ethernet not in ends:
            remedy = "write the name of an Ethernet interface of $.devices"
            binding.refuse("ethernet_name", f'no interface "{ethernet[:64]}" has an address', remedy)
        ethernet_of_nic[_place(binding.child("infrastructure_ref"))] = ethernet
        binding.refuse_others()
    port_of_rank: dict[int, str] = {}
    addresses: dict[str, str] = {}
    for binding in basic.children("rank_bindings"):
        rank = binding.integer("rank_id", 0, MOST_RANKS - 1, 0)
        binding.skip("infrastructure_ref")
        nics = [_place(nic) for nic in binding.children("nic_refs")]
        port, address = ends.get(ethernet_of_nic.get(nics[0], "") if len(nics) == 1 else "", ("", ""))
        if not port:
            binding.refuse(
                "nic_refs", "they do not name one bound NIC", "write one NIC of nic_bindings for each rank"
            )
        elif rank in port_of_rank or port in addresses:
            binding.refuse("rank_id", f"rank {rank} or its port {port} is bound twice", "bind each once")
        port_of_rank[rank], addresses[port] = port, address
        binding.refuse_others()
    if sorted(port_of_rank) != list(range(max(len(port_of_rank), 2))):
        basic.refuse(
            "rank_bindings", "ranks are not 0, 1 and so on", "bind at least two ranks, numbered from 0"
        )
    return tuple(port_of_rank[rank] for rank in sorted(port_of_rank)), addresses


def _place(reference: Fields) -> _Place:
    place = (
        reference.text("device_instance_name", "-"),
        reference.integer("device_index", 0, _MOST_HOSTS, 0),
        reference.text("component_name", "-"),
        reference.integer("component_index", 0, _MOST_HOSTS, 0),
    )
    reference.refuse_others()
    return place


def _transport_of(
    basic: Fields, ports: tuple[str, ...], queue_pairs: int, pair_of_port: Mapping[str, QueuePair]
) -> StepTransport:
    """Return the transport of the RoCEv2 queue pairs on the ports of ranks, which must have the same."""
    transports = {
        StepTransport(pair.path_mtu_bytes, queue_pairs, pair.dscp, pair.ecn, pair.udp_source_port)
        for port in ports
        if (pair := pair_of_port.get(port)) is not None
    }
    if any(port and port not in pair_of_port for port in ports):
        remedy = "give its device a rocev2 interface with a queue pair"
        basic.refuse("nic_bindings", "a NIC without RoCEv2 runs TCP, which is not offered", remedy)
    elif len(transports) > 1:
        basic.refuse(
            "nic_bindings", "NICs have several transports", "write the same MTU, DSCP, ECN and port for all"
        )
    elif any(transport.ecn not in UNMARKED_ECN_NAMES.values() for transport in transports):
        basic.refuse("nic_bindings", "NICs send data with ecn ce", "write ect_0, ect_1 or non_ect for them")
    return min(transports, key=repr, default=StepTransport(1024, queue_pairs, 24, 1, 49_152))

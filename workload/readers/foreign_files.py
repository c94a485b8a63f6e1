"""Names files of the field other than traces, for error messages: what they are, and where they belong. Pure."""

from __future__ import annotations

import re
from typing import Final

_SCHEDULE: Final = "name it in a scenario, collectives: {all_reduce: {schedule: FILE}}"
_FLOWS: Final = "name it in a scenario, workload: {flows: FILE}"
_XML: Final = rb"\s*(<\?xml[^>]*>\s*)?"
_NAMED: Final = (
    (
        rb'\s*\{.*"collective"\s*:.*"(protocol|gpus|threadblocks|reuse_resources)"',
        f"an MSCCL++ execution plan, which is a schedule: {_SCHEDULE}",
    ),
    (_XML + rb"<algo\b", f"an MSCCL schedule: {_SCHEDULE}"),
    (_XML + rb"<system\b", "NCCL's topology of a host (NCCL_TOPO_DUMP_FILE), which has no job"),
    (_XML + rb"<graphs\b", "NCCL's graph of a host (NCCL_GRAPH_DUMP_FILE), which has no job"),
    (
        rb"\s*# n(Thread|threads)\b|.*#\s+out-of-place\s+in-place",
        "the output of nccl-tests, which has no job",
    ),
    (
        rb"\s*# (HELP|TYPE) nccl_",
        "Prometheus text of the NCCL Inspector: dump JSON (NCCL_INSPECTOR_PROM_DUMP=0)",
    ),
    (
        rb'\s*[\[{].*"comms"\s*:.*"(in_msg_size|dtype|world_size)"',
        "a trace of PARAM's replay, which is not supported: give the PyTorch execution trace",
    ),
    (
        rb'\s*\{.*"(input_length|output_length|prompt_len)"\s*:',
        "a trace of serving requests without transfers",
    ),
    (
        rb'\s*\{(?=.*"ports"\s*:).*"(devices|flows|stateful_flows)"\s*:',
        "a configuration of the Open Traffic Generator, not a trace",
    ),
    (rb'\s*\{.*"Communication Time Info"', "communication.json of Ascend's profiler: give trace_view.json"),
    (
        rb"[^\n]*Step Id,Device_id,|[^\n]*OP Type,OP State",
        "kernel_details.csv of Ascend's profiler: give trace_view.json",
    ),
    (
        rb"(src|from),(dst|to),|[a-z_,]*\bsrc\b[a-z_,]*\bdst\b[a-z_,]*\b(bytes|size)\b",
        f"a list of flows: {_FLOWS}",
    ),
    (rb"[0-9]+\r?\n([0-9]+ ){4,6}[0-9.]+", f"a flow file of HPCC's simulator: {_FLOWS}"),
    (rb"Nodes [0-9]+\r?\nConnections [0-9]+", "a connection matrix of htsim, which is not supported"),
)
_FILES: Final = tuple((re.compile(pattern, re.DOTALL), meaning) for pattern, meaning in _NAMED)


def identify(head: bytes) -> str | None:
    """Return what a file beginning with `head` is and where it belongs; None for an unknown one."""
    return next((meaning for pattern, meaning in _FILES if pattern.match(head)), None)

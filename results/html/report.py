"""report.html: one page of a run, without network access and without scripts: findings, device and verdict first, then details.

Decides the order of its sections. Figures come from kpis.json and the summary; templates escape everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.results.html.blocks import Block, Page, Section, Text
from etloop.results.html.detail import (
    again_blocks,
    collective_blocks,
    figure_blocks,
    flow_blocks,
    lane_blocks,
    slow_blocks,
)
from etloop.results.html.device import device_blocks, loss_blocks
from etloop.results.html.distribution import completion_plot, traffic_matrix
from etloop.results.html.findings import finding_blocks
from etloop.results.html.jobs import event_blocks, job_blocks
from etloop.results.html.lanes import port_colours, sampled_lanes
from etloop.results.html.network import network_picture
from etloop.results.html.overview import BADGES, head_facts, tiles, trust_blocks, verdict_blocks
from etloop.results.html.render import render
from etloop.results.html.timeline import timeline
from etloop.results.schema.device_facts import DeviceFacts

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.kpis import KpiSet
    from etloop.results.schema.summary import Summary


def report_html(
    inputs: KpiInput,
    kpis: KpiSet,
    summary: Summary,
    texts: tuple[str, str],
    facts: DeviceFacts,
    steps: tuple[str, ...] = (),
) -> str:
    """Return the page.

    `summary` has the verdict; `texts` are the contents of scenario and rig; `steps` are the commands that repeat the run
    in its directory, if it can be repeated.
    """
    lanes = sampled_lanes(inputs)
    colours = port_colours(inputs, lanes)
    scenario_text, rig_text = texts
    completion = completion_plot(
        ((distribution, False) for distribution in kpis.curves), "completion", "How long things took"
    )
    sections = (
        Section("findings", "Findings", finding_blocks(summary.diagnosis)),
        Section("topology", "Network", (network_picture(inputs, facts, colours),)),
        Section("verdict", "Verdict", verdict_blocks(summary)),
        Section("four", "Four figures", (tiles(kpis, summary),)),
        Section("jobs", "Jobs side by side", job_blocks(inputs, summary)),
        Section(
            "timeline",
            "Over time",
            _block_or_text(timeline(inputs, facts, lanes, colours), "Nothing crossed the device."),
        ),
        Section("events", "Links on the timeline", event_blocks(summary)),
        Section("queues", "Ports and queues", lane_blocks(inputs, colours)),
        Section("losses", "Losses", loss_blocks(summary)),
        Section("collectives", "Collectives", collective_blocks(kpis, summary)),
        Section("flows", "Flows by size", flow_blocks(summary.flow_sizes)),
        Section("times", "Completion", _block_or_text(completion, "Nothing completed.")),
        Section("slow", "What made it slow", slow_blocks(inputs, summary.slow_names)),
        Section(
            "traffic", "Traffic matrix", _block_or_text(traffic_matrix(inputs), "Nothing crosses the device.")
        ),
        Section("trust", "How trustworthy", trust_blocks(summary)),
        Section("device", "Counters of the device", device_blocks(summary)),
        Section("figures", "Key figures", figure_blocks(kpis)),
        Section("again", "Run it again", again_blocks(steps, scenario_text, rig_text)),
    )
    title = f"ETLoop run {summary.run_id}"
    work = summary.workload
    iterations_text = "1 iteration" if work.iterations == 1 else f"{work.iterations} iterations"
    subtitle = f"{work.ranks} ranks, {iterations_text} of {work.source}"
    badge = summary.result
    return render(Page(title, subtitle, badge.value, BADGES[badge], head_facts(summary, facts), sections))


def _block_or_text(block: Block | None, absent: str) -> tuple[Block, ...]:
    return (Text(absent, is_dim=True) if block is None else block,)

"""One table of counters: what is in it is everywhere that follows from it, and what follows is as it is written."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from etloop.contract.model.counters import (
    COUNTERS,
    AgentObject,
    Counter,
    CounterNature,
    CounterObject,
    CounterUse,
    counters_of,
)
from etloop.contract.model.records import FLOW_RECORD, PORT_RECORD, counter_fields
from etloop.contract.model.switch_counters import LANE_SAMPLE
from etloop.results.schema.columns import FLOW_COUNTERS, PORT_COUNTERS, counter_columns
from etloop.results.schema.summary import TRANSPORT_COUNTERS
from etloop.traffic import _native
from tests.support.places import ROOT
from tools.write_counters import FILES, metrics_page, native_header, summary_schema

if TYPE_CHECKING:
    import numpy as np

    from etloop.contract.model.counters import Owner

OWNERS: Final = (*AgentObject, *CounterObject)
PLANTED: Final = Counter(
    (AgentObject.QUEUE_PAIR,),
    "sighs_rx",
    "sighs",
    CounterNature.CUMULATIVE,
    "sighs received",
    CounterUse.SUMMED,
)


def with_one_more(counter: Counter) -> tuple[Counter, ...]:
    """The table with a counter amid those of its kind."""
    before = next(at for at, one in enumerate(COUNTERS) if counter.owners[0] in one.owners) + 1
    return (*COUNTERS[:before], counter, *COUNTERS[before:])


@pytest.mark.parametrize("owner", OWNERS)
def test_every_name_stands_once_in_words_of_its_own(owner: Owner) -> None:
    names = [one.name for one in counters_of(owner)]
    assert len(names) == len(set(names))
    assert all(one.unit and one.meaning == one.meaning.strip(" .") for one in counters_of(owner))


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_from_the_table_is_current(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert FILES[name](text, COUNTERS) == text, "run: .venv/bin/python tools/write_counters.py"


@pytest.mark.parametrize(("name", "layout"), [("queue_pair", FLOW_RECORD), ("agent_port", PORT_RECORD)])
def test_records_are_as_long_as_native_code_writes_them(name: str, layout: np.dtype[np.void]) -> None:
    assert _native.counter_sizes[name] == layout.itemsize


def test_a_counter_of_the_table_is_everywhere() -> None:
    table = with_one_more(PLANTED)
    counters = counters_of(AgentObject.QUEUE_PAIR, table=table)
    assert (PLANTED.name, "<i8") in counter_fields(counters), "the record"
    assert (PLANTED.name, PLANTED.unit) in [(one.name, one.unit) for one in counter_columns(counters)], (
        "Parquet"
    )
    header = native_header(table)
    fields = re.findall(r"(?m)^  FIELD\((\w+)\)", header.split("ETLOOP_PORT_COUNTERS", maxsplit=1)[0])
    assert fields[:2] == ["tx_messages", PLANTED.name], "the native record, in the same order"
    schema = json.loads(summary_schema((ROOT / "results/summary.schema.json").read_text(), table))
    transport = schema["properties"]["transport"]
    assert PLANTED.name in transport["required"]
    assert transport["properties"][PLANTED.name] == {"description": "Sighs received.", "type": "integer"}
    page = metrics_page((ROOT / "docs/metrics.md").read_text(encoding="utf-8"), table)
    assert f"| `{PLANTED.name}` | sighs | sighs received |" in page
    assert re.search(rf"Sums over flows\.parquet: [^.]*`{PLANTED.name}`", page)
    assert metrics_page(page, COUNTERS) == (ROOT / "docs/metrics.md").read_text(encoding="utf-8"), (
        "and gone again"
    )


def test_a_counter_that_is_not_summed_is_no_key_of_the_summary() -> None:
    table = with_one_more(replace(PLANTED, uses=CounterUse(0)))
    assert PLANTED.name not in summary_schema((ROOT / "results/summary.schema.json").read_text(), table)


def test_records_columns_and_sums_are_those_of_the_table() -> None:
    for owner, layout, columns in (
        (AgentObject.QUEUE_PAIR, FLOW_RECORD, FLOW_COUNTERS),
        (AgentObject.PORT, PORT_RECORD, PORT_COUNTERS),
    ):
        names = [one.name for one in counters_of(owner)]
        assert [one.name for one in columns] == names
        assert list(layout.names or ())[-len(names) :] == names
        assert set(TRANSPORT_COUNTERS[owner]) <= set(names)
    assert LANE_SAMPLE.itemsize == 104

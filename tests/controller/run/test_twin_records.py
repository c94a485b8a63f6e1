"""Tables of a twin's counters."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import etloop
from etloop.counters import source_log

SCENARIO = {"workload": {"collective": {"kind": "all_reduce", "size": "4KiB", "ranks": 2}}}
TOPOLOGY = {
    "switches": [{"name": "large"}],
    "attach": [{"port": f"{host}/p0", "to": f"large/{host}", "rate": "100Gbps"} for host in "ab"],
}


def test_a_network_with_more_counters_than_one_reading_has_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leaf-spine of 1,024 hosts has 376,880 counters."""
    monkeypatch.setattr(source_log, "MOST_READINGS", 250)
    etloop.run_twin(SCENARIO, topology=TOPOLOGY, out_dir=tmp_path / "run")
    names = pq.read_table(tmp_path / "run" / "counters.parquet")["port"].to_pylist()
    rows = Counter(name for name in names if name.startswith("large/"))
    assert rows.keys() == {"large/a", "large/b"}
    assert rows["large/a"] == rows["large/b"] > 125

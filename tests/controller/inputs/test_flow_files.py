"""Lists of flows and distributions of their sizes: what they may say, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.flow_files import (
    Flow,
    SizeDistribution,
    distribution_of,
    read_distribution,
    read_flow_list,
)
from etloop.controller.inputs.scenario.flows import MOST_FLOWS

CSV = "from,to,bytes,start_us\n0,1,1000,2.5\n1,0,20,0\n"
NS3 = "2\n2 1 3 100 200000000 2\n0 1 3 7 0.000001\n\nFirst line: # of flows\n"


def read(tmp_path: Path, text: str | bytes) -> tuple[Flow, ...]:
    path = tmp_path / "flows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_flow_list(path, "s.yaml:1")


@pytest.mark.parametrize(
    ("sentence", "text", "flows"),
    [
        ("flows stand in the order of their starts", CSV, (Flow(0, 1, 0, 20), Flow(2500, 0, 1, 1000))),
        (
            "columns have any order, remarks and empty lines mean nothing",
            "# of March\n\nstart_s, bytes ,to,from\n0.5,9,3,4\n",
            (Flow(500_000_000, 4, 3, 9),),
        ),
        (
            "a spreadsheet's mark at the begin means nothing",
            "\ufeff" + CSV,
            (Flow(0, 1, 0, 20), Flow(2500, 0, 1, 1000)),
        ),
        (
            "a list of ns-3's, with a port or without, and text behind it",
            NS3,
            (Flow(1000, 0, 1, 7), Flow(2_000_000_000, 2, 1, 200_000_000)),
        ),
    ],
)
def test_lists_are_read(tmp_path: Path, sentence: str, text: str, flows: tuple[Flow, ...]) -> None:
    assert read(tmp_path, text) == flows, sentence


@pytest.mark.parametrize(
    ("sentence", "text", "expected"),
    [
        ("nothing", "", "flows.csv: lists no flow; write a line for each"),
        ("names alone", "from,to,bytes,start_ns\n", "lists no flow"),
        (
            "no names",
            "a,b\n1,2\n",
            "flows.csv:1: the columns a, b lack from, to, bytes; write the names first",
        ),
        ("no start", "from,to,bytes\n", "lack one of start_ns, start_us, start_s"),
        ("two starts", "from,to,bytes,start_ns,start_s\n", "lack one of start_ns, start_us, start_s"),
        ("a name that means nothing", "from,to,bytes,start_ns,colour\n", 'unknown column "colour"'),
        ("a name twice", "from,to,bytes,start_ns,to\n", "a column is named twice"),
        (
            "a value too few",
            CSV + "1,2,3\n",
            "flows.csv:4: got 3 values for 4 columns; write one value for each column",
        ),
        (
            "a host that is no number",
            CSV + "x,2,3,4\n",
            'flows.csv:4: "x" is not a host; write a whole number from 0 to 1023',
        ),
        ("a host out of bounds", CSV + "1024,2,3,4\n", '"1024" is not a host'),
        (
            "no bytes",
            CSV + "1,2,0,4\n",
            '"0" is not a size in bytes; write a whole number from 1 to 1099511627776',
        ),
        (
            "a host that sends to itself",
            CSV + "2,2,3,4\n",
            "flows.csv:4: host 2 sends to itself; name two hosts",
        ),
        (
            "a start before the begin",
            CSV + "1,2,3,-4\n",
            '"-4" is not start_us; write a number from 0 to 3600000000',
        ),
        ("a start that is none", CSV + "1,2,3,nan\n", '"nan" is not start_us'),
        ("a start that never comes", CSV + "1,2,3,1e999\n", '"1e999" is not start_us'),
        (
            "fewer flows than the first line says",
            "3\n0 1 3 9 0\n",
            "flows.csv:1: the first line announces 3 flows, got 1",
        ),
        (
            "a flow of ns-3's with four values",
            "1\n0 1 3 9\n",
            "flows.csv:2: got 4 values, expected 5 or 6",
        ),
        (
            "more flows than are planned",
            "70000\n",
            f'"70000" is not the number of flows; write a whole number from 1 to {MOST_FLOWS}',
        ),
        ("no text", b"\xff\xfe\x00", "is not UTF-8 text; save it as UTF-8"),
        ("more lines than flows", "\n" * (2 * MOST_FLOWS + 1), f"has more than {2 * MOST_FLOWS} lines"),
        (
            "a field without an end",
            'from,to,bytes,start_ns\n"' + "1" * 200_000,
            "is not CSV: field larger than field limit",
        ),
    ],
)
def test_lists_are_refused_with_their_line(
    tmp_path: Path, sentence: str, text: str | bytes, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert expected in str(caught.value), sentence


def test_a_file_that_is_not_there_is_named_where_the_scenario_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"s\.yaml:1: .*flows\.csv cannot be read: No such file"):
        read_flow_list(tmp_path / "flows.csv", "s.yaml:1")
    with pytest.raises(ConfigError, match=r"s\.yaml:1: .* is not a regular file; name one"):
        read_distribution(tmp_path, "s.yaml:1")


@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=200)
    | st.text('0123456789 ,\n.e-fromtbysa_#"', max_size=200)
)
def test_any_text_is_a_list_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    try:
        flows = read(tmp_path_factory.mktemp("any"), text)
    except ConfigError:
        return
    assert flows == tuple(sorted(flows))
    assert all(flow.source != flow.destination and flow.size_bytes > 0 for flow in flows)


def test_sizes_between_two_points_are_equally_likely() -> None:
    sizes = distribution_of(["100 50", "300,100"], "d")
    assert sizes == SizeDistribution((100, 300), (0.5, 1.0))
    assert [sizes.size_at(share) for share in (0.0, 0.5, 0.75, 1.0)] == [100, 100, 200, 300]
    assert sizes.mean_bytes == pytest.approx(0.5 * 100 + 0.5 * 200)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "d: does not rise to 100 percent; end with the largest size and 100"),
        (["10 50"], "does not rise to 100 percent"),
        (["0 100"], "does not rise to 100 percent"),
        (["10 50", "9 100"], "d:2: is below the point before; let sizes and shares rise"),
        (["10 50", "20 40"], "d:2: is below the point before"),
        (["10"], "d:1: got 1 values, expected 2; write BYTES PERCENT, such as 10000 15"),
        (["10 101"], 'd:1: "101" is not a share in percent; write a number from 0 to 100'),
        (["1.5 100"], 'd:1: "1.5" is not a size in bytes'),
        (["1 1"] * 5000, "more than 4096 points"),
    ],
)
def test_distributions_are_refused_with_their_line(lines: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        distribution_of(lines, "d")
    assert expected in str(caught.value)

"""Draw the pictures of the pages into docs/pictures: `python -m tools.draw_pictures [NAME ...]`, which `make pictures` calls.

Every picture shows output of the program. Most come from runs in virtual time, from a kept record or from the import rules:
`sources` computes their text anew within seconds, and tests/docs/test_pictures.py compares it with docs/pictures/record.json.
Two show a run in real time (LIVE); their record is of the files that lay out the page.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from etloop.cli.main import main as etloop
from etloop.results.html.blocks import LegendEntry, Page, Section
from etloop.results.html.render import render
from etloop.results.html.rows import Dot, Row, row_chart
from tests.repo.test_architecture import MAY_IMPORT
from tests.support.browser import take_picture

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURES: Final = ROOT / "docs" / "pictures"
RECORD: Final = PICTURES / "record.json"
WIDTH: Final = 1000
TOPOLOGY: Final = ROOT / "examples" / "interference" / "topology.yaml"
SCENARIO: Final = """\
workload: {trace: job}
iterations: 2
mapping: {placement: round_robin}
transport: {cc: {algorithm: dcqcn, series: {interval: 1ms}}}
verdict:
  checks:
    - {check: lost_packets == 0, why: the class is lossless}
    - {check: jct_ratio <= 2, why: at most twice the ideal network}
"""
"""Scenario with a training step of 8 ranks, on two leaves and one spine."""
LOSSY: Final = "leaf: {preset: lossy, faults: [{chance: 0.1%}]}"
"""Switches without pauses that lose one packet in a thousand."""
VERDICTS: Final = (0, 20, 30)
"""Exit codes of runs that came to their end."""
_ROW_PX: Final = 20
_PACKET: Final = re.compile(r"^ *([\d.]+) - ([\d.]+):\d+ > [\d.]+ +(.*?)  \d+ B ")
_HIDDEN: Final = re.compile(r"<(style|title|desc|script)\b.*?</\1>|<dt>begun</dt><dd>[^<]*</dd>", re.DOTALL)
_FONT: Final = 'font-family="sans-serif" font-size="12"'


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of a part of a page that a run in virtual time wrote."""

    page: str
    """Path of the page in the working directory."""
    selectors: tuple[str, ...]
    """CSS selectors of the elements that the picture spans."""


SHOTS: Final[Mapping[str, Shot]] = {
    "report": Shot("lossless/report.html", ("header", "section[aria-labelledby=four]")),
    "topology": Shot("lossless/report.html", ("#network",)),
    "timeline": Shot("lossless/report.html", ("section[aria-labelledby=timeline]",)),
    "compare": Shot("compare.html", ("header", "section[aria-labelledby=changes-of]")),
    "nic-profile": Shot("card/nic.html", ("header", "main > section:nth-of-type(1) tr:nth-of-type(20)")),
    "twin-lab": Shot("twin-lab.html", ("#twin-lab",)),
}
LIVE: Final[Mapping[str, tuple[str, ...]]] = {
    "live": ("cli/live_page.html",),
    "rack": ("controller/rack/transfers/live_page.py", "controller/rack/transfers/run_pages.py"),
}
"""Pictures of processes in real time, and the files that lay out what they show."""
DRAWN: Final = ("architecture", "packet-walk")
"""Pictures that are SVG of their own."""


def work(place: Path) -> None:
    """Run the program in virtual time and leave the pages that are shown in `place`."""
    with (
        contextlib.chdir(place),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        command(["synth", "job", "--layers", "1", "--sequence", "256", "--hidden", "256"])
        Path("scenario.yaml").write_text(SCENARIO, encoding="utf-8")
        topology = TOPOLOGY.read_text(encoding="utf-8")
        Path("lossless.yaml").write_text(topology, encoding="utf-8")
        Path("lossy.yaml").write_text(topology.replace("  rate:", f"  {LOSSY}\n  rate:"), encoding="utf-8")
        for name in ("lossless", "lossy"):
            command(["twin", "scenario.yaml", "--topology", f"{name}.yaml", "--out", name])
        command(["compare", "lossless", "lossy", "--html", "compare.html"])
        command(["nic", "profile", "--simulated", "7", "--out", "card", "--beside", "connectx-7"])
        capture = io.StringIO()
        with contextlib.redirect_stdout(capture):
            command(["capture", "card/retransmission.pcapng"])
        Path("walk.txt").write_text(capture.getvalue(), encoding="utf-8")
        Path("twin-lab.html").write_text(twin_lab_page(), encoding="utf-8")


def command(words: list[str]) -> None:
    """Run a command of ETLoop in this process. Raises RuntimeError unless it ends with a verdict."""
    code = etloop(words)
    if code not in VERDICTS:
        raise RuntimeError(f"etloop {' '.join(words)} ended with {code}")


def sources(place: Path) -> dict[str, str]:
    """Return the text that each picture shows, from the pages that `work` left in `place`."""
    texts = {
        name: visible_text((place / shot.page).read_text(encoding="utf-8")) for name, shot in SHOTS.items()
    }
    files = {name: "".join((ROOT / file).read_text(encoding="utf-8") for file in LIVE[name]) for name in LIVE}
    return texts | files | drawn_sources(place)


def visible_text(page: str) -> str:
    """Return the words of a page in HTML, without the time of the run."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", _HIDDEN.sub("", page))).split())


def drawn_sources(place: Path) -> dict[str, str]:
    """Return the sources of the pictures in `DRAWN`: a graph in the language of dot, and an SVG."""
    return {"architecture": room_graph(), "packet-walk": packet_walk((place / "walk.txt").read_text("utf-8"))}


def twin_lab_page() -> str:
    """Return a page with the completion times of the kept lab runs relative to their twins."""
    pairs = json.loads((ROOT / "tests/measure/outcomes/lab_twin.json").read_text(encoding="utf-8"))
    rows = tuple(
        Row(pair["name"], (Dot(pair["name"], pair["lab"]["jct_ns"] / pair["twin"]["jct_ns"], 0),))
        for pair in pairs
    )
    legend = (LegendEntry("lab, measured; the line is the twin", 0),)
    chart = row_chart(
        "twin-lab", "Completion time", "completion time in the lab / in the twin", rows, legend, 1.0
    )
    return render(Page("ETLoop: lab and twin", "", "", "", (), (Section("lab", "Lab and twin", chart),)))


def room_graph() -> str:
    """Return the import rules between top-level rooms as a graph, without `bench` and without arrows that follow from
    others."""
    imports: dict[str, set[str]] = {}
    for room, names in MAY_IMPORT.items():
        top = room.partition("/")[0]
        if top == "bench":
            continue
        imports.setdefault(top, set()).update(
            {name.partition("/")[0] for name in names.split()} - {top, "bench"}
        )

    def below(room: str) -> set[str]:
        return imports[room].union(*(below(other) for other in imports[room]))

    edges = sorted(
        (room, other)
        for room, others in imports.items()
        for other in others
        if not any(other in below(between) for between in others - {other})
    )
    style = (
        "graph [bgcolor=white ranksep=0.3]; "
        'node [shape=box style="rounded,filled" fillcolor="#eef3f8" fontname="sans-serif"];'
    )
    lines = "\n".join(f'"{room}" -> "{other}";' for room, other in edges)
    return f'digraph {{ {style} edge [color="#5c6975"];\n{lines}\n}}\n'


def packet_walk(lines: str) -> str:
    """Return the packets of the first message in a capture as an SVG: two endpoints, time downwards."""
    packets = [match for line in lines.splitlines() if (match := _PACKET.match(line))]
    last = next(
        index
        for index, packet in enumerate(packets)
        if packet[3].startswith("ACK") and "NAK" not in packet[3]
    )
    card = packets[0][2]
    left, right, top = 110, 430, 50
    height = top + _ROW_PX * (last + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" {_FONT} role="img">',
        "<title>Packets of one RDMA write whose sixth packet gets a NAK</title>",
        f'<rect width="900" height="{height}" fill="white"/>',
        f'<text x="{left}" y="24" text-anchor="middle" font-weight="bold">card under test</text>',
        f'<text x="{right}" y="24" text-anchor="middle" font-weight="bold">ETLoop</text>',
        f'<text x="{left - 20}" y="40" text-anchor="end" fill="#5c6975">us</text>',
        *(f'<path d="M{x} 32V{height - 8}" stroke="#9aa7b3"/>' for x in (left, right)),
    ]
    for row, packet in enumerate(packets[: last + 1]):
        y = top + row * _ROW_PX
        is_data = packet[2] == card
        begin, end = (left, right) if is_data else (right, left)
        colour = "#2468a8" if is_data else "#b3261e" if "NAK" in packet[3] else "#1b7f4b"
        tip = end - 7 if is_data else end + 7
        parts += [
            f'<text x="{left - 20}" y="{y + 4}" text-anchor="end" fill="#5c6975">{float(packet[1]):.1f}</text>',
            f'<path d="M{begin} {y}H{tip}" stroke="{colour}" stroke-width="1.5"/>',
            f'<path d="M{end} {y}L{tip} {y - 4}V{y + 4}Z" fill="{colour}"/>',
            f'<text x="{right + 20}" y="{y + 4}" fill="{colour}">{html.escape(packet[3])}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


@contextlib.contextmanager
def processes(commands: list[list[str]], place: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run commands of ETLoop side by side, and end them afterwards."""
    program = Path(sys.executable).parent
    with (place / "log").open("ab") as log:
        started = [
            subprocess.Popen([program / command[0], *command[1:]], cwd=place, stdout=log, stderr=log)
            for command in commands
        ]
        try:
            yield started
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(30)


def agents() -> list[list[str]]:
    """Return the commands of the two agents of examples/loopback/rig.yaml."""
    agent = ["etloop-agent", "run", "--controller", "tcp://127.0.0.1:7420", "--name"]
    return [[*agent, "a"], [*agent, "b"]]


def picture_of_live_page(place: Path) -> bytes:
    """Return the page of a run over loopback, taken while it runs."""
    scenario = (ROOT / "examples/loopback/scenario.yaml").read_text(encoding="utf-8")
    (place / "loopback.yaml").write_text(
        scenario.replace("iterations: 5", "iterations: 4000"), encoding="utf-8"
    )
    run = ["etloop", "run", "loopback.yaml", "--rig", str(ROOT / "examples/loopback/rig.yaml"), "--no-twin"]
    with processes([*agents(), [*run, "--out", "live", "--web", "127.0.0.1:7480"]], place):
        wait_for_port(7480)
        ready = "samples.length > 30"
        return take_picture("http://127.0.0.1:7480/", WIDTH, ("body > *",), place, ready=ready, seconds=120)


def picture_of_rack(place: Path) -> bytes:
    """Return the page of a rack after three jobs, two of which are in the queue or run."""
    laptop = place / "laptop"
    shutil.copytree(ROOT / "examples/laptop", laptop)
    shutil.copytree(place / "job", laptop / "traces/job")
    controller = ["etloop", "controller", "--config", "laptop/controller.yaml", "--embedded-broker"]
    scenario = (laptop / "scenario.yaml").read_text(encoding="utf-8")
    long = scenario.replace("iterations: 3", "iterations: 3000")
    strict = scenario.replace("lost_share == 0", "jct_max_ns <= 1ms").replace(
        "memory loses nothing", "a bound too low"
    )
    with processes([controller, *agents()], place):
        wait_for_port(9420)
        for text, waits in ((scenario, ["--wait"]), (strict, ["--wait"]), (long, []), (scenario, [])):
            (place / "submitted.yaml").write_text(text, encoding="utf-8")
            program = Path(sys.executable).parent / "etloop"
            subprocess.run(
                [program, "submit", "submitted.yaml", *waits], cwd=place, check=False, capture_output=True
            )
        page = "http://127.0.0.1:9420/runs/"
        wait_until(lambda: b">running<" in urlopen(page, timeout=5).read(), f"{page} shows no running job")
        return take_picture(page, 1250, ("body > *",), place)


def wait_for_port(port: int) -> None:
    """Return when a process listens at the port of this machine. Raises TimeoutError after a minute."""

    def is_open() -> bool:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True

    wait_until(is_open, f"no process listens at port {port}")


def wait_until(holds: Callable[[], bool], problem: str) -> None:
    """Return when a condition holds; one that raises OSError does not. Raises TimeoutError after a minute."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError):
            if holds():
                return
        time.sleep(0.1)
    raise TimeoutError(problem)


def draw(name: str, place: Path) -> Path:
    """Draw one picture from the files that `work` left in `place`; return its file."""
    if name in DRAWN:
        picture = PICTURES / f"{name}.svg"
        source = drawn_sources(place)[name]
        if name == "architecture":
            source = subprocess.run(
                ["dot", "-Tsvg"], input=source, check=True, capture_output=True, text=True
            ).stdout
        picture.write_text(source, encoding="utf-8")
        return picture
    picture = PICTURES / f"{name}.webp"
    match name:
        case "live":
            data = picture_of_live_page(place)
        case "rack":
            data = picture_of_rack(place)
        case _:
            shot = SHOTS[name]
            data = take_picture((place / shot.page).resolve().as_uri(), WIDTH, shot.selectors, place)
    picture.write_bytes(data)
    return picture


def digest(text: str | bytes) -> str:
    """Return the SHA-256 of a text or of bytes."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def main() -> int:
    """Draw the pictures named on the command line, or all; return the exit code."""
    record: dict[str, dict[str, str]] = (
        json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    )
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        work(place)
        texts = sources(place)
        for name in sys.argv[1:] or sorted(texts):
            picture = draw(name, place)
            record[name] = {
                "file": picture.name,
                "source": digest(texts[name]),
                "drawn": digest(picture.read_bytes()),
            }
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size / 1000:.0f} kB")
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A page in a real Chromium without a window: what it complains of, how wide it gets, what axe-core finds, how it looks.

Speaks the DevTools protocol over one web socket. A shell.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import axe_core_python

BROWSER: Final = shutil.which("chromium")
START_TIMEOUT_S: Final = 60
_HEIGHT: Final = 900
_FLAGS: Final = (
    *(
        "--headless",
        "--disable-gpu",
        "--no-first-run",
        "--disable-extensions",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-port=0"),
)
_AXE: Final = Path(axe_core_python.__file__).with_name("axe.min.js")
_SERIOUS: Final = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations
.filter(one => one.impact === "serious" || one.impact === "critical")
.map(one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 120)).join(" | ")}`))"""
_CUT: Final = """[...document.querySelectorAll("svg text")].filter(text => text.getClientRects().length).filter(text => {
const own = text.getBoundingClientRect(), whole = text.ownerSVGElement.getBoundingClientRect();
return own.left < whole.left - 1 || own.right > whole.right + 1 || own.top < whole.top - 1 || own.bottom > whole.bottom + 1;
}).map(text => text.textContent)"""
_EXTENT: Final = """names => {
const boxes = names.flatMap(name => [...document.querySelectorAll(name)]).map(element => element.getBoundingClientRect());
const low = (side) => Math.max(0, Math.min(...boxes.map(box => box[side])) - 12);
const high = (side) => Math.max(...boxes.map(box => box[side])) + 12;
return [low("left"), low("top") + scrollY, high("right"), high("bottom") + scrollY];}"""
"""Left, top, right and bottom of all elements that any of the selectors matches, with a margin, in pixels."""
_PANELS: Final = """[...document.querySelectorAll("svg.plot")].filter(plot => plot.getClientRects().length).flatMap(plot => {
const axis = plot.querySelector(".axis-name").textContent, panels = [...plot.querySelectorAll("g.panel")];
return panels.length ? panels.map(panel => ({name: panel.querySelector(".head").textContent,
units: [panel.querySelector(".head").textContent, axis], ticks: panel.querySelectorAll(".tick.end").length,
lines: panel.querySelectorAll("path.line, path.bars").length}))
: [{name: plot.querySelector("title").textContent, units: [axis], ticks: plot.querySelectorAll(".tick.mid").length,
lines: plot.querySelectorAll("circle").length}]})"""


@dataclass(frozen=True, slots=True)
class PanelSeen:
    """One panel of a plot that is visible."""

    name: str
    units: list[str]
    """Words of its axes, each of which names a unit."""
    ticks: int
    lines: int


@dataclass(frozen=True, slots=True)
class PageSeen:
    """A page as it is shown."""

    console: tuple[str, ...]
    """Errors and warnings, and what it tried to load."""
    width: int
    """Of its content, in pixels; wider than the window means that the whole page scrolls sideways."""
    serious: tuple[str, ...]
    """What axe-core calls serious or critical."""
    cut: tuple[str, ...]
    """Words of pictures that reach beyond their edge."""
    panels: tuple[PanelSeen, ...]
    png: bytes


def look_at(page: Path, width: int, scratch: Path, *, is_dark: bool, with_scripts: bool = True) -> PageSeen:
    """Show a page in a window of `width` pixels. `with_scripts`: False forbids the page's own, as Jenkins does."""
    return asyncio.run(
        _look_at(page.resolve().as_uri(), width, scratch, is_dark=is_dark, with_scripts=with_scripts)
    )


def take_picture(
    url: str,
    width: int,
    selectors: tuple[str, ...],
    scratch: Path,
    *,
    ready: str = "true",
    seconds: float = 60,
) -> bytes:
    """Return the part of a page that spans the elements of `selectors`, as WebP, as soon as the JavaScript expression
    `ready` holds.

    Raises TimeoutError after `seconds`.
    """
    return asyncio.run(_take_picture(url, width, selectors, scratch, ready, seconds))


async def _take_picture(
    url: str, width: int, selectors: tuple[str, ...], scratch: Path, ready: str, seconds: float
) -> bytes:
    async with asyncio.timeout(seconds), _browser(scratch / "profile-picture") as tab:
        await _open(tab, url, width, is_dark=False, with_scripts=True)
        await tab.value(
            f"new Promise(done => {{const look = () => ({ready}) ? done(0) : setTimeout(look, 100); look();}})"
        )
        left, top, right, bottom = await tab.value(f"({_EXTENT})({json.dumps(selectors)})")
        clip = {"x": left, "y": top, "width": right - left, "height": bottom - top, "scale": 1}
        shot = await tab.call(
            "Page.captureScreenshot", format="webp", quality=75, clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(shot["data"])


async def _look_at(url: str, width: int, scratch: Path, *, is_dark: bool, with_scripts: bool) -> PageSeen:
    async with (
        asyncio.timeout(START_TIMEOUT_S),
        _browser(scratch / f"profile-{width}-{is_dark}-{with_scripts}") as tab,
    ):
        return await _seen(tab, url, width, is_dark=is_dark, with_scripts=with_scripts)


@asynccontextmanager
async def _browser(profile: Path) -> AsyncIterator[_Tab]:
    """Start a browser with an empty page; end it and remove its profile directory afterwards."""
    assert BROWSER is not None
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    process = await asyncio.create_subprocess_exec(
        *(BROWSER, *_FLAGS, *root, f"--user-data-dir={profile}", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with aiohttp.ClientSession() as session:
            port = await _port_of(process)
            async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                target = await answer.json(content_type=None)
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield _Tab(socket)
    finally:
        process.terminate()
        await process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def _port_of(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async for line in process.stderr:
        if b"DevTools listening on ws://" in line:
            return int(line.split(b"ws://", 1)[1].split(b"/", 1)[0].rsplit(b":", 1)[1])
    raise AssertionError("Chromium ended before it listened")


class _Tab:
    """One page of the browser: calls, and the events that came meanwhile."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        """Return the result of a method."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json()
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    async def value(self, expression: str) -> Any:
        """Return what an expression comes to in the page."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def wait(self, event: str) -> None:
        """Return when the event has come."""
        while not any(one["method"] == event for one in self.events):
            self.events.append(await self._socket.receive_json())


async def _open(tab: _Tab, url: str, width: int, *, is_dark: bool, with_scripts: bool) -> None:
    """Load a page in a window of that width."""
    for domain in ("Page", "Runtime", "Log", "Network"):
        await tab.call(f"{domain}.enable")
    scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
    await tab.call("Emulation.setEmulatedMedia", features=[scheme])
    size = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": width < 600}
    await tab.call("Emulation.setDeviceMetricsOverride", **size)
    await tab.call("Emulation.setScriptExecutionDisabled", value=not with_scripts)
    await tab.call("Page.navigate", url=url)
    await tab.wait("Page.loadEventFired")
    await tab.call("Emulation.setScriptExecutionDisabled", value=False)


async def _seen(tab: _Tab, url: str, width: int, *, is_dark: bool, with_scripts: bool) -> PageSeen:
    await _open(tab, url, width, is_dark=is_dark, with_scripts=with_scripts)
    content = await tab.value("document.documentElement.scrollWidth")
    cut, panels = await tab.value(_CUT), await tab.value(_PANELS)
    await tab.value(f"{_AXE.read_text()};0")
    serious = await tab.value(_SERIOUS)
    shot = await tab.call("Page.captureScreenshot", captureBeyondViewport=True)
    return PageSeen(
        console=tuple(filter(None, map(_complaint, tab.events))),
        width=int(content),
        serious=tuple(serious),
        cut=tuple(cut),
        panels=tuple(PanelSeen(**one) for one in panels),
        png=base64.b64decode(shot["data"]),
    )


def _complaint(event: dict[str, Any]) -> str:
    """Return what an event complains of; "" where it does not."""
    params = event.get("params", {})
    match event.get("method"):
        case "Runtime.exceptionThrown":
            return str(params["exceptionDetails"])
        case "Runtime.consoleAPICalled":
            return f"{params['type']}: {params['args']}"
        case "Log.entryAdded":
            return str(params["entry"]["text"])
        case "Network.requestWillBeSent" if params["request"]["url"].startswith("http"):
            return f"asks for {params['request']['url']}"
        case _:
            return ""

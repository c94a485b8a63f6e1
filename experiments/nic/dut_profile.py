"""Writes a profile of a card as a device profile, which rigs name and `etloop dut show` prints. Pure.

Decides which figures have a key there; all figures are in notes and in nic.json.
"""

from __future__ import annotations

import re
from typing import Final

import yaml

from etloop.experiments.nic.document import NicProfile
from etloop.experiments.nic.link.asked import is_as_asked, own_value
from etloop.experiments.nic.link.figures import Figure

DUT_FILE: Final = "profile.yaml"
_SCOPES: Final = frozenset(("queue_pair", "address", "port"))
DCQCN: Final = {
    "rpg_time_reset": "cnp_recovery",
    "rpg_threshold": "fast_recovery_raises",
    "rpg_ai_rate": "additive_increase",
    "rpg_hai_rate": "hyper_increase",
}
"""NVIDIA's names of parameters that the battery measures, with the names of their figures."""
_MANY: Final = {"bit/s": ("Gbit/s", 1e9), "1/s": ("million/s", 1e6)}
_MODES: Final = frozenset(("go_back_n", "selective_repeat"))


def dut_profile_text(profile: NicProfile) -> str:
    """Return the text of a profile file: the measured values and their source."""
    figures = profile.figures()
    began = min((experiment.began_at for experiment in profile.experiments), default="")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", profile.card)[:48].strip("-") or "nic"
    content: dict[str, object] = {
        "profile": name,
        "kind": "nic",
        "summary": f"Measured by etloop nic profile: {profile.card}",
        "basis": "measured",
        "source": "battery",
        "sources": {
            "battery": {
                "title": f"etloop nic profile, {len(profile.experiments)} experiments",
                "date": began[:10] or "1970-01-01",
            }
        },
    }
    transport = _transport(figures)
    if transport:
        content["transport"] = transport
    cnp = _cnp(figures)
    if cnp:
        content["cnp"] = cnp
    parameters = _dcqcn(figures)
    if parameters:
        content["congestion_control"] = {"parameters": parameters}
    content["notes"] = [f"{figure.name}: {value_words(figure)}" for figure in figures.values()]
    return yaml.safe_dump(content, sort_keys=False, width=120)


def _transport(figures: dict[str, Figure]) -> dict[str, object]:
    transport: dict[str, object] = {}
    recovery, early = figures.get("recovery"), figures.get("early_packets")
    if recovery is not None and recovery.word in _MODES:
        transport["retransmission"] = recovery.word
    if early is not None and early.word in ("kept", "dropped"):
        transport["accepts_out_of_order"] = early.word == "kept"
    timeout, ack_every = figures.get("timeout"), figures.get("ack_request_every")
    if timeout is not None and timeout.value and not is_as_asked(figures.get("timeout_code")):
        transport["timeout"] = f"{round(timeout.value)}ns"
    if ack_every is not None and ack_every.value:
        transport["ack_every"] = round(ack_every.value)
    # A DSCP or timer that follows the request is a setting; one that ignores it is a property of the card.
    dscp = own_value(figures.get("dscp"))
    if dscp is not None:
        transport["dscp"] = dscp
    return transport


def _cnp(figures: dict[str, Figure]) -> dict[str, object]:
    cnp: dict[str, object] = {}
    interval, scope, dscp = (figures.get(f"cnp_{name}") for name in ("interval", "scope", "dscp"))
    if interval is not None and interval.value is not None:
        cnp["interval"] = f"{round(interval.value)}ns"
    if scope is not None and scope.word in _SCOPES:
        cnp["scope"] = scope.word
    if dscp is not None and dscp.value is not None:
        cnp["dscp"] = int(dscp.value)
    return cnp


def _dcqcn(figures: dict[str, Figure]) -> dict[str, str]:
    """Return DCQCN's measured parameters by the names that NVIDIA gives them."""
    parameters: dict[str, str] = {}
    for name, figure_name in DCQCN.items():
        figure = figures.get(figure_name)
        if figure is None or not figure.value:
            continue
        number = round(figure.value)
        if figure.unit == "bit/s":
            parameters[name] = f"{number / 1e6:.4g}Mbps"
        else:
            parameters[name] = f"{number / 1e3:.4g}us" if figure.unit == "ns" else str(number)
    return parameters


def value_words(figure: Figure) -> str:
    """Return a figure as text: value, interval and number of samples."""
    if figure.value is None:
        return figure.word
    remark = f", {figure.word}" if figure.word else ""
    if figure.low == figure.high:
        return f"{figure.value:g} {figure.unit}{remark}"
    assert figure.low is not None
    assert figure.high is not None
    if figure.unit in _MANY:
        words, scale = _MANY[figure.unit]
        low, high = figure.low / scale, figure.high / scale
        return f"{figure.value / scale:.4g} {words} ({low:.4g} to {high:.4g}){remark}"
    if figure.unit == "ns":
        return f"{_time(figure.value)} ({_time(figure.low)} to {_time(figure.high)}, {figure.samples} times){remark}"
    unit = "" if figure.unit == "ratio" else f" {figure.unit}"
    return f"{figure.value:.3g}{unit} ({figure.low:.3g} to {figure.high:.3g}, {figure.samples} times){remark}"


def _time(value_ns: float) -> str:
    for unit, scale in (("ms", 1e6), ("us", 1e3)):
        if abs(value_ns) >= scale:
            return f"{value_ns / scale:.4g} {unit}"
    return f"{value_ns:.4g} ns"

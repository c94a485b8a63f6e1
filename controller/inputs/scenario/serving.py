"""`serving` of a workload. Decides where its mistakes are reported; keys and limits are those of `workload.serving.spec`."""

from __future__ import annotations

from pathlib import Path

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.settings_reader import blame, read_settings
from etloop.contract.base.yaml_reader import Section
from etloop.workload.serving.arrivals import DrawnRequests
from etloop.workload.serving.model_file import Model, find_model
from etloop.workload.serving.spec import ServingKeys, ServingLoad, TraceRequests, misfits


def read_serving(section: Section, directory: Path, seed: int) -> ServingLoad | None:
    """Return what a `serving:` section has; None after a mistake in it, which goes to the section's file."""
    keys = read_settings(ServingKeys, section)
    requests = _read_requests(section, seed)
    try:
        model = find_model(keys.model_name, directory, section.where("model"))
    except ConfigError as error:
        for problem in error.problems:
            section.mistake("model", f"{problem.where}: {problem.what}", problem.remedy)
        return None
    _refuse_misfits(section, model, keys)
    return ServingLoad(model, keys, requests, directory, section.where("requests"))


def _read_requests(section: Section, seed: int) -> DrawnRequests | TraceRequests:
    below = section.section("requests", "Requests of a trace, or drawn ones.")
    requests: DrawnRequests | TraceRequests
    if below.has("trace"):
        drawn_keys = [key for key in ("rate", "count", "arrivals", "input", "output") if below.has(key)]
        if drawn_keys:
            below.mistake(drawn_keys[0], "the trace has every request", "remove it, or remove trace")
        requests = read_settings(TraceRequests, below, TraceRequests("", seed=seed))
    else:
        requests = read_settings(DrawnRequests, below, DrawnRequests(10**6, seed=seed))
    below.close()
    return requests


def _refuse_misfits(section: Section, model: Model, keys: ServingKeys) -> None:
    for problem in misfits(model, keys):
        blame(section, problem)

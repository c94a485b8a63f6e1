"""A model as serving sees it: layers, heads, bytes of its KV cache and of its experts. Decides the keys of a model file.

Sizes follow draft-calabria-bmwg-ai-fabric-inference-bench-05: S_KV = 2 * L * H_kv * D * P per token, and B * k * H * P bytes of
all dispatches of a rank. Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434) keeps one latent for all heads instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.questions import unnoted_questions
from etloop.contract.base.setting import list_setting, optional_group, required_setting, setting
from etloop.contract.base.settings_reader import read_file
from etloop.contract.base.value_parsers import integer, words
from etloop.contract.base.yaml_reader import LARGEST_FILE_BYTES

_SHIPPED: Final = Path(__file__).parent / "models"
_MOST: Final = 10**14


@dataclass(frozen=True, slots=True)
class Experts:
    """`experts:` of a model file: the layers in which tokens go to experts."""

    count: int = required_setting("count", integer(2, 4096), 2, "write how many experts a layer has")
    """Routed experts of a layer."""
    chosen: int = required_setting("chosen", integer(1, 256), 1, "write how many experts a token goes to")
    """Experts of a token (k)."""
    layers: int = required_setting("layers", integer(1, 1024), 1, "write how many layers have experts")
    """Layers with experts."""
    dispatch_element_bytes: int = setting("dispatch_element_bytes", integer(1, 8), 2)
    """Bytes of an activation on its way to an expert."""
    combine_element_bytes: int = setting("combine_element_bytes", integer(1, 8), 2)
    """Bytes of an activation on its way back."""
    token_overhead_bytes: int = setting("token_overhead_bytes", integer(0, 1 << 20), 0)
    """Bytes of scales and header that each dispatched token has in addition."""


@dataclass(frozen=True, slots=True)
class Model:
    """The contents of a model file."""

    name: str = required_setting("name", words, "model", "write the model's name")
    """Name in reports."""
    layers: int = required_setting("layers", integer(1, 1024), 1, "write the number of layers")
    """Transformer layers."""
    hidden: int = required_setting("hidden", integer(1, 1 << 20), 1, "write the hidden size")
    """Hidden size: elements of a token's activation."""
    sources: tuple[str, ...] = list_setting("sources", words)
    """Where the numbers come from."""
    heads: int = setting("heads", integer(1, 4096), 1)
    """Query heads."""
    kv_heads: int = setting("kv_heads", integer(0, 4096), 0)
    """Heads of keys and values; 0 with `latent` or `kv_bytes_per_token`."""
    head_dim: int = setting("head_dim", integer(0, 4096), 0)
    """Elements of a head."""
    latent: int = setting("latent", integer(0, 1 << 16), 0)
    """Elements of the latent and the rotary key of multi-head latent attention; 0: the model has heads."""
    kv_element_bytes: int = setting("kv_element_bytes", integer(1, 8), 2)
    """Bytes of an element of the KV cache."""
    stated_kv_bytes_per_token: int = setting("kv_bytes_per_token", integer(0, 1 << 30), 0)
    """Bytes of the KV cache per token, of models that have no formula here; 0: by heads or latent."""
    parameters: int = setting("parameters", integer(0, _MOST), 0)
    """All weights; needed for the roofline and for the check that the model fits into memory."""
    active_parameters: int = setting("active_parameters", integer(0, _MOST), 0)
    """Weights that one token uses; all if left out."""
    weight_element_bytes: int = setting("weight_element_bytes", integer(1, 8), 2)
    """Bytes of a weight."""
    experts: Experts | None = optional_group(Experts, "experts")
    """Layers with experts; none in dense models."""

    @property
    def kv_bytes_per_token(self) -> int:
        """Return the bytes of the KV cache per token, one copy (S_KV for one token)."""
        if self.stated_kv_bytes_per_token:
            return self.stated_kv_bytes_per_token
        if self.latent:
            return self.layers * self.latent * self.kv_element_bytes
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_element_bytes

    @property
    def used_parameters(self) -> int:
        """Return the weights that one token uses."""
        return self.active_parameters or self.parameters

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of all weights."""
        return self.parameters * self.weight_element_bytes

    def kv_bytes(self, tokens: int) -> int:
        """Return S_KV: the bytes of the KV cache of a context."""
        return self.kv_bytes_per_token * tokens

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield a problem for each rule between keys that is broken."""
        forms = [
            bool(self.kv_heads and self.head_dim),
            bool(self.latent),
            bool(self.stated_kv_bytes_per_token),
        ]
        if sum(forms) != 1:
            problem = f"{sum(forms)} descriptions of the KV cache"
            remedy = "write kv_heads and head_dim, or latent, or kv_bytes_per_token"
            yield Problem("kv_heads", problem, remedy)
        if self.active_parameters > self.parameters:
            yield Problem("active_parameters", "more than all parameters", "write parameters, too")
        if self.experts is not None and self.experts.chosen > self.experts.count:
            yield Problem(
                "experts.chosen", "more than there are experts", f"write at most {self.experts.count}"
            )
        if self.experts is not None and self.experts.layers > self.layers:
            yield Problem("experts.layers", "more than the model has layers", f"write at most {self.layers}")


def model_names() -> tuple[str, ...]:
    """Return the names of the models that ETLoop has."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def is_model_file(name: str) -> bool:
    """Return whether the name of a model is the path of a file: it has a slash or ends in .yaml or .yml."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def find_model(name: str, directory: Path, where: str) -> Model:
    """Return a shipped model, or that of a file: a name with a slash or ending in .yaml, relative to `directory`.

    Raises `ConfigError`, naming `where` for an unknown name, else the line of the file.
    """
    path = _SHIPPED / f"{name}.yaml"
    if is_model_file(name):
        path = directory / name
    elif name not in model_names():
        near = difflib.get_close_matches(name, model_names(), n=1)
        remedy = f"write {near[0]}" if near else f"write one of {', '.join(model_names())}"
        problem = f'"{name[:64]}" is not a model that ETLoop has'
        raise ConfigError(Problem(where, problem, f"{remedy}, or name a file that ends in .yaml"))
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            Problem(where, f"{path}: {error.strerror}", "name a file that can be read")
        ) from None
    with unnoted_questions():
        return read_file(Model, text, str(path))

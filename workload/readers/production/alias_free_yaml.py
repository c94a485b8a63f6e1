"""Loads YAML without aliases. Pure."""

from __future__ import annotations

from typing import Final

import yaml

YAML_ERRORS: Final = (yaml.YAMLError, ValueError, RecursionError)
"""Errors of a text that cannot be loaded."""


class _Loader(yaml.SafeLoader):
    """A loader that refuses aliases, whose expansion has no bound."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node; raise `YAMLError` for an alias."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it uses an alias, which is not supported")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def load_value(text: bytes) -> object:
    """Return the value of the only document of a text. Raises one of `YAML_ERRORS`."""
    return _Loader(text).get_single_data()

"""Reads what `kustomize build` would print of a folder, of the features that deploy/kubernetes uses, and refuses all others.

Kustomize itself is not in Debian 12, PyPI, or npm by its own publisher; tests/data/kustomize has what Debian 13's printed, which
this reader is held against. `resources` of files and folders, and `patches` that are strategic merges of one document. Lists are
merged by name where Kubernetes says so for the lists that are patched here, and replaced everywhere else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

Document = dict[str, Any]
MERGED_BY_NAME: Final = frozenset({"containers"})
REPLACED: Final = frozenset({"ingress"})
KEYS: Final = {"apiVersion", "kind", "resources", "patches"}


def kustomized(folder: Path) -> list[Document]:
    """Returns the documents of a folder with a kustomization."""
    top = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(top) <= KEYS, f"{folder}: {set(top) - KEYS} is nothing that this reader knows"
    documents: list[Document] = []
    for name in top["resources"]:
        place = folder / name
        documents += kustomized(place) if place.is_dir() else list(yaml.safe_load_all(place.read_text()))
    for patch in top.get("patches", []):
        assert set(patch) == {"path"}, patch
        change = yaml.safe_load((folder / patch["path"]).read_text())
        targets = [one for one in documents if identity(one) == identity(change)]
        assert len(targets) == 1, (
            f"{folder}: {patch['path']} is for {identity(change)}, of which there are {len(targets)}"
        )
        documents = [merged(one, change) if one is targets[0] else one for one in documents]
    identities = [identity(one) for one in documents]
    assert len(set(identities)) == len(identities), f"{folder}: a document stands twice"
    return documents


def identity(document: Document) -> tuple[str, str, str, str]:
    """Returns what kustomize knows a document by."""
    metadata = document["metadata"]
    return document["apiVersion"], document["kind"], metadata["namespace"], metadata["name"]


def merged(document: Document, change: Document) -> Document:
    """Returns a document with a strategic merge patch applied."""
    result = dict(document)
    for key, value in change.items():
        old = result.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            result[key] = merged(old, value)
        elif isinstance(value, list) and key in MERGED_BY_NAME:
            result[key] = merged_by_name(old or [], value)
        else:
            assert not isinstance(value, list) or key in REPLACED, f"how {key} is merged is not known here"
            assert value is not None, f"{key}: taking out is not known here"
            result[key] = value
    return result


def merged_by_name(old: list[Document], new: list[Document]) -> list[Document]:
    """Returns a list whose items of one name are merged, new ones at the end."""
    changes = {one["name"]: one for one in new}
    kept = [merged(one, changes.pop(one["name"], {})) for one in old]
    return kept + list(changes.values())

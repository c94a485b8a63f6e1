"""How a scenario names a trace that was uploaded: `sha256:` and the digest of its archive. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PREFIX: Final = "sha256:"
_NAMED: Final = re.compile(r"sha256:([0-9a-f]{64})(?![0-9a-f])")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SUFFIX: Final = ".tar"


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 in lower case."""
    return _DIGEST.fullmatch(text) is not None


def digests_in(scenario_text: str) -> frozenset[str]:
    """Return the digests of all uploaded traces that a scenario names."""
    return frozenset(_NAMED.findall(scenario_text))


def file_name(digest: str) -> str:
    """Return the name of the file that a trace is kept in."""
    return digest + _SUFFIX


def digest_of_file(path: Path) -> str:
    """Return the digest that a kept file is named by; "" of any other file."""
    digest = path.name.removesuffix(_SUFFIX)
    return digest if is_digest(digest) and path.name != digest else ""


def with_places(scenario_text: str, directory: Path) -> str:
    """Return a scenario with the file below `directory` in the place of each uploaded trace; lines stay where they are."""
    return _NAMED.sub(lambda found: str(directory / file_name(found[1])), scenario_text)

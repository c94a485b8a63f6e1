"""Names of uploaded traces in a scenario: `sha256:` and the digest of the archive. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PREFIX: Final = "sha256:"
_NAMED: Final = re.compile(r"sha256:([0-9a-f]{64})(?![0-9a-f])")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SUFFIX: Final = ".tar"


def is_digest(text: str) -> bool:
    """Return whether a text is a SHA-256 digest in lower-case hexadecimal."""
    return _DIGEST.fullmatch(text) is not None


def digests_in(scenario_text: str) -> frozenset[str]:
    """Return the digests of all uploaded traces that a scenario names."""
    return frozenset(_NAMED.findall(scenario_text))


def file_name(digest: str) -> str:
    """Return the name of the file in which a trace is kept."""
    return digest + _SUFFIX


def digest_of_file(path: Path) -> str:
    """Return the digest in the name of a kept file; "" for any other file."""
    digest = path.name.removesuffix(_SUFFIX)
    return digest if is_digest(digest) and path.name != digest else ""


def with_places(scenario_text: str, directory: Path) -> str:
    """Return a scenario with each uploaded trace replaced by its file below `directory`; line numbers do not change."""
    return _NAMED.sub(lambda match: str(directory / file_name(match[1])), scenario_text)

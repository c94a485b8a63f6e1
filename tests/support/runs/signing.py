"""A run directory changed on purpose, with checksums that match again: for tests of what follows the checksums."""

from __future__ import annotations

from pathlib import Path

from etloop.results.store.checksums import SUMS_FILE, digest_of_file, sums_text


def sign_again(run_dir: Path) -> None:
    """Write SHA256SUMS for the files that the directory holds now."""
    files = [path for path in run_dir.iterdir() if path.is_file() and path.name != SUMS_FILE]
    (run_dir / SUMS_FILE).write_text(
        sums_text({path.name: frozenset({digest_of_file(path)}) for path in files})
    )

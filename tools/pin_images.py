"""Pins the container images that the shipped files name: writes the digest behind each tag, as the registry has it now.

    python tools/pin_images.py             asks the registries, and rewrites NAME:TAG or NAME:TAG@OLD to NAME:TAG@sha256:DIGEST
    python tools/pin_images.py --check     asks nothing; ends with 1 if an image has no digest, and prints each

The digest is that of the index of all platforms. Images of ETLoop itself are built here and have none.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FILES: Final = (
    "Dockerfile",
    "docker-compose.yml",
    "deploy/**/*.yaml",
    "examples/**/*.yml",
    "examples/**/Dockerfile",
)
_OWN: Final = re.compile(r"etloop[a-z-]*")
_NAMED: Final = re.compile(
    r"^(?:ARG BASE=|FROM |\s*image: )(?:\$\{\w+:-)?(?P<image>[a-z0-9][\w./:-]*(?:@sha256:[0-9a-f]{64})?)",
    re.MULTILINE,
)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_HOSTS: Final = {"docker.io": "registry-1.docker.io"}
_ACCEPT: Final = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
)
_PATIENCE_S: Final = 30.0

Head = Callable[[str, Mapping[str, str]], Mapping[str, str]]
"""Return the headers of the answer to a HEAD request. Raises `urllib.error.HTTPError`, `OSError`."""


def images_of(text: str) -> Iterator[str]:
    """Yield the images of others that a Dockerfile, compose file or manifest names, with their tags and digests."""
    for match in _NAMED.finditer(text):
        image = match["image"]
        if image != "scratch" and not _OWN.fullmatch(image):
            yield image


def named_images(root: Path = ROOT) -> dict[str, list[Path]]:
    """Return image -> the shipped files that name it."""
    named: dict[str, list[Path]] = {}
    for path in sorted({path for pattern in FILES for path in root.glob(pattern)}):
        for image in images_of(path.read_text()):
            named.setdefault(image, []).append(path)
    return named


def digest_of(image: str, head: Head) -> str:
    """Return the digest of `REGISTRY/NAME:TAG`.

    Raises `OSError` if the registry cannot be asked, `ValueError` if it names none.
    """
    registry, _, path = image.partition("@")[0].partition("/")
    name, _, tag = path.rpartition(":")
    url = f"https://{_HOSTS.get(registry, registry)}/v2/{name}/manifests/{tag}"
    headers = {"Accept": _ACCEPT}
    try:
        answer = head(url, headers)
    except urllib.error.HTTPError as refusal:
        if refusal.code != 401:
            raise
        token = _token(refusal.headers.get("WWW-Authenticate", ""))
        answer = head(url, headers | {"Authorization": f"Bearer {token}"})
    digest = answer.get("Docker-Content-Digest", "")
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{image}: {registry} names no digest, but {digest!r}")
    return digest


def _token(challenge: str) -> str:
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = fields.pop("realm", "")
    if not realm.startswith("https://"):
        raise ValueError(f"a registry asks for a token from {realm!r}; expected an https address")
    with urllib.request.urlopen(f"{realm}?{urllib.parse.urlencode(fields)}", timeout=_PATIENCE_S) as answer:
        return str(json.load(answer)["token"])


def _head(url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
    request = urllib.request.Request(url, headers=dict(headers), method="HEAD")
    with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
        return dict(answer.headers)


def pin(root: Path, head: Head) -> None:
    """Write the present digest behind the tag of every image. Changes no file if one digest cannot be had."""
    named = named_images(root)
    pinned = {image: f"{image.partition('@')[0]}@{digest_of(image, head)}" for image in named}
    for image, paths in named.items():
        for path in paths:
            pattern = re.escape(image) + r"(?![\w.@:-])"
            path.write_text(re.sub(pattern, pinned[image], path.read_text()))


def main() -> None:
    """Pin the images, or check that they are pinned."""
    parser = argparse.ArgumentParser(description="Pins container images by digest.")
    parser.add_argument(
        "--check", action="store_true", help="ask no registry; end with 1 if one is not pinned"
    )
    if parser.parse_args().check:
        missing = [
            f"{image} in {path.relative_to(ROOT)}"
            for image, paths in named_images().items()
            if "@" not in image
            for path in paths
        ]
        sys.exit("\n".join(f"not pinned: {line}" for line in missing))
    try:
        pin(ROOT, _head)
    except (OSError, ValueError) as error:
        sys.exit(f"no file was changed: {error}")


if __name__ == "__main__":
    main()

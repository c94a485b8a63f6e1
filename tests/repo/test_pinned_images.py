"""Container images of others are pinned by digest, except those that are listed here with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tools import pin_images

UNPINNED: Final = {
    "ghcr.io/nokia/srlinux:24.10.1": (
        "no registry could be reached and no published digest of all its platforms is known: "
        "run tools/pin_images.py, and remove the line"
    ),
}
OLD, NEW = f"sha256:{'0' * 64}", f"sha256:{'a' * 64}"


def test_each_image_has_a_digest_or_is_listed() -> None:
    assert {image for image in pin_images.named_images() if "@" not in image} == set(UNPINNED)


@pytest.mark.parametrize(
    ("line", "images"),
    [
        ("ARG BASE=docker.io/library/python:3", ["docker.io/library/python:3"]),
        (f"FROM ghcr.io/a/b:1@{OLD} AS c", [f"ghcr.io/a/b:1@{OLD}"]),
        ("    image: ${X_IMAGE:-docker.io/library/x:2}", ["docker.io/library/x:2"]),
        ("    image: nginx", ["nginx"]),
        ("  image: ${ETLOOP_IMAGE:-etloop}", []),
        ("FROM scratch AS agent", []),
        ("FROM ${BASE} AS built", []),
    ],
)
def test_images_are_found_in_every_kind_of_file(line: str, images: list[str]) -> None:
    assert list(pin_images.images_of(f"# a comment\n{line}\n")) == images


def test_pinning_writes_the_digest_that_the_registry_has_now(tmp_path: Path) -> None:
    requests: list[str] = []

    def head(url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        requests.append(url)
        assert "image.index" in headers["Accept"]
        return {"Docker-Content-Digest": NEW}

    file = tmp_path / "Dockerfile"
    file.write_text(
        f"FROM docker.io/library/x:2\nFROM ghcr.io/a/b:1@{OLD} AS c\nFROM docker.io/library/x:2.1\n"
    )
    pin_images.pin(tmp_path, head)
    assert file.read_text() == (
        f"FROM docker.io/library/x:2@{NEW}\nFROM ghcr.io/a/b:1@{NEW} AS c\nFROM docker.io/library/x:2.1@{NEW}\n"
    )
    assert requests[0] == "https://registry-1.docker.io/v2/library/x/manifests/2"


def test_an_answer_without_a_digest_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM docker.io/library/x:2\n")
    with pytest.raises(ValueError, match=r"docker\.io names no digest, but 'latest'"):
        pin_images.pin(tmp_path, lambda *_: {"Docker-Content-Digest": "latest"})
    assert file.read_text() == "FROM docker.io/library/x:2\n"

"""Builds the images of a release from its wheel, for controller and agent: tar archives that `docker load` reads.

tools/make_release.py calls it where an engine is named (`make release RELEASE_ENGINE=docker`, or podman). The bases are pinned by
digest in the Dockerfile; all packages come by their hashes from locks/.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TARGETS: Final = {"etloop": (), "etloop-agent": ("--target", "agent")}
"""Image -> options of its stage in the Dockerfile."""
PYTHON_TAG: Final = "cp311"
"""Tag of the wheel that the base's Python installs."""
Run = Callable[..., str]


def make_images(
    engine: str, options: Sequence[str], version: str, release: Path, python: Path, run: Run
) -> Iterator[Path]:
    """Build and save both images; yield their files. `options` are those of `ENGINE build`; `run` raises where a command fails.

    Raise `ValueError` if the release has no wheel for the base's Python.
    """
    wheels = list(release.glob(f"etloop-*-{PYTHON_TAG}-*.whl"))
    if len(wheels) != 1:
        raise ValueError(
            f"{release} has {len(wheels)} wheels for {PYTHON_TAG}; add python3.11 to RELEASE_PYTHONS"
        )
    context = release.parent / "context"
    shutil.rmtree(context, ignore_errors=True)
    (context / "dist").mkdir(parents=True)
    (context / "tools").mkdir()
    for name in ("Dockerfile", "tools/make_agent_root.py"):
        shutil.copy(ROOT / name, context / name)
    shutil.copytree(ROOT / "locks", context / "locks")
    shutil.copy(wheels[0], context / "dist")
    lock = ROOT / "locks" / "run.lock"
    download = ("download", "--require-hashes", "--only-binary=:all:", "--requirement", lock)
    run(python, "-m", "pip", *download, "--dest", context / "dist")
    for image, stage in TARGETS.items():
        tag = f"{image}:{version}"
        run(engine, "build", *options, "--build-arg", "WHEELS=given", *stage, "--tag", tag, context)
        file = release / f"{image}-{version}-image.tar"
        run(engine, "save", "--output", file, tag)
        yield file

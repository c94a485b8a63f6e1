"""Link the rooms below DIRECTORY as the package `etloop`, for type checkers and editors: `tools/link_package.py DIRECTORY`.

Reads the mapping of folders to packages from pyproject.toml, which is also what wheels and the editable install follow.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


def rooms() -> dict[str, Path]:
    """Return the folder of every room by its name below `etloop`; the package's own folder is "". Folders without
    `__init__.py`, such as examples, which only a wheel has, are not rooms.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = settings["tool"]["scikit-build"]["wheel"]["packages"]
    return {
        package.removeprefix("etloop").removeprefix("/"): ROOT / folder
        for package, folder in packages.items()
        if (ROOT / folder / "__init__.py").exists()
    }


def link_package(directory: Path) -> None:
    """Recreate `directory`/etloop, with a link for each room and each file of the package itself."""
    package = directory / "etloop"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for name, folder in rooms().items():
        for target in [folder] if name else sorted(folder.iterdir()):
            if target.suffix in {"", ".py", ".typed"} and target.name != "__pycache__":
                (package / (name or target.name)).symlink_to(target)


if __name__ == "__main__":
    link_package(Path(sys.argv[1]))

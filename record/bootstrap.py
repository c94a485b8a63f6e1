"""Load the package `capture` next to this file, without the rest of ETLoop, and run its server."""

import importlib
import importlib.util
import sys
from pathlib import Path

folder = Path(__file__).resolve().parent / "capture"
name = "etloop_capture"
spec = importlib.util.spec_from_file_location(
    name, folder / "__init__.py", submodule_search_locations=[str(folder)]
)
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
spec.loader.exec_module(module)
importlib.import_module(f"{name}.__main__").serve()

"""Writes the bill of materials: `SUPPLY_PYTHON tools/write_sbom.py PYTHON OUT`, or checks one: `... --check FILE`.

PYTHON is the interpreter of the environment that etloop is installed in; OUT becomes CycloneDX 1.6 as JSON. It lists what a
rack has installed (locks/rack.lock) as cyclonedx-py finds it, without tools of the developer, and the native modules by
digest, each with the parts that are compiled into it. SUPPLY_PYTHON is one of the group "supply" (pyproject.toml).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.write_locks import ROOT, normalized, pins

VERSION: Final = "1.6"
MODULES: Final = ("etloop.traffic._native", "etloop.workload._et")
COMPILED_IN: Final = ("nanobind",)
"""Of whose sources the modules hold a part (NB_STATIC in CMakeLists.txt), at its version in locks/build.lock. nanobind
carries tsl::robin_map within its own release; all other sources are ours."""
Document = dict[str, Any]


class SbomError(Exception):
    """The bill cannot be written; the text says why and what to do."""


def native_component(module: str, content: bytes, built_with: Mapping[str, str]) -> Document:
    """Returns the entry of a native module: its digest, and what of others is compiled into it."""
    inside = [
        {
            "type": "library",
            "bom-ref": f"{module}/{name}",
            "name": name,
            "version": built_with[name],
            "purl": f"pkg:pypi/{name}@{built_with[name]}",
        }
        for name in COMPILED_IN
    ]
    return {
        "type": "library",
        "bom-ref": module,
        "name": module,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "components": inside,
    }


def without_tools(bill: Document, lock: str) -> Document:
    """Returns the bill with what the lock names; raises `SbomError` where another version or nothing is installed.

    What the lock wants of some interpreters only ("NAME==VERSION ; CONDITION") may be absent.
    """
    shipped = pins(lock)
    conditional = pins("\n".join(re.findall(r"^\S+==\S+(?= ;)", lock, re.MULTILINE)))
    kept = {normalized(one["name"]): one for one in bill["components"] if normalized(one["name"]) in shipped}
    wrong = [
        f"{name} {kept[name]['version'] if name in kept else 'is absent'}, expected {version}"
        for name, version in sorted(shipped.items())
        if (name not in kept and name not in conditional)
        or (name in kept and kept[name]["version"] != version)
    ]
    if wrong:
        raise SbomError(f"the environment is not that of locks/rack.lock: {'; '.join(wrong)}; run: make sbom")
    root = bill["metadata"]["component"]["bom-ref"]
    refs = {one["bom-ref"] for one in kept.values()} | {root}
    edges = [
        edge
        | ({"dependsOn": [ref for ref in edge["dependsOn"] if ref in refs]} if "dependsOn" in edge else {})
        for edge in bill["dependencies"]
        if edge["ref"] in refs
    ]
    return bill | {"components": list(kept.values()), "dependencies": edges}


def with_native(bill: Document, native: list[Document]) -> Document:
    """Returns the bill with our native modules, on which the root depends."""
    root = bill["metadata"]["component"]["bom-ref"]
    refs = [one["bom-ref"] for one in native]
    edges = [
        edge | ({"dependsOn": edge.get("dependsOn", []) + refs} if edge["ref"] == root else {})
        for edge in bill["dependencies"]
    ]
    inside = [
        {"ref": one["bom-ref"], "dependsOn": [part["bom-ref"] for part in one["components"]]}
        for one in native
    ]
    return bill | {"components": bill["components"] + native, "dependencies": edges + inside}


def violation(text: str) -> str:
    """Returns where a bill is against the schema of CycloneDX; "" if it follows it."""
    output = importlib.import_module("cyclonedx.schema").SchemaVersion.from_version(VERSION)
    found = (
        importlib.import_module("cyclonedx.validation.json").JsonStrictValidator(output).validate_str(text)
    )
    return "" if found is None else str(found)


def bill_of(python: str) -> Document:
    """Returns the bill of the environment of this interpreter."""
    command = (
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--pyproject",
        str(ROOT / "pyproject.toml"),
    )
    # The schema is looked at once, by us, when our modules are in it: each time takes seconds.
    options = (
        "--no-validate",
        "--output-reproducible",
        "--output-format",
        "JSON",
        "--spec-version",
        VERSION,
        python,
    )
    found = subprocess.run((*command, *options), capture_output=True, text=True, check=False)
    if found.returncode:
        raise SbomError(f"cyclonedx-py ended with {found.returncode}: {found.stderr.strip()}")
    bill = without_tools(json.loads(found.stdout), (ROOT / "locks" / "rack.lock").read_text())
    code = f"import importlib\nfor name in {MODULES!r}: print(importlib.import_module(name).__file__)"
    told = subprocess.run((python, "-c", code), capture_output=True, text=True, check=False)
    if told.returncode:
        raise SbomError(f"the native modules cannot be imported: {told.stderr.strip()}; run: make")
    built_with = pins((ROOT / "locks" / "build.lock").read_text())
    files = [Path(line) for line in told.stdout.splitlines()]
    native = [
        native_component(module, file.read_bytes(), built_with)
        for module, file in zip(MODULES, files, strict=True)
    ]
    return with_native(bill, native)


def main(arguments: list[str]) -> int:
    """Writes a bill that follows the schema, or checks one."""
    if len(arguments) != 2:
        print("usage: tools/write_sbom.py PYTHON OUT, or --check FILE", file=sys.stderr)
        return 2
    if arguments[0] == "--check":
        problem = violation(Path(arguments[1]).read_text())
        print(problem or "follows the schema")
        return int(bool(problem))
    try:
        bill = bill_of(arguments[0])
    except SbomError as error:
        print(f"no bill of materials: {error}", file=sys.stderr)
        return 1
    text = json.dumps(bill, indent=1) + "\n"
    if problem := violation(text):
        print(f"no bill of materials: it is against the schema: {problem}", file=sys.stderr)
        return 1
    Path(arguments[1]).write_text(text)
    print(f"{arguments[1]}: {len(bill['components'])} components, {len(MODULES)} of them native")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

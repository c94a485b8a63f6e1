"""Writes the bill of materials: `SUPPLY_PYTHON tools/write_sbom.py PYTHON OUT`, or checks one: `... --check FILE`.

PYTHON is the interpreter of the environment that etloop is installed in; OUT becomes CycloneDX 1.6 as JSON. It lists the
packages installed on a rack (locks/rack.lock) as cyclonedx-py finds them, without developers' tools, and the native modules
by digest, each with the parts that are compiled into it. SUPPLY_PYTHON is one of the group "supply" (pyproject.toml).
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

from tools.write_locks import ROOT, normalize, pins

VERSION: Final = "1.6"
MODULES: Final = ("etloop.traffic._native", "etloop.workload._et")
COMPILED_IN: Final = ("nanobind",)
"""Packages whose sources are partly compiled into the modules (NB_STATIC in CMakeLists.txt), at their versions in
locks/build.lock. nanobind includes tsl::robin_map in its own release; all other sources are this project's."""
Document = dict[str, Any]


class SbomError(Exception):
    """The bill cannot be written; the text gives reason and remedy."""


def native_component(module: str, content: bytes, built_with: Mapping[str, str]) -> Document:
    """Return the entry of a native module: its digest, and the packages that are compiled into it."""
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
    """Return the bill reduced to the packages of the lock.

    Raises `SbomError` if a package of the lock has another version or is not installed. Packages that the lock requires
    only for some interpreters ("NAME==VERSION ; CONDITION") may be absent.
    """
    shipped = pins(lock)
    conditional = pins("\n".join(re.findall(r"^\S+==\S+(?= ;)", lock, re.MULTILINE)))
    shipped_components = {
        normalize(component["name"]): component
        for component in bill["components"]
        if normalize(component["name"]) in shipped
    }
    wrong = [
        f"{name} {shipped_components[name]['version'] if name in shipped_components else 'is absent'}, expected {version}"
        for name, version in sorted(shipped.items())
        if (name not in shipped_components and name not in conditional)
        or (name in shipped_components and shipped_components[name]["version"] != version)
    ]
    if wrong:
        raise SbomError(f"the environment is not that of locks/rack.lock: {'; '.join(wrong)}; run: make sbom")
    root = bill["metadata"]["component"]["bom-ref"]
    refs = {component["bom-ref"] for component in shipped_components.values()} | {root}
    edges = [
        edge
        | ({"dependsOn": [ref for ref in edge["dependsOn"] if ref in refs]} if "dependsOn" in edge else {})
        for edge in bill["dependencies"]
        if edge["ref"] in refs
    ]
    return bill | {"components": list(shipped_components.values()), "dependencies": edges}


def with_native(bill: Document, native: list[Document]) -> Document:
    """Return the bill with the native modules, on which the root depends."""
    root = bill["metadata"]["component"]["bom-ref"]
    refs = [component["bom-ref"] for component in native]
    edges = [
        edge | ({"dependsOn": edge.get("dependsOn", []) + refs} if edge["ref"] == root else {})
        for edge in bill["dependencies"]
    ]
    inside = [
        {"ref": component["bom-ref"], "dependsOn": [part["bom-ref"] for part in component["components"]]}
        for component in native
    ]
    return bill | {"components": bill["components"] + native, "dependencies": edges + inside}


def violation(text: str) -> str:
    """Return where a bill violates the schema of CycloneDX; "" if it follows it."""
    output = importlib.import_module("cyclonedx.schema").SchemaVersion.from_version(VERSION)
    validation_error = (
        importlib.import_module("cyclonedx.validation.json").JsonStrictValidator(output).validate_str(text)
    )
    return "" if validation_error is None else str(validation_error)


def bill_of(python: str) -> Document:
    """Return the bill of the environment of this interpreter. Raises `SbomError`."""
    command = (
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--pyproject",
        str(ROOT / "pyproject.toml"),
    )
    # The schema is checked once, after the native modules are added, because a check takes seconds.
    options = (
        "--no-validate",
        "--output-reproducible",
        "--output-format",
        "JSON",
        "--spec-version",
        VERSION,
        python,
    )
    environment = subprocess.run((*command, *options), capture_output=True, text=True, check=False)
    if environment.returncode:
        raise SbomError(f"cyclonedx-py ended with {environment.returncode}: {environment.stderr.strip()}")
    bill = without_tools(json.loads(environment.stdout), (ROOT / "locks" / "rack.lock").read_text())
    code = f"import importlib\nfor name in {MODULES!r}: print(importlib.import_module(name).__file__)"
    imported = subprocess.run((python, "-c", code), capture_output=True, text=True, check=False)
    if imported.returncode:
        raise SbomError(f"the native modules cannot be imported: {imported.stderr.strip()}; run: make")
    built_with = pins((ROOT / "locks" / "build.lock").read_text())
    files = [Path(line) for line in imported.stdout.splitlines()]
    native = [
        native_component(module, file.read_bytes(), built_with)
        for module, file in zip(MODULES, files, strict=True)
    ]
    return with_native(bill, native)


def main(arguments: list[str]) -> int:
    """Write a bill that follows the schema, or check one; return the exit code."""
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

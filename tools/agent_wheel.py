"""Makes the wheel of a host with an agent alone from ETLoop's wheel: `etloop_agent-*.whl`, the rooms that an agent imports.

tools/make_release.py makes it. tests/repo/test_architecture.py keeps an agent from importing other rooms.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from pathlib import Path, PurePosixPath
from typing import Final

ROOMS: Final = ("agent", "contract", "runtime", "traffic")
FILES: Final = ("etloop/__init__.py", "etloop/py.typed")
MANUAL: Final = "etloop-agent.1"
EXTRAS: Final = ("agent",)
"""Extras of ETLoop that an agent may ask for."""


def make_agent_wheel(wheel: Path, into: Path) -> Path:
    """Write the agent's part of a wheel into a directory, and return its path. The same wheel gives the same bytes."""
    made = into / wheel.name.replace("etloop-", "etloop_agent-", 1)
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as part:
        record = []
        for entry in whole.infolist():
            if entry.is_dir() or not is_of_agent(PurePosixPath(entry.filename)):
                continue
            content = whole.read(entry)
            name = re.sub(r"^etloop-(?=[^/]*\.(?:data|dist-info)/)", "etloop_agent-", entry.filename)
            if name.endswith(".dist-info/METADATA"):
                content = agent_metadata(content.decode()).encode()
            elif name.endswith(".dist-info/entry_points.txt"):
                content = agent_commands(content.decode()).encode()
            elif name.endswith(".dist-info/RECORD"):
                continue
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
            part.writestr(_entry(name, entry), content)
        directory = next(line.partition("/")[0] for line in record if ".dist-info/METADATA" in line)
        listed = "".join([*record, f"{directory}/RECORD,,\n"])
        part.writestr(_entry(f"{directory}/RECORD", whole.infolist()[0]), listed)
    return made


def _entry(name: str, like: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """Return the entry of a file with the time and the permissions of another."""
    entry = zipfile.ZipInfo(name, like.date_time)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16 if like.is_dir() else like.external_attr
    return entry


def is_of_agent(path: PurePosixPath) -> bool:
    """Return whether a file of ETLoop's wheel belongs to an agent."""
    top = path.parts[0]
    if top == "etloop":
        return path.parts[1] in ROOMS or str(path) in FILES
    return top.endswith((".dist-info", ".libs")) or path.name == MANUAL


def agent_metadata(text: str) -> str:
    """Return the metadata of an agent's distribution: its name, and no extras but its own."""
    head, _, body = text.partition("\n\n")
    lines = [line for line in head.splitlines() if _is_kept(line)]
    lines[lines.index("Name: etloop")] = "Name: etloop-agent"
    return "\n".join(lines) + f"\n\n{body}"


def _is_kept(line: str) -> bool:
    extra = re.search(r'^Provides-Extra: (\S+)$|extra == "([^"]+)"', line)
    return extra is None or (extra[1] or extra[2]) in EXTRAS


def agent_commands(text: str) -> str:
    """Return the entry points of the agent's command. Raises `ValueError` if there is none."""
    (command,) = (line for line in text.splitlines() if re.match(r"etloop-agent\s*=", line))
    return f"[console_scripts]\n{command}\n"

"""Build the documentation site: `python tools/build_site.py`, which `make docs` calls. A warning is an error.

Pages of the repository link to each other as files in any directory. So the site is built from a copy of them: all pages,
the files they link to, and their diagrams as pictures, because a page may not fetch anything when it is read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "build" / "site-source"
SITES: Final = {"mkdocs": ROOT / "build" / "site", "zensical": ROOT / "build" / "site-zensical"}
"""Where each builder writes. The first is published; the second is to follow it when Material's support ends (May 2027)."""
MOST_S: Final = 40
"""Longest time of a build."""
_LINK: Final = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_FENCE: Final = re.compile(r"^( *)```(\w+)[^\n]*$", re.MULTILINE)
_DIAGRAM: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MOVE: Final = re.compile(r"^ *(\S+) --> (\S+?)(?:: (\w+))?$", re.MULTILINE)
_TERMINAL: Final = "[*]"
_STYLE: Final = """\
bgcolor="transparent"; node [shape=box style="rounded" fontname="sans-serif"]; edge [fontname="sans-serif" fontsize=10];"""
_BEGIN: Final = '"begin" [shape=point];'
_END: Final = '"end" [shape=doublecircle label="" width=0.15];'


def pages() -> list[Path]:
    """Return every page of the site, relative to the repository."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(path.relative_to(ROOT) for path in paths)


def gather(into: Path) -> None:
    """Copy pages, the files they link to and their pictures into a new directory."""
    shutil.rmtree(into, ignore_errors=True)
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        target = into / page
        target.parent.mkdir(parents=True, exist_ok=True)
        for linked in linked_files(page, text):
            copy_linked(linked, into)
        target.write_text(as_site_page(page, text), encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "pictures", into / "docs" / "pictures")


def linked_files(page: Path, text: str) -> Iterator[Path]:
    """Yield the files that a page links to, other pages excepted, relative to the repository."""
    for _, target, _ in _LINK.findall(text):
        path = (ROOT / page).parent / target
        if ":" not in target and path.exists() and path.suffix != ".md":
            yield path.resolve().relative_to(ROOT)


def copy_linked(linked: Path, into: Path) -> None:
    """Copy a file, or the files of a directory with a page that lists them."""
    if (ROOT / linked).is_file():
        (into / linked).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / linked, into / linked)
        return
    names = subprocess.run(
        ["git", "ls-files", "--", str(linked)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    for name in names:
        copy_linked(Path(name), into)
    rows = "".join(f"* [{name}](/{name})\n" for name in names)
    listing = into / f"{linked}-files.md"
    listing.parent.mkdir(parents=True, exist_ok=True)
    listing.write_text(f"# {linked}\n\n" + relative_links(rows, listing.relative_to(into)), encoding="utf-8")


def relative_links(text: str, page: Path) -> str:
    """Return a text with links from the root made relative to its page."""
    up = "../" * (len(page.parts) - 1)
    return text.replace("](/", f"]({up}")


def as_site_page(page: Path, text: str) -> str:
    """Return a page as the builders read it: fences with a language only, diagrams as pictures, directories as their lists
    of files.
    """
    text = _DIAGRAM.sub(lambda match: picture_of(match[1]), text)
    text = _FENCE.sub(r"\1```\2", text)

    def link_to_list(match: re.Match[str]) -> str:
        path = (ROOT / page).parent / match[2]
        is_listed = ":" not in match[2] and path.is_dir()
        return f"{match[1]}{match[2].rstrip('/')}-files.md{match[3]}" if is_listed else match[0]

    return _LINK.sub(link_to_list, text)


def graph_of(diagram: str) -> str:
    """Return a state diagram of Mermaid as a graph of Graphviz."""
    lines = []
    for source, target, event in _MOVE.findall(diagram):
        first = "begin" if source == _TERMINAL else source
        last = "end" if target == _TERMINAL else target
        lines.append(f'"{first}" -> "{last}" [label="{event}"];')
        lines += [_BEGIN] if source == _TERMINAL else []
        lines += [_END] if target == _TERMINAL else []
    return "\n".join(["digraph {", _STYLE, *lines, "}"])


def picture_of(diagram: str) -> str:
    """Return a diagram as a picture inside the page."""
    if shutil.which("dot") is None:
        sys.exit("tools/build_site.py: dot draws the diagrams and is not here; apt-get install graphviz")
    svg_file = subprocess.run(
        ["dot", "-Tsvg"], input=graph_of(diagram), check=True, capture_output=True, text=True
    ).stdout
    svg = svg_file[svg_file.index("<svg") :]
    svg = re.sub(r"\n\s*\n", "\n", svg).replace("black", "currentColor")
    return f'<div style="overflow-x: auto">\n{svg}</div>'


def settings_of(source: Path, site: Path) -> str:
    """Return mkdocs.yml for gathered pages elsewhere, of a file next to them. Zensical knows no INHERIT and no absolute paths."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for key, place in (("docs_dir", source), ("site_dir", site)):
        relative = os.path.relpath(place, source.parent)
        text = re.sub(rf"^{key}: .*$", f"{key}: {relative}", text, flags=re.MULTILINE)
    return text


def build(source: Path, site: Path, builder: str = "mkdocs") -> str:
    """Build a site from gathered pages; return the warnings and errors of the builder (of `SITES`), "" without any."""
    settings = source.parent / f"{builder}.yml"
    settings.write_text(settings_of(source, site), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, "-m", builder, "build", "--strict", "--clean", "--config-file", str(settings)],
        cwd=settings.parent,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=MOST_S,
    )
    messages = [line for line in finished.stderr.splitlines() if not line.startswith("INFO")]
    return "" if finished.returncode == 0 else "\n".join(messages) or finished.stdout


def main() -> int:
    """Gather and build with both builders; return 1 if there are warnings."""
    gather(SOURCE)
    for builder, site in SITES.items():
        if warnings := build(SOURCE, site, builder):
            print(warnings)
            return 1
        print(f"{site.relative_to(ROOT)}: {sum(1 for _ in site.rglob('*.html'))} pages, by {builder}")
    print(f"look at them by: python -m http.server --directory {SITES['mkdocs'].relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

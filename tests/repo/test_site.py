"""The documentation site: it builds without a warning, fetches nothing when it is read, and is spelled right."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.places import ROOT
from tools.build_site import as_site_page, build, gather, graph_of, pages

dot = pytest.mark.skipif(shutil.which("dot") is None, reason="no diagrams (Debian package graphviz)")
ASSET = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"'](?:https?:)?//|<link\b[^>]*\bhref=[\"'](?:https?:)?//"
)
"""What a browser would fetch from elsewhere."""


@dot
def test_the_site_builds_and_needs_no_network(tmp_path: Path) -> None:
    gather(tmp_path / "pages")
    assert build(tmp_path / "pages", tmp_path / "site") == ""
    html = list((tmp_path / "site").rglob("*.html"))
    assert len(html) > len(pages())
    for page in html:
        assert ASSET.findall(page.read_text()) == [], page.name
        pictures = re.findall(r"<img[^>]*src=\"([^\"]+)\"", page.read_text())
        assert [name for name in pictures if not (page.parent / name).exists()] == [], page.name


@dot
def test_zensical_builds_the_same_pages(tmp_path: Path) -> None:
    gather(tmp_path / "pages")
    assert build(tmp_path / "pages", tmp_path / "site", "zensical") == ""
    for page in pages():
        html = (tmp_path / "site" / page).with_suffix(".html")
        html = html.with_name("index.html") if page.name == "README.md" else html
        assert html.exists(), page


@dot
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    gather(tmp_path / "pages")
    kept = {tmp_path / "pages" / name for name in ("README.md", "docs/lab.md")}
    for path in (tmp_path / "pages").rglob("*.md"):
        if path not in kept:
            path.unlink()
    with (tmp_path / "pages/README.md").open("a") as page:
        page.write("\n[a](docs/lab.md#no-such-heading) [b](nowhere.md)\n")
    warnings = build(tmp_path / "pages", tmp_path / "site")
    assert "does not contain an anchor '#no-such-heading'" in warnings
    assert "'nowhere.md', but the target is not found" in warnings


@pytest.mark.parametrize(
    ("tag", "fetched"),
    [
        ('<script src="https://unpkg.com/mermaid.js">', True),
        ('<link rel="stylesheet" href="//fonts.example/css">', True),
        ('<script src="assets/javascripts/bundle.js">', False),
        ('<a href="https://ui.perfetto.dev">', False),
    ],
)
def test_what_would_be_fetched_is_found(tag: str, fetched: bool) -> None:
    assert bool(ASSET.search(tag)) is fetched


def test_fences_keep_their_language_alone() -> None:
    text = '```sh not-run="a device"\nls\n```\n'
    assert as_site_page(Path("docs/x.md"), text) == "```sh\nls\n```\n"


def test_links_to_directories_lead_to_their_list() -> None:
    assert (
        as_site_page(Path("README.md"), "[e](examples/) [l](docs/lab.md)")
        == "[e](examples-files.md) [l](docs/lab.md)"
    )


def test_a_diagram_becomes_a_graph() -> None:
    graph = graph_of("stateDiagram-v2\n    [*] --> A\n    A --> B: GO\n    B --> [*]\n")
    assert '"begin" -> "A" [label=""];' in graph
    assert '"A" -> "B" [label="GO"];' in graph
    assert '"B" -> "end" [label=""];' in graph
    assert '"end"' not in graph_of("stateDiagram-v2\n    [*] --> A\n")


def test_every_page_stands_in_the_navigation_once() -> None:
    listed = re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    assert sorted(listed) == sorted(path.as_posix() for path in pages())


def test_spelling() -> None:
    files = [str(path) for path in pages()] + ["tools/reference/meanings"]
    found = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *files], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (0, ""), f"{found.stdout}{found.stderr}"


def test_a_misspelt_word_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("What is recieved.\n")
    command = [sys.executable, "-m", "codespell_lib", str(tmp_path / "page.md")]
    assert (
        "recieved ==> received"
        in subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True).stdout
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name
)
def test_issue_forms_can_be_read(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.name == "config.yml":
        return
    assert {"name", "description", "body"} <= set(form)
    for field in form["body"]:
        assert field["type"] in {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        assert field["attributes"]["label"]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert f'version = "{citation["version"]}"' in (ROOT / "pyproject.toml").read_text()

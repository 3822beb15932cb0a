# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs: what the site has beside the files of docs/.

The home page is the README, `results/` holds the tables of benchmarks/results, and links to files of the repository that
are no pages lead to copies of them. The packages are laid out as they are installed, for the reference made of the code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)((?:#[^)]*)?\))")


def on_startup(**_: Any) -> None:
    """Lay out the package for the reference."""
    sources = ROOT / "build/site_sources/memc"
    sources.mkdir(parents=True, exist_ok=True)
    parts = [*(ROOT / "python/memc").iterdir(), *(ROOT / name for name in ("ir", "passes", "runtime"))]
    for part in parts:
        link = sources / part.name
        if part.name != "__pycache__" and not link.is_symlink():
            link.symlink_to(part)


def on_config(config: Any) -> Any:
    """List the pages of results."""
    tables = [f"results/{page.name}" for page in sorted(RESULTS.glob("*.md"))]
    config.nav.append({"Results": ["results.md", *tables]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the README as the home page, the tables, and the files that pages link to."""
    files.append(_page("index.md", ROOT / "README.md", config))
    for table in RESULTS.glob("*.md"):
        files.append(_page(f"results/{table.name}", table, config))
    for example in (ROOT / "examples").glob("*.py"):
        files.append(File.generated(config, f"files/examples/{example.name}", content=example.read_text()))
    files.append(File.generated(config, "files/CONTRIBUTING.md.txt", content=(ROOT / "CONTRIBUTING.md").read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    here = page.file.src_uri
    return LINK.sub(lambda link: link[1] + _target(link[2], here) + link[3], markdown)


def _page(uri: str, source: Path, config: Any) -> File:
    return File.generated(config, uri, content=source.read_text(encoding="utf-8"))


def _target(target: str, here: str) -> str:
    """Where a link of the page `here` leads, relative to it."""
    source = (
        "README.md" if here == "index.md" else f"benchmarks/{here}" if here.startswith("results/") else f"docs/{here}"
    )
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path.startswith("docs/"):
        uri = path.removeprefix("docs/")
    elif path.startswith("benchmarks/results/"):
        uri = path.removeprefix("benchmarks/")
    elif path == "README.md":
        uri = "index.md"
    elif path == "CONTRIBUTING.md":
        uri = "files/CONTRIBUTING.md.txt"
    elif path == "examples":
        uri = "files/examples/compile_and_run.py"
    else:
        uri = f"files/{path}"
    return posixpath.relpath(uri, posixpath.dirname(here) or ".")

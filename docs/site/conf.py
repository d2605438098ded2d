"""The configuration that Sphinx reads: the pages as they are in the repository, with the navigation
of docs/README.md. A link that is right on a code host is right here, since the tree is the same.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ROOT = Path(__file__).resolve().parents[2]
_SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PAGE = re.compile(r"\[([^\]]+)\]\(([^)#\s:]+)\.md\)")
_PICTURE = re.compile(r'src(?:set)?="([^":]+)"')

project = "Odradek"
html_title = "Odradek"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md"]
exclude_patterns = [
    each.name
    for each in _ROOT.iterdir()
    if each.is_dir() and (each.name.startswith(".") or each.name != "docs")
]
# The headings' anchors are those of GitHub.
myst_heading_anchors = 6
smartquotes = False
# The diagrams of states are drawn by code hosts; drawing them here would take a script of others.
highlight_language = "text"
html_theme = "furo"
html_show_sourcelink = html_copy_source = False
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _prepare)
    app.connect("build-finished", _finish)


def _prepare(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the navigation to the pages that hold it, and copy the pictures of a page."""
    text = source[0]
    folder = PurePosixPath(name).parent
    for picture in _PICTURE.findall(text):
        copy = Path(app.outdir, folder, picture)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / folder / picture, copy)
    if name == root_doc:
        text += _navigation()
    elif name == "docs/rules/README":
        text += _toctree("", dict.fromkeys(target for _, target in _PAGE.findall(text)))
    source[0] = re.sub(r"^```mermaid$", "```text", text, flags=re.MULTILINE)


def _navigation() -> str:
    """The sections of docs/README.md and their pages, each page once."""
    index = (_ROOT / "docs" / "README.md").read_text("utf-8")
    seen: set[str] = set()
    parts = [_toctree("", {"/docs/README": "All pages"})]
    for title, section in _SECTION.findall(index):
        pages: dict[str, str | None] = {}
        for words, target in _PAGE.findall(section):
            if target not in seen:
                seen.add(target)
                pages[f"docs/{target}"] = words
        parts.append(_toctree(title, pages))
    return "".join(parts)


def _toctree(title: str, pages: dict[str, str | None]) -> str:
    lines = [f"{words} <{page}>" if words else page for page, words in pages.items()]
    caption = [f":caption: {title}"] if title else []
    return "\n".join(["\n```{toctree}", ":hidden:", *caption, "", *lines, "```\n"])


def _finish(app: Sphinx, problem: Exception | None) -> None:
    if problem is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))

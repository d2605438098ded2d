"""The documents build as a site without a warning, and the site takes nothing from other hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.site.__main__ import build

# Half a minute; the links are also checked without the extra, in test_documents.py.
pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::DeprecationWarning"),
]
pytest.importorskip("furo", reason="the extra docs is not installed")

_FETCHED = re.compile(
    r"""<(?:script|img|source|iframe)[^>]*\bsrc(?:set)?="(?:https?:)?//[^"]+"|<link[^>]*href="(?:https?:)?//[^"]+\""""
    r"""|@import|url\(["']?(?:https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    assert build(folder) == 0
    return folder


def test_the_navigation_is_that_of_the_index(site: Path, repository: Path) -> None:
    index = (repository / "docs" / "README.md").read_text("utf-8")
    listed = set(re.findall(r"\]\(([^)#:.]+)\.md\)", index))
    first = (site / "index.html").read_text("utf-8")
    (tree,) = re.findall(r'<div class="sidebar-tree">(.*?)</div>', first, re.DOTALL)
    assert {f"docs/{each}.html" for each in listed} <= set(re.findall(r'href="([^"]+)"', tree))
    for caption in re.findall(r"^## (.+)", index, re.MULTILINE)[:-1]:
        assert caption in tree


def test_every_page_can_be_found_by_its_words(site: Path, repository: Path) -> None:
    pages = {
        each.relative_to(repository).with_suffix("").as_posix()
        for each in (repository / "docs").rglob("*.md")
    }
    found = (site / "searchindex.js").read_text("utf-8")
    assert {page for page in pages if f'"{page}"' not in found} == set()


def test_the_pages_fetch_nothing_from_other_hosts(site: Path) -> None:
    fetched = {
        (each.relative_to(site).as_posix(), found)
        for each in site.rglob("*")
        if each.suffix in {".html", ".css"}
        for found in _FETCHED.findall(each.read_text("utf-8"))
    }
    assert fetched == set()


def test_pictures_in_html_are_copied(site: Path) -> None:
    first = (site / "index.html").read_text("utf-8")
    pictures = re.findall(r'src(?:set)?="(docs/[^"?]+)', first)
    assert pictures and all((site / each).is_file() for each in pictures)

"""Links, anchors, files and modules in documents exist, and drawings match the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from types import ModuleType

import docs.drawings.__main__ as drawings
import docs.references.__main__ as references
import pytest

from product_modules import ROOMS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (*ROOMS, "benchmarks", "docker", "docs", "tests")
PAGES = sorted(
    path.relative_to(ROOT)
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if path.is_file()
)
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)|src(?:set)?=\"([^\"]+)\"")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
#: A path in the project, either of a file with one of our extensions or of a folder.
_FILE = re.compile(
    rf"(?:[\w.*-]+/)+(?:[\w.*-]+\.(?:py|pyi|c|md|svg|jsonl|yaml|toml))?|(?:{'|'.join(FOLDERS)})(?:/[\w.*-]+)+"
)
_MODULE = re.compile(
    r"python -m ((?:tests|benchmarks|docs|odradek\w*|pyspark_odradek)(?:\.[a-z_]+)*)"
)
_DOCUMENT = re.compile(r"\bdocs/[\w/.-]+\.(?:md|svg)\b")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@cache
def _files() -> tuple[str, ...]:
    """The path of every file that belongs to the project."""
    folders = (ROOT / folder for folder in FOLDERS)
    inside = (path for folder in folders for path in folder.rglob("*"))
    return tuple(
        path.relative_to(ROOT).as_posix()
        for path in [*ROOT.iterdir(), *inside]
        if path.is_file() and "__pycache__" not in path.parts
    )


@cache
def _anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub generates from the headings of a page."""
    text = _FENCED.sub("", (ROOT / page).read_text("utf-8"))
    return frozenset(
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    )


def _is_here(name: str) -> bool:
    """True if this is the path of a file or folder, or the last part of such a path."""
    folder = f"/{name.rstrip('/')}/"
    return any(folder in f"/{each}" or fnmatch(f"/{each}", f"*/{name}") for each in _files())


def _broken_links(page: Path) -> Iterator[str]:
    text = _FENCED.sub("", (ROOT / page).read_text("utf-8"))
    for target, anchor, source in _LINK.findall(text):
        name = target or source
        if "://" in name:
            continue
        there = (ROOT / page).parent / name if name else ROOT / page
        if not there.exists():
            yield name
        elif anchor and anchor not in _anchors(there.resolve().relative_to(ROOT)):
            yield f"{name}#{anchor}"


def test_links_of_pages_lead_to_existing_targets() -> None:
    assert [f"{page}: {link}" for page in PAGES for link in _broken_links(page)] == []


def test_files_that_pages_name_exist() -> None:
    missing = [
        f"{page}: {name}"
        for page in PAGES
        for name in _CODE.findall(_FENCED.sub("", (ROOT / page).read_text("utf-8")))
        if _FILE.fullmatch(name) and not _is_here(name)
    ]
    assert missing == []


def test_modules_that_pages_run_exist() -> None:
    missing = [
        f"{page}: {module}"
        for page in PAGES
        for module in _MODULE.findall((ROOT / page).read_text("utf-8"))
        if module != "odradek"
        for path in [module.replace(".", "/")]
        if not (_is_here(f"{path}.py") or _is_here(f"{path}/__main__.py"))
    ]
    assert missing == []


def test_documents_that_code_names_exist() -> None:
    missing = {
        f"{name}: {document}"
        for name in _files()
        if name.endswith((".py", ".c", ".toml", ".md", ".yaml"))
        for document in _DOCUMENT.findall((ROOT / name).read_text("utf-8"))
        if not (ROOT / document).exists()
    }
    assert sorted(missing) == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    linked = {(ROOT / "docs" / target).resolve() for target, _, _ in _LINK.findall(index) if target}
    pages = {
        path.resolve()
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "README.md" and path.parent.name != "rules"
    }
    assert sorted(str(each.relative_to(ROOT)) for each in pages - linked) == []


@pytest.mark.parametrize("made", [drawings, references], ids=["drawings", "references"])
def test_files_that_are_made_are_up_to_date(made: ModuleType) -> None:
    for path, text in made.files().items():
        assert path.read_text("utf-8") == text, f"run: python -m {made.__package__}"


def test_the_reference_of_admin_names_errors_that_exist() -> None:
    """An error that can be imported is shown as code; any other is a wrong name."""
    page = (ROOT / "docs" / "use" / "admin-reference.md").read_text("utf-8")
    plain = _CODE.sub("", _FENCED.sub("", page))
    assert re.findall(r"\b[A-Z]\w+(?:Failed|Known|Fenced|Lost|Range|Exists|By\w+)\b", plain) == []
    for name in re.findall(r"^    async def ([a-z]\w+)", _admin_sources(), re.MULTILINE):
        assert f"\n### {name}\n" in page


def _admin_sources() -> str:
    parts = ROOT / "client" / "odradek_client" / "admin"
    others = {"requests.py"}
    return "".join(each.read_text() for each in parts.glob("*.py") if each.name not in others)

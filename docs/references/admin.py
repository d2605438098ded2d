"""docs/use/admin-reference.md, made from the docstrings and signatures of `Admin`:

python -m docs.references
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import GenericAlias, UnionType
from typing import Any

from docs.references.errors import classes, prose

import odradek
import odradek_client.admin
from odradek_client.admin import Admin
from odradek_protocol.settings import table_row

_TOP = """\
# Reference of Admin

<!-- Made by `python -m docs.references`; a test holds it equal. -->

Every method of `odradek.Admin`; `odradek.sync.Admin` has the same ones without `await`. [Administration](admin.md) shows how they
are used, [errors](errors.md) says what each error means.

A call about one item raises the item's error. A call about several items (it returns `Results`, a dictionary) tries all of them,
and then raises the first error, with the others in its notes; with `raise_errors=False` the errors by item are in
`Results.errors` instead. Requests that fail for a moment are sent again for `default_api_timeout_ms`; then their last error is
raised. Any call may raise `ConnectionLost`, `RequestTimedOut`, `AuthenticationFailed`, `UnsupportedByBroker`, and `Closed` after
`close`.
"""
_TYPES = """
## Types

| type | imported from | fields or values | what it is |
|---|---|---|---|
"""
_WIDTH = 96


def page() -> str:
    """The text of docs/use/admin-reference.md."""
    parts = [_TOP]
    for title, methods in _sections():
        parts.append(f"\n## {title}\n")
        for method in methods:
            parts.append(f"\n### {method.__name__}\n\n```text\n{_signature(method)}\n```\n")
            parts.append(f"\n{prose(method)}\n")
    parts.append(_TYPES)
    parts += [_row(name, kind) for name, kind in _types()]
    return "".join(parts)


def _sections() -> Iterator[tuple[str, list[Callable[..., object]]]]:
    for part in Admin.__mro__:
        names = [name for name in vars(part) if not name.startswith("_")]
        # `Admin` has wrapped the methods of its parts, and begins and ends itself.
        if part is Admin:
            names = ["start", "close"]
        methods = [inspect.unwrap(getattr(part, name)) for name in names]
        if methods:
            about = re.sub(r"^The calls? about |\.$", "", inspect.getdoc(part) or "")
            yield ("Begin and end" if part is Admin else about[0].upper() + about[1:]), methods


def _signature(method: Callable[..., object]) -> str:
    signature = inspect.signature(method)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    bare = [
        each.replace(annotation=inspect.Parameter.empty) for each in kept
    ]  # annotations are texts, which would be shown in quotes
    shown = []
    for one, plain in zip(kept, bare, strict=True):
        text, equals, default = str(plain).partition("=")
        annotated = f"{text}: {one.annotation}"
        shown.append(f"{annotated} = {default}" if equals else annotated)
    for index, one in enumerate(kept):
        if one.kind is inspect.Parameter.VAR_POSITIONAL:
            break
        if one.kind is inspect.Parameter.KEYWORD_ONLY:
            shown.insert(index, "*")
            break
    head, tail = f"{method.__name__}(", f") -> {signature.return_annotation}"
    line = f"{head}{', '.join(shown)}{tail}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([head, *(f"    {each}," for each in shown), tail])


def _types() -> list[tuple[str, Any]]:
    """The types of this project that signatures name, and those of their fields, by name."""
    found: dict[int, tuple[str, Any]] = {}
    texts = [
        (text, method.__module__)
        for _, methods in _sections()
        for method in methods
        for text in method.__annotations__.values()
    ]
    while texts:
        text, module = texts.pop()
        for name in re.findall(r"[A-Z]\w+", text):
            kind = getattr(sys.modules[module], name, None)
            if id(kind) in found or name in classes() or not _is_ours(kind):
                continue
            found[id(kind)] = name, kind
            texts += [(each, kind.__module__) for each in _fields(kind).values()]
    return sorted(found.values(), key=lambda each: (each[0], _home(*each)))


def _is_ours(kind: Any) -> bool:
    is_alias = isinstance(kind, GenericAlias | UnionType)
    return is_alias or getattr(kind, "__module__", "").startswith("odradek")


def _fields(kind: Any) -> dict[str, str]:
    return {
        name: text
        for name, text in getattr(kind, "__annotations__", {}).items()
        if not name.startswith("_") and isinstance(text, str)
    }


def _row(name: str, kind: Any) -> str:
    if not isinstance(kind, type):
        plain = re.sub(r"\b[a-z_]+\.", "", str(kind))
        return table_row(f"`{name}`", "", f"`{plain}`", "another name")
    if issubclass(kind, Enum):
        content = ", ".join(f"`{each.name}`" for each in kind)
    else:
        content = ", ".join(f"`{field}: {text}`" for field, text in _fields(kind).items())
    about = prose(kind).split("\n\n")[0]
    return table_row(f"`{name}`", f"`{_home(name, kind)}`", content, about)


def _home(name: str, kind: Any) -> str:
    public = (odradek, odradek_client.admin)
    homes = [each.__name__ for each in public if getattr(each, name, None) is kind]
    return next(iter(homes), getattr(kind, "__module__", ""))

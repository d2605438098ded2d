"""Masks of values, which show the shape of JSON without its texts and numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

_ITEMS_MAX = 20
_NAMES_MAX = 200
_DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class Masks:
    """The choice of the values that are shown.

    `show_all`: values are shown unchanged. `shown`, `hidden`: patterns of field paths such as
    `customer.name` or `*.id`, whose values are shown or hidden regardless of `show_all`; `hidden`
    takes precedence over `shown`. Items of a list have the path of the list.
    """

    show_all: bool = False
    shown: Sequence[str] = ()
    hidden: Sequence[str] = ()

    def apply(self, value: Any) -> Any:
        """The value, with hidden parts replaced by their type and length."""
        return self._masked(value, "", 0)

    def _masked(self, value: Any, path: str, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            return "nested too deeply"
        if _matches(path, self.hidden):
            return _shape(value)
        if isinstance(value, dict):
            names = list(value)
            masked = {
                name: self._masked(value[name], f"{path}.{name}" if path else name, depth + 1)
                for name in names[:_NAMES_MAX]
            }
            if len(names) > _NAMES_MAX:
                masked["..."] = f"{len(names) - _NAMES_MAX} more fields"
            return masked
        if isinstance(value, list):
            items = [self._masked(each, path, depth + 1) for each in value[:_ITEMS_MAX]]
            more = len(value) - _ITEMS_MAX
            return [*items, f"{more} more items"] if more > 0 else items
        if self.show_all or _matches(path, self.shown):
            return value
        return _shape(value)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return bool(path) and any(fnmatchcase(path, each) for each in patterns)


def _shape(value: Any) -> Any:
    """The text in place of a hidden value: its type, and the length of a string. Null stays
    null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "<boolean>"
    if isinstance(value, int | float):
        return "<number>"
    if isinstance(value, str):
        return f"<text of {len(value)}>"
    return "<object>" if isinstance(value, dict) else "<list>"


def shortened(value: Any, characters_max: int) -> Any:
    """The value, or a note instead if its JSON is longer than the limit."""
    length = len(json.dumps(value, ensure_ascii=False))
    return value if length <= characters_max else f"<left out: {length} characters of JSON>"

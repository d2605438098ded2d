"""Masks of values, which show the shape of JSON without its texts and numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

_ITEMS_MAX = 20
_NAMES_MAX = 200
_DEPTH_MAX = 64
#: A text without a brace, plain or escaped, has no object of JSON.
_BRACE = re.compile(r"\{|\\u007b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Masks:
    """The choice of the values that are shown.

    `show_all`: values are shown unchanged. `shown`, `hidden`: patterns of field paths such as
    `customer.name` or `*.id`, whose values are shown or hidden regardless of `show_all`; `hidden`
    takes precedence over `shown`, and ignores case. Items of a list have the path of the list.

    If anything is hidden, a whole without fields, such as a text, is hidden too, unless `shown` has
    its name, because nobody knows what it contains; and JSON inside of texts is searched. A text
    that has a brace and is no JSON as a whole is hidden: its fields cannot be found.
    """

    show_all: bool = False
    shown: Sequence[str] = ()
    hidden: Sequence[str] = ()

    def apply(self, value: Any, *names: str) -> Any:
        """The value, with hidden parts replaced by their type and length. `names`: the names of the
        whole value, such as "key"; paths may begin with them."""
        return self._masked(value, names, "", 0)

    def header(self, name: str, value: str | None) -> Any:
        """The value of a header, whose path is its name, or `headers.` and its name."""
        return self._masked(value, (), name, 0, "headers.")

    def _masked(
        self, value: Any, names: Sequence[str], path: str, depth: int, prefix: str = ""
    ) -> Any:
        if depth > _DEPTH_MAX:
            return "nested too deeply"
        paths = [f"{name}.{path}" if path else name for name in names]
        paths += [path, prefix + path] if path or prefix else []
        if _matches(paths, self.hidden, ignore_case=True):
            return _shape(value)
        if isinstance(value, dict):
            fields = list(value)
            masked = {
                name: self._masked(
                    value[name], names, f"{path}.{name}" if path else name, depth + 1, prefix
                )
                for name in fields[:_NAMES_MAX]
            }
            if len(fields) > _NAMES_MAX:
                masked["..."] = f"{len(fields) - _NAMES_MAX} more fields"
            return masked
        if isinstance(value, list):
            items = [
                self._masked(each, names, path, depth + 1, prefix) for each in value[:_ITEMS_MAX]
            ]
            more = len(value) - _ITEMS_MAX
            return [*items, f"{more} more items"] if more > 0 else items
        is_shown = _matches(paths, self.shown)
        has_no_field = bool(self.hidden and names and not path)
        if not is_shown and (has_no_field or not self.show_all):
            return _shape(value)
        return self._text(value, paths, depth) if self.hidden else value

    def _text(self, value: Any, paths: Sequence[str], depth: int) -> Any:
        """A value that is not hidden as a whole. JSON in a text is written again, because a field
        that the text has twice is read once."""
        if not isinstance(value, str) or not _BRACE.search(value):
            return value
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return _shape(value)
        # A pattern may name a field by the path to the text, or by the path inside of it.
        masked = Masks(True, hidden=self.hidden)._masked(inner, paths, "", depth + 1)
        return json.dumps(masked, ensure_ascii=False)


def _matches(paths: Sequence[str], patterns: Sequence[str], *, ignore_case: bool = False) -> bool:
    if ignore_case:
        paths, patterns = (
            [each.casefold() for each in paths],
            [each.casefold() for each in patterns],
        )
    return any(fnmatchcase(path, each) for path in paths for each in patterns)


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

"""Masks of keys, values and headers, which show the shape of JSON without its texts and numbers.

    masks = Masks(show_all=True, hidden=["customer.*"])
    shown = masked_part(record.value, masks, topic=record.topic, is_key=False, registry=decoders)
    shown.format, shown.value

`odradek mcp` and the console show records through this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from odradek_records.decoders import Decoded, Decoders, decode

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

    `items_max`, `names_max`: the numbers of items of a list and of fields of an object that are
    shown.
    """

    show_all: bool = False
    shown: Sequence[str] = ()
    hidden: Sequence[str] = ()
    items_max: int = 20
    names_max: int = 200

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
                for name in fields[: self.names_max]
            }
            if len(fields) > self.names_max:
                masked["..."] = f"{len(fields) - self.names_max} more fields"
            return masked
        if isinstance(value, list):
            items = [
                self._masked(each, names, path, depth + 1, prefix)
                for each in value[: self.items_max]
            ]
            more = len(value) - self.items_max
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
        masked = replace(self, show_all=True, shown=())._masked(inner, paths, "", depth + 1)
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


def masked_part(
    data: bytes | None, masks: Masks, *, topic: str, is_key: bool, registry: Decoders
) -> Decoded:
    """A key or value as its guessed format, with hidden parts replaced in `value`; bytes of no
    format are a text, their hex dump. `attempts` are left out if anything is hidden, because they
    may quote the bytes. May block, as `decode` may."""
    found = decode(data, topic=topic, is_key=is_key, registry=registry)
    whole = found.text if found.format == "hex" else found.value
    value = masks.apply(whole, "key" if is_key else "value")
    attempts = found.attempts if masks.show_all and not masks.hidden else ()
    return Decoded(found.format, "", value, attempts)


def masked_header(name: str, value: bytes | None, masks: Masks) -> Any:
    """The value of a header as text, or as hexadecimal digits if it is no text; hidden parts are
    replaced."""
    if value is None:
        return masks.header(name, None)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.hex()
    return masks.header(name, text)


def bytes_shown(shown: Any) -> bytes | None:
    """The bytes of a shown key, value or header. A filter gets these instead of the record's,
    because its answers to questions about hidden values would reveal the values."""
    if shown is None or isinstance(shown, str):
        return None if shown is None else shown.encode("utf-8", "surrogatepass")
    return json.dumps(shown, ensure_ascii=False).encode("utf-8", "surrogatepass")

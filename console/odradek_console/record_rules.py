"""The decoders and masks of this process, and what pages may see of a record.

Every record that the console reads goes through `masked`. So lists, panels, files, tails and
filters have only what the masks show, and a filter cannot be asked about hidden values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.record import Headers
from odradek_records.decoders import Decoders
from odradek_records.masking import Masks, bytes_shown, masked_header, masked_part


class MaskedPart(NamedTuple):
    """A key or value as masks show it: the name of its format, the value, the same as bytes, and
    the size of the record's own bytes."""

    format: str
    value: Any
    data: bytes | None
    size_bytes: int | None


class MaskedRecord(NamedTuple):
    """A record as masks show it. `header_sizes`: the sizes of the record's own headers."""

    key: MaskedPart
    value: MaskedPart
    headers: Headers
    header_sizes: tuple[int | None, ...]


@dataclass
class _Rules:
    decoders: Decoders | None = None
    masks: Masks | None = None


_rules = _Rules()


def use_decoders(found: Decoders) -> None:
    """Let all requests of this process share these decoders."""
    _rules.decoders = found


def use_masks(masks: Masks | None) -> None:
    """Let all requests of this process see records through these masks; None: as they are."""
    _rules.masks = masks


def decoders() -> Decoders:
    """The decoders that all requests of this process share."""
    if _rules.decoders is None:
        use_decoders(Decoders())
    assert _rules.decoders is not None
    return _rules.decoders


def formats() -> tuple[str, ...]:
    """The formats that pages may choose. Masks find fields in the guessed format only: another one
    would have other names, or none."""
    known = decoders().formats
    return known if _rules.masks is None else known[:1]


def masked(
    topic: str, key: bytes | None, value: bytes | None, headers: Headers
) -> MaskedRecord | None:
    """The record as the masks show it; None without masks. May block, because decoders of other
    packages may block."""
    masks = _rules.masks
    if masks is None:
        return None

    def part(data: bytes | None, is_key: bool) -> MaskedPart:
        found = masked_part(data, masks, topic=topic, is_key=is_key, registry=decoders())
        size_bytes = None if data is None else len(data)
        return MaskedPart(found.format, found.value, bytes_shown(found.value), size_bytes)

    return MaskedRecord(
        part(key, True),
        part(value, False),
        tuple((name, bytes_shown(masked_header(name, data, masks))) for name, data in headers),
        tuple(None if data is None else len(data) for _, data in headers),
    )

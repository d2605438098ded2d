"""Control records: the markers that end transactions in a partition's log (R-30..R-32), and the
header and footer of a snapshot of the metadata log.

If a later version appends fields to the key or the value, only the known prefix is read.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from construct import Byte, ConstructError, Int16sb, Int32sb, Int64sb, Struct

from odradek_protocol.lazy_tuple import NamedTuple

VERSION = 0


class ControlType(IntEnum):
    """The type of a control record. Readers ignore records of unknown types (R-31)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


CONTROL_KEY: Any = Struct("version" / Int16sb, "type" / Int16sb)
"""Key of every control record."""

END_TRANSACTION_MARKER: Any = Struct("version" / Int16sb, "coordinator_epoch" / Int32sb)
"""Value of ABORT and COMMIT; the epoch of the coordinator that decided (T-41)."""


SNAPSHOT_HEADER: Any = Struct(
    "version" / Int16sb, "last_contained_log_timestamp" / Int64sb, "tagged_fields" / Byte
)
"""Value of SNAPSHOT_HEADER; the time of the last log record that the snapshot covers (KIP-630)."""

SNAPSHOT_FOOTER: Any = Struct("version" / Int16sb, "tagged_fields" / Byte)
"""Value of SNAPSHOT_FOOTER."""


class ControlMarkerError(ValueError):
    """An invalid key or value of a control record."""


class EndTransactionMarker(NamedTuple):
    """The end of one producer's transaction in a partition."""

    kind: ControlType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.kind is ControlType.COMMIT


def encode_key(kind: ControlType) -> bytes:
    """The key of a control record: int16 version 0, int16 type."""
    encoded: bytes = CONTROL_KEY.build({"version": VERSION, "type": kind})
    return encoded


def encode_marker(coordinator_epoch: int) -> bytes:
    """The value of a transaction marker: int16 version 0, int32 coordinator epoch."""
    encoded: bytes = END_TRANSACTION_MARKER.build(
        {"version": VERSION, "coordinator_epoch": coordinator_epoch}
    )
    return encoded


def encode_snapshot_header(last_contained_ms: int) -> bytes:
    """The value of the first record of a snapshot, with a timestamp in milliseconds."""
    fields = {"last_contained_log_timestamp": last_contained_ms, "tagged_fields": 0}
    encoded: bytes = SNAPSHOT_HEADER.build({"version": VERSION, **fields})
    return encoded


def encode_snapshot_footer() -> bytes:
    """The value of the last record of a snapshot."""
    encoded: bytes = SNAPSHOT_FOOTER.build({"version": VERSION, "tagged_fields": 0})
    return encoded


def decode_snapshot_header(value: bytes | None) -> int:
    """The timestamp, in milliseconds, in the value of a snapshot's first record. Raises
    ControlMarkerError."""
    timestamp: int = _parse(SNAPSHOT_HEADER, value, "snapshot header").last_contained_log_timestamp
    return timestamp


def decode_type(key: bytes | None) -> ControlType | None:
    """The type in the key of a control record; None for an unknown type, because readers ignore it.

    Raises ControlMarkerError for a key that is null, too short or of a negative version.
    """
    fields = _parse(CONTROL_KEY, key, "control record key")
    try:
        return ControlType(fields.type)
    except ValueError:
        return None


def decode_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker | None:
    """The transaction marker of a control record; None for a control record of another type.

    Raises ControlMarkerError for an invalid key or value.
    """
    kind = decode_type(key)
    if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
        return None
    fields = _parse(END_TRANSACTION_MARKER, value, "transaction marker")
    return EndTransactionMarker(kind, fields.coordinator_epoch)


def _parse(declaration: Any, data: bytes | None, what: str) -> Any:
    if data is None:
        raise ControlMarkerError(f"{what} is null")
    try:
        fields = declaration.parse(data)
    except ConstructError as error:
        raise ControlMarkerError(f"{what} is cut short: {data.hex()}") from error
    if fields.version < 0:
        raise ControlMarkerError(f"{what} has the impossible version {fields.version}")
    return fields

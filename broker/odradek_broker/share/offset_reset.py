"""share.auto.offset.reset: the offset at which a share group begins in a partition that it has not
read yet (H-168)."""

from __future__ import annotations

from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.reading import Known
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.settings import parse_iso_duration_ms

_BY_DURATION = "by_duration:"


class OffsetReset(NamedTuple):
    """A strategy. `duration_ms`: the group begins with the first record of the last `duration_ms`
    milliseconds. With None, the group begins at the end of the log if `latest`, else at its
    start."""

    latest: bool
    duration_ms: int | None = None

    @classmethod
    def parsed(cls, text: str) -> OffsetReset:
        """The strategy of a setting. Raises ValueError for any other text."""
        if text.lower() in ("latest", "earliest"):
            return cls(latest=text.lower() == "latest")
        if not text.lower().startswith(_BY_DURATION):
            raise ValueError(f"{text!r} is not latest, earliest or by_duration:PnDTnHnMn.nS")
        duration_ms = parse_iso_duration_ms(text[len(_BY_DURATION) :])
        if duration_ms is None or duration_ms < 0:
            raise ValueError(f"{text!r} has no duration such as P7D or PT1H30M")
        return cls(latest=False, duration_ms=duration_ms)

    def offset_in(self, log: PartitionLog, now_ms: int, known: Known | None = None) -> int:
        """The first offset for a group that begins now; `now_ms` is wall time. Raises StorageError
        if the log cannot be searched, and SearchTakesLong unless `known` is None."""
        if self.duration_ms is not None:
            bound = log.high_watermark
            found = log.offset_for_timestamp(now_ms - self.duration_ms, bound, known)
            return bound if found is None else found[0]
        return log.high_watermark if self.latest else log.log_start_offset

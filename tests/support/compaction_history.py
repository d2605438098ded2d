"""Random histories of a compacted log, and of a model of it that gets the same batches: keys,
tombstones, transactions, codecs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from compaction import compact
from compaction_model import LogModel, ModelBatch
from logs import NOW_MS, append, headers, make_log, make_marker, read_all
from odradek_broker.storage.cleaner.policy import log_to_clean
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.log_options import LogStart
from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.records.record import read_records
from odradek_protocol.stored.control_marker import decode_marker
from odradek_testkit.simulation.disk import MemoryFiles

RETENTION_MS = 500
_KEYS = [b"k%d" % number for number in range(6)] + [
    b"a long key, kept as a digest %d" % n for n in range(3)
]


def batches_of(log: PartitionLog) -> list[ModelBatch]:
    """The batches of a log in the form of the model."""
    data = read_all(log)
    found = []
    for position, header in iter_batches(data):
        records = read_records(data, position, header)
        control = ""
        if header.is_control:
            marker = decode_marker(records[0].key, records[0].value) if records else None
            control = "emptied" if marker is None else ("commit" if marker.is_commit else "abort")
        found.append(
            ModelBatch(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.is_transactional,
                control,
                tuple((record.offset, record.key, record.value) for record in records),
                header.delete_horizon_ms,
            )
        )
    return found


def as_read(batch: ModelBatch) -> ModelBatch:
    """A batch of the model as the log would return it: a marker without records has lost its
    type."""
    if batch.control and not batch.records:
        return ModelBatch(**{**batch.__dict__, "control": "emptied"})
    return batch


class CompactedHistory:
    """A log on a disk in memory, and its model."""

    def __init__(
        self,
        seed: int,
        codecs: Sequence[Codec] = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD),
        **config: Any,
    ) -> None:
        self._codecs = codecs
        self.random = random.Random(seed)
        self.files = MemoryFiles(now_ms=NOW_MS)
        self.config: dict[str, Any] = {
            "cleanup_policy": frozenset({"compact"}),
            "segment_bytes": self.random.choice((300, 700, 2_000)),
            "index_interval_bytes": 100,
            "delete_retention_ms": RETENTION_MS,
            "durability": "fsync",
            **config,
        }
        self.log = make_log(self.files, **self.config)
        self.model = LogModel()
        self.now_ms = NOW_MS
        self.cleaned_to: int | None = None
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()

    # ---- appending

    def step(self) -> None:
        """Append a random batch or marker to log and model."""
        draw = self.random.random()
        self.now_ms += self.random.choice((0, 1, 50))
        if draw < 0.35:
            self._append_data(self.random.choice((-1, 1, 2)), transactional=False)
        elif draw < 0.75 or not self._open:
            self._append_data(self.random.choice((11, 12, 13)), transactional=True)
        else:
            self.end_transaction(self.random.choice(sorted(self._open)))

    def _append_data(self, producer_id: int, *, transactional: bool) -> None:
        random = self.random
        builder = BatchBuilder(random.choice(self._codecs))
        pairs = []
        for _ in range(random.randint(1, 4)):
            value = None if random.random() < 0.3 else b"v%d" % random.randrange(1000)
            pairs.append((random.choice(_KEYS), value))
            headers_given = [("h", b"x")] if random.random() < 0.1 else []
            builder.append(self.now_ms + random.randint(-5, 5), *pairs[-1], headers_given)
        given: dict[str, Any] = {}
        sequence = -1
        if producer_id >= 0:
            sequence = self._sequences.get(producer_id, 0)
            self._sequences[producer_id] = sequence + len(pairs)
            given = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        batch = memoryview(builder.build(transactional=transactional, **given))
        result = append(self.log, batch, now_ms=self.now_ms)
        if transactional:
            self._open.add(producer_id)
        self.model.append(
            ModelBatch(
                result.base_offset,
                result.last_offset,
                producer_id,
                0 if producer_id >= 0 else -1,
                sequence,
                transactional,
                "",
                tuple((result.base_offset + n, *pair) for n, pair in enumerate(pairs)),
            )
        )

    def end_transaction(self, producer_id: int) -> None:
        """Commit or abort a transaction at random."""
        committed = self.random.random() < 0.5
        marker = make_marker(committed, producer_id)
        result = append(self.log, marker, origin=AppendOrigin.COORDINATOR, now_ms=self.now_ms)
        self._open.discard(producer_id)
        data = read_records(marker, 0, headers(bytes(marker))[0])[0]
        self.model.append(
            ModelBatch(
                result.base_offset,
                result.last_offset,
                producer_id,
                0,
                -1,
                True,
                "commit" if committed else "abort",
                ((result.base_offset, data.key, data.value),),
            )
        )

    def end_transactions(self) -> None:
        """End all transactions, so that the last stable offset is the log end."""
        for producer_id in sorted(self._open):
            self.end_transaction(producer_id)

    # ---- cleaning

    def clean(self, **changes: Any) -> None:
        """Clean the log and the model, and compare them."""
        self.flush()
        self.clean_model()
        self.cleaned_to = compact(self.log, self.files, self.now_ms, self.cleaned_to, **changes)
        self.check()

    def clean_model(self) -> None:
        """Clean only the model."""
        found = log_to_clean(self.log, self.cleaned_to, self.now_ms)
        last = {
            entry.producer_id: (entry.last_offset, entry.epoch)
            for entry in self.log.producers.entries()
        }
        if found.cleanable_bytes:
            self.model.clean(
                found.first_dirty_offset, found.upper_bound, self.now_ms, RETENTION_MS, last
            )

    def check(self) -> None:
        """Check that log and model are equal."""
        assert batches_of(self.log) == [as_read(batch) for batch in self.model.batches]

    def flush(self) -> None:
        """Make everything durable."""
        self.log.durability.flush()

    def reopen(self) -> None:
        """Reopen the log after a crash that loses no data."""
        start = LogStart(
            self.log.log_start_offset,
            0,
            self.random.choice((0, self.log.durability.durable_offset)),
        )
        self.files.crash()
        self.log = make_log(self.files, start=start, **self.config)

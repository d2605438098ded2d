"""Errors of storage, as exceptions that carry Kafka's error code.

StorageError
  AppendRejected        a batch was refused; nothing was written
    NotOneBatch         what was sent is not one batch of our format (P-06)
  OffsetOutOfRange      a read below the log start or above the log end (F-07)
  PartitionOffline      the files of this partition are no longer trusted (L-08, D5)
  LogCorrupt            a read found damaged bytes
  IndexesBeingRebuilt   a read needs indexes that a worker is rebuilding (L-33)
  DeleteRecordsRejected the topic's policy or the offset does not allow it (L-11)
DataDirectoryError      the data directory cannot be used at all; the broker does not start
  DataDirectoryInUse    another process holds the directory's lock
  DataDirectoryFailed   the directory's disk fails; other directories may still be used (L-43)
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Sequence
from typing import Self

from odradek_protocol.errors import CodedError, ErrorCode


class StorageError(CodedError):
    """The base class of these errors."""


class AppendRejected(StorageError):
    """A batch was refused as a whole (R-06).

    `record_errors`: (index of the record in its batch, what is wrong with it).
    """

    def __init__(
        self,
        error: ErrorCode,
        message: str,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> None:
        super().__init__(error, message)
        self.record_errors = list(record_errors)

    def kept(self) -> Self:
        """The same refusal, to be kept for later. The traceback and the context of one that was
        raised have frames in which the inflated records are."""
        return type(self)(self.error, self.message, self.record_errors)


class NotOneBatch(AppendRejected):
    """The bytes are no whole batch, several batches, or a batch of another format (P-06)."""


class TakesLong(Exception):
    """The check of a batch would hold the event loop for too long, because the batch inflates to
    much (N-57). Nothing has changed; `validation.prepare` can check the batch in a thread."""


class SearchTakesLong(Exception):
    """A search for a record by its timestamp has to read a batch that would hold the event loop for
    too long (N-57). `work()` searches the batch, in any thread, and raises LogCorrupt; its result
    under `key` lets the search go on when it is repeated."""

    def __init__(self, key: Hashable, work: Callable[[], tuple[int, int] | None]) -> None:
        super().__init__(key)
        self.key = key
        self.work = work


class ThreadBusy(StorageError):
    """Too much work waits for the thread that checks and reads large batches; clients try again."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            "too many batches that inflate to megabytes wait for the thread that reads them",
        )


class OffsetOutOfRange(StorageError):
    """The offset is below the log start or above the log end (F-07)."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is outside the log, which holds {log_start_offset} to"
            f" {log_end_offset}",
        )


class PartitionOffline(StorageError):
    """The disk failed under this partition. The partition is not served until the broker restarts,
    or, if its log could not be opened, until it can be opened."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"partition {name} is offline after a disk error: {reason}; check the disk, then"
            " restart the broker",
        )


class LogCorrupt(StorageError):
    """Stored bytes are damaged. Only reads of these bytes fail: the records before and after them
    stay available."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class IndexesBeingRebuilt(StorageError):
    """A closed segment is being scanned for new indexes. The scan ends soon; clients ask again."""

    def __init__(self, path: str) -> None:
        super().__init__(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"the indexes of {path} are being created again"
        )


class DeleteRecordsRejected(StorageError):
    """The topic's policy forbids DeleteRecords, or the offset does not exist (L-11)."""


class DataDirectoryError(Exception):
    """The data directory is not usable; the text says why and what to do."""


class DataDirectoryInUse(DataDirectoryError):
    """Another process holds the lock of the data directory."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(
            f"the data directory {data_dir} is in use by another broker (its file .lock is held);"
            " stop that broker or choose another --data-dir"
        )


class DataDirectoryFailed(DataDirectoryError):
    """The disk refuses to be read or written."""


def no_room(problem: OSError) -> bool:
    """True if the disk is full or read-only. Such a disk can still be read."""
    return problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def out_of_files(problem: OSError) -> bool:
    """True if too many files and connections are open. This state is temporary, and no fault of
    the disk."""
    return problem.errno in (errno.EMFILE, errno.ENFILE)

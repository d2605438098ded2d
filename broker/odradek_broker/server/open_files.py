"""Open files: how many this process may have, and how they are shared out."""

from __future__ import annotations

import contextlib
import resource
from typing import NamedTuple

_OPEN_FILES_MAX = 10_240
_SEGMENT_FILES_MAX = 2_560
#: Indexes, checkpoints, directories being synced, the loop's own.
_OTHER_FILES = 128


class FileBudget(NamedTuple):
    """Open files for segments, and for connections.

    Should connections take the last one, no log could be opened or made durable any more.
    """

    segments: int
    connections: int


def divide_files(open_files_max: int) -> FileBudget:
    """Shares of the open files of one process."""
    segments = min(_SEGMENT_FILES_MAX, open_files_max // 4)
    others = min(_OTHER_FILES, open_files_max // 4)
    return FileBudget(segments, max(open_files_max - segments - others, 1))


def raise_open_files_limit() -> int:
    """Raise the limit of this process as far as its user may; the limit, at most
    _OPEN_FILES_MAX."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS says "unlimited" and then refuses more than this.
    wanted = _OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft

"""Deliberate differences from Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Row:
    """A difference. `cells` and `path` may have `*`."""

    cells: str
    path: str
    reason: str

    def holds_for(self, cell: str, path: str) -> bool:
        return fnmatchcase(cell, self.cells) and fnmatchcase(path, self.path)


_ANY = (
    "CreateAcls with ANY or MATCH in an entry: that entry is answered with INVALID_REQUEST and the others are made."
    " Kafka answers UNKNOWN_SERVER_ERROR for the whole request."
)
_USERS = "DescribeUserScramCredentials without the right names the users that were asked for. Kafka leaves the names empty."
DIFFERENCES: tuple[Row, ...] = (
    Row("create-acls-of-any-*", "0.answer.results.*.error_*", _ANY),
    Row("create-acls-of-a-match-*", "0.answer.results.*.error_*", _ANY),
    Row("create-acls-for-any-*", "0.answer.results.*.error_*", _ANY),
    Row("create-acls-with-any-*", "0.answer.results.*.error_*", _ANY),
    Row("describe-credentials-*", "0.answer.results.0.user", _USERS),
)

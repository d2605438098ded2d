"""Deliberate differences from Kafka in answers to users with and without rights."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Row:
    """A deliberate difference. `cells` and `path` may contain `*`."""

    cells: str
    path: str
    reason: str

    def holds_for(self, cell: str, path: str) -> bool:
        return fnmatchcase(cell, self.cells) and fnmatchcase(path, self.path)


_ANY = (
    "An entry of CreateAcls with ANY or MATCH gets INVALID_REQUEST, and the ACLs of the other entries are created;"
    " Kafka answers UNKNOWN_SERVER_ERROR for the whole request."
)
_USERS = (
    "The answer to DescribeUserScramCredentials without the necessary right has the names of the requested users;"
    " in Kafka the names are empty."
)
DIFFERENCES: tuple[Row, ...] = (
    Row("create-acls-of-any-*", "0.answer.results.*.error_*", _ANY),
    Row("create-acls-of-a-match-*", "0.answer.results.*.error_*", _ANY),
    Row("create-acls-for-any-*", "0.answer.results.*.error_*", _ANY),
    Row("create-acls-with-any-*", "0.answer.results.*.error_*", _ANY),
    Row("describe-credentials-*", "0.answer.results.0.user", _USERS),
)

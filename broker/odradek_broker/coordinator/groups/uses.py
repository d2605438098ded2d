"""Counts of what the members of a group use, so that no question needs a look at all members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")


class Uses(dict[K, int]):
    """The number of members that use each key, such as the subscribers of each topic. A key without
    a user is left out, so that a change of one member need not look at all members."""

    def change(self, before: Iterable[K], after: Iterable[K]) -> None:
        """Count a member that used the keys `before`, and now uses the keys `after`."""
        for key in after:
            self[key] = self.get(key, 0) + 1
        for key in before:
            self[key] -= 1
            if not self[key]:
                del self[key]

    def keys_after(self, before: Iterable[K], after: Iterable[K]) -> set[K]:
        """The keys with users, if one member, or several, used `before` and will use `after`. A key
        that several of the members use is in `before` several times."""
        less = Counter(before)
        kept = {key for key, users in self.items() if users > less[key]}
        return kept.union(after)

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
        old, new = set(before), set(after)
        for key in new - old:
            self[key] = self[key] + 1 if key in self else 1
        for key in old - new:
            if self[key] == 1:
                del self[key]
            else:
                self[key] -= 1

    def keys_after(self, before: Iterable[K], after: Iterable[K]) -> set[K]:
        """The keys with users, if one member, or several, used `before` and will use `after`. A key
        that several of the members use is in `before` several times."""
        less = Counter(before)
        gone = {key for key, users in less.items() if key not in self or self[key] <= users}
        return (self.keys() - gone).union(after)

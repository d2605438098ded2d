"""One owner per partition: in a generation, and at any moment among the group's members.

The calls of the members' rebalance listeners count. A removed member may believe that it owns
partitions until it learns of its removal, so its claims do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator


class OwnershipChecker:
    """Checks every assignment and revocation of one group's members."""

    def __init__(self) -> None:
        #: Partition -> the members that own it as far as they know, in the order of assignment, and
        #: true if they were in the group ever since.
        self._claims: dict[str, dict[str, bool]] = {}
        #: (generation or epoch, partition) -> the member that it was assigned to.
        self._owners: dict[tuple[int, str], str] = {}

    def assigned(
        self,
        member: str,
        identity: str,
        generation: int,
        partitions: Collection[str],
        is_current: Callable[[str], bool],
    ) -> Iterator[str]:
        """A member owns exactly `partitions` in a generation (or member epoch). Yields violations.

        `identity`: the instance id of a static member, otherwise the member id. `is_current`: true
        if the coordinator agrees that the member owns them.
        """
        counts = is_current(member)
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), identity)
            if owner != identity:
                yield f"{partition} is of {owner} and {identity} in generation {generation}"
            claims = self._claims.setdefault(partition, {})
            for other in [other for other in claims if other != member and counts]:
                if not is_current(other):
                    # The partition was reassigned, even if the other member joins before this one
                    # learns of it.
                    claims[other] = False
                elif claims[other]:
                    yield f"{partition} was given to {member} while {other}, in the group, has it"
            claims[member] = True

    def released(self, member: str, partitions: Iterable[str]) -> None:
        """A member does not own these any more: its listener has returned, or the member was
        killed."""
        for partition in partitions:
            self._claims.get(partition, {}).pop(member, False)

    def dropped(self, member: str) -> None:
        """The coordinator has removed a member: its claims do not count any more, even if it joins
        again before it learns of its removal."""
        for claims in self._claims.values():
            if member in claims:
                claims[member] = False

    def held_by(self, member: str) -> list[str]:
        """The partitions that a member owns as far as it knows."""
        return [partition for partition, claims in self._claims.items() if member in claims]

"""One owner per partition: in a generation, and at any moment among those who are in the group.

What counts is what the members' rebalance listeners were told. A member that was dropped may still
believe in its partitions until it hears of it, so its claims do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator


class OwnershipChecker:
    """Told of every assignment and revocation of one group's members."""

    def __init__(self) -> None:
        #: Partition to the members that hold it as far as they know, in the order of assignment,
        #: and whether they were in the group ever since.
        self._claims: dict[str, dict[str, bool]] = {}
        #: (generation or epoch, partition) to the member that it was given to.
        self._owners: dict[tuple[int, str], str] = {}

    def assigned(
        self,
        member: str,
        identity: str,
        generation: int,
        partitions: Collection[str],
        is_current: Callable[[str], bool],
    ) -> Iterator[str]:
        """A member holds exactly `partitions` in a generation (or member epoch).

        `identity`: its instance id if it has one, or else its member id. `is_current`: whether the
        coordinator counts on what a member holds. Yields what does not hold.
        """
        counts = is_current(member)
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), identity)
            if owner != identity:
                yield f"{partition} is of {owner} and {identity} in generation {generation}"
            claims = self._claims.setdefault(partition, {})
            for other in [other for other in claims if other != member and counts]:
                if not is_current(other):
                    # The partition was given away, also where the other member joins before this
                    # one hears of that.
                    claims[other] = False
                elif claims[other]:
                    yield f"{partition} was given to {member} while {other}, in the group, has it"
            claims[member] = True

    def released(self, member: str, partitions: Iterable[str]) -> None:
        """A member holds these no more: its listener has returned, or the member is dead."""
        for partition in partitions:
            self._claims.get(partition, {}).pop(member, False)

    def dropped(self, member: str) -> None:
        """The coordinator has removed a member: what it holds as far as it knows counts no more,
        not even when it is in the group again before it hears of that."""
        for claims in self._claims.values():
            if member in claims:
                claims[member] = False

    def held_by(self, member: str) -> list[str]:
        """The partitions that a member holds as far as it knows."""
        return [partition for partition, claims in self._claims.items() if member in claims]

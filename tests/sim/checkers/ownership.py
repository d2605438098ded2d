"""In each generation, and at any moment among the members of the group, a partition has one owner.

A member owns what its rebalance listener was called with. A removed member may believe that it owns
partitions until it learns of its removal, so its claims are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator


class OwnershipChecker:
    """Checks every assignment and revocation of one group's members."""

    def __init__(self) -> None:
        #: Partition -> the members that believe they own it, in the order of assignment, each with
        #: True if it has stayed in the group since then.
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
        """Called when a member owns exactly `partitions` in a generation (or member epoch). Yields
        violations.

        `identity`: the instance id of a static member, otherwise the member id. `is_current`: True
        for a member if the coordinator agrees that it owns its partitions.
        """
        counts = is_current(member)
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), identity)
            if owner != identity:
                yield f"{partition} is of {owner} and {identity} in generation {generation}"
            claims = self._claims.setdefault(partition, {})
            for other in [other for other in claims if other != member and counts]:
                if not is_current(other):
                    # The coordinator has reassigned the partition, so the other member's claim is
                    # ignored, even if that member joins again before it learns of the change.
                    claims[other] = False
                elif claims[other]:
                    yield f"{partition} was given to {member} while {other}, in the group, has it"
            claims[member] = True

    def released(self, member: str, partitions: Iterable[str]) -> None:
        """Called when a member no longer owns these partitions: its listener has returned, or the
        member was killed."""
        for partition in partitions:
            self._claims.get(partition, {}).pop(member, False)

    def dropped(self, member: str) -> None:
        """Called when the coordinator has removed a member: from now on its claims are ignored,
        even if the member joins again before it learns of its removal."""
        for claims in self._claims.values():
            if member in claims:
                claims[member] = False

    def held_by(self, member: str) -> list[str]:
        """The partitions that a member believes it owns."""
        return [partition for partition, claims in self._claims.items() if member in claims]

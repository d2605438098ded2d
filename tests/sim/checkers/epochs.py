"""No two transactions of version 2 of one producer have the same epoch (KIP-890)."""

from __future__ import annotations

from collections.abc import Iterator

#: Producer id and epoch.
Identity = tuple[int, int]


class EpochChecker:
    """Checks the producer id and epoch of each transaction with records that is about to be
    committed."""

    def __init__(self) -> None:
        self._committed: dict[Identity, str] = {}

    def commits(self, producer: str, identity: Identity) -> Iterator[str]:
        """Yield a violation if an earlier transaction was committed with the same producer id and
        epoch.

        With the same epoch, the broker would accept a delayed request of the earlier transaction in
        the later one.
        """
        if identity in self._committed:
            producer_id, epoch = identity
            yield (
                f"{producer} commits a transaction in epoch {epoch} of producer id {producer_id}, as"
                f" {self._committed[identity]} has before"
            )
        self._committed[identity] = producer

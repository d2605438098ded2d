"""Where transactions have version 2, no two of one producer have the same epoch (KIP-890)."""

from __future__ import annotations

from collections.abc import Iterator

#: Producer id and epoch.
Identity = tuple[int, int]


class EpochChecker:
    """Told under which identity each transaction with records is about to be committed."""

    def __init__(self) -> None:
        self._committed: dict[Identity, str] = {}

    def commits(self, producer: str, identity: Identity) -> Iterator[str]:
        """Yields if an earlier transaction was committed under the same identity: what is late of
        that one would be taken for this one's."""
        if identity in self._committed:
            producer_id, epoch = identity
            yield (
                f"{producer} commits a transaction in epoch {epoch} of producer id {producer_id}, as"
                f" {self._committed[identity]} has before"
            )
        self._committed[identity] = producer

"""The context of a Spark task, for tests of readers and writers without Spark."""

from __future__ import annotations


class Context:
    """The attributes of Spark's task context that readers and writers use."""

    def __init__(self, slot: int, properties: dict[str, str]) -> None:
        self._slot = slot
        self._properties = properties

    def partitionId(self) -> int:
        return self._slot

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

"""The features of the cluster: the levels that this broker can have, and the level at which each is finalized (N-52).

Left out are Kafka's share.version and streams.version, since there are no such groups, eligible.leader.replicas.version, since
there is one replica, and kraft.version, whose levels above 0 let voters change.
"""

from __future__ import annotations

from typing import NamedTuple


class FeatureLevels(NamedTuple):
    """The lowest and the highest level that can be finalized; 0 is off."""

    lowest: int
    highest: int


#: As Kafka 4.3.0 has them.
FEATURES: dict[str, FeatureLevels] = {
    "group.version": FeatureLevels(0, 1),
    "metadata.version": FeatureLevels(7, 30),
    "transaction.version": FeatureLevels(0, 2),
}

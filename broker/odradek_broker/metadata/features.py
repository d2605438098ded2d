"""The features of the cluster: the levels that this broker supports, and changes of the finalized
levels (N-52, N-53)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NoReturn

from odradek_broker.emulation.profiles import Profile
from odradek_broker.metadata.errors import AdminError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.stored.cluster_metadata import FeatureLevelRecord, MetadataRecord


class FeatureLevels(NamedTuple):
    """The lowest and the highest level that can be finalized; level 0 means that the feature is
    off."""

    lowest: int
    highest: int


GROUP_VERSION = "group.version"
METADATA_VERSION = "metadata.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
TRANSACTION_VERSION = "transaction.version"

#: The features and levels of Kafka 4.3.0.
FEATURES: dict[str, FeatureLevels] = {
    GROUP_VERSION: FeatureLevels(0, 1),
    METADATA_VERSION: FeatureLevels(7, 30),
    SHARE_VERSION: FeatureLevels(0, 1),
    STREAMS_VERSION: FeatureLevels(0, 1),
    TRANSACTION_VERSION: FeatureLevels(0, 2),
}

#: The features of Kafka 4.3.0 that this broker does not have, with the reason. In that release each
#: has level 1.
_LEFT_OUT: dict[str, str] = {
    "eligible.leader.replicas.version": "each partition has one replica",
    "kraft.version": "the voters of the metadata log cannot change",
}
_LEVEL_LEFT_OUT = 1

#: The level of each feature before its first change: the highest.
FIRST_LEVELS: dict[str, int] = {name: levels.highest for name, levels in FEATURES.items()}


def supported_features(profile: Profile | None) -> dict[str, FeatureLevels]:
    """The feature levels in answers to ApiVersions, by name. If this broker emulates another
    broker, these are the levels of the emulated broker.
    """
    if profile is None:
        return FEATURES
    return {
        name: FeatureLevels(feature.lowest, feature.highest)
        for name, feature in profile.features.items()
    }


def first_levels(profile: Profile | None) -> dict[str, int]:
    """The level of each feature before its first change. With an emulated broker, these are the
    finalized levels of that broker's new clusters; 0 for a feature that the emulated broker does
    not have."""
    if profile is None:
        return dict(FIRST_LEVELS)
    return {
        name: profile.features[name].finalized if name in profile.features else 0
        for name in FEATURES
    }


class FinalizedFeatures(NamedTuple):
    """The durable level of each feature, 0 if it is off; `epoch` grows with every change of a
    level."""

    epoch: int
    levels: Mapping[str, int]


class UpgradeType(IntEnum):
    """The direction in which an update may change a level."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A requested level. `upgrade_type`: the number of an `UpgradeType`, or an unknown number."""

    feature: str
    level: int
    upgrade_type: int


def update_features(
    levels: Mapping[str, int],
    updates: Iterable[FeatureUpdate],
    supported: Mapping[str, FeatureLevels] = FEATURES,
) -> list[MetadataRecord]:
    """The records that set features to the requested levels. Raises AdminError, without any change,
    if one of the levels is not possible.

    If several updates name the same feature, the last update is used, as in Kafka. An update of
    metadata.version selects a release; updates of features that belong to the release, but that
    this broker does not have, are then ignored.
    """
    wanted = {update.feature: update for update in updates}
    if METADATA_VERSION in wanted:
        wanted = {name: update for name, update in wanted.items() if not _is_passed_over(update)}
    for update in wanted.values():
        _check(levels, update, supported)
    return [
        FeatureLevelRecord(name=update.feature, feature_level=update.level)
        for update in wanted.values()
        if update.level != levels[update.feature]
    ]


def _is_passed_over(update: FeatureUpdate) -> bool:
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    return update.feature in _LEFT_OUT and update.level == _LEVEL_LEFT_OUT and is_upgrade


def _check(
    levels: Mapping[str, int], update: FeatureUpdate, supported: Mapping[str, FeatureLevels]
) -> None:
    feature, level, upgrade_type = update
    if upgrade_type not in list(UpgradeType):
        _refuse(update, f"there is no upgrade type {upgrade_type}")
    known = supported.get(feature) if feature in FEATURES else None
    if known is None:
        _refuse(update, _LEFT_OUT.get(feature, "there is no such feature"))
    if not known.lowest <= level <= known.highest:
        _refuse(update, f"the broker has levels {known.lowest} to {known.highest}")
    present = levels[feature]
    if level > present and upgrade_type != UpgradeType.UPGRADE:
        _refuse(update, f"that is above the present level {present}, and a downgrade was asked for")
    if level < present and upgrade_type == UpgradeType.UPGRADE:
        _refuse(update, f"that is below the present level {present}, and an upgrade was asked for")
    if level < present and feature == METADATA_VERSION:
        _refuse(update, "the records of the metadata log cannot be written in an older form")


def _refuse(update: FeatureUpdate, why: str) -> NoReturn:
    raise AdminError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"No feature was changed, since {update.feature!r} cannot have level {update.level}: {why}.",
    )

"""The settings of topics, as a kind of configured resource."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek_broker.config.effective import ConfigEntry, topic_setting
from odradek_broker.config.types import Kind
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics.checks import check_topic_name
from odradek_protocol.errors import ErrorCode


class TopicConfigResource:
    """A topic by its name; it must exist."""

    bad_value = ErrorCode.INVALID_CONFIG

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        check_topic_name(name)
        if name not in metadata.topics:
            raise AdminError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        self.check_described(metadata, name)

    def kind_of(self, key: str) -> Kind:
        return topic_setting(key).kind

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> str:
        return metadata.topic_configs.text(key, metadata.topic_overrides(name))

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        return metadata.topic_configs.validate(after, metadata.topic_overrides(name))

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Nothing more is asked of these."""

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        return metadata.topic_configs.describe(metadata.topic_overrides(name), keys)

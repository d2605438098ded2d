"""The checks of metadata records: a record that contradicts the state is neither written nor
replayed.

If a record in the log could not be replayed, every later start would fail. So `check_all` is called
before records are written, with the records of one batch in their order; `check_record` is called
for each record that is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek_broker.config.client_metrics_settings import METRICS_SETTINGS
from odradek_broker.config.topic_settings import LOG_SETTINGS
from odradek_broker.config.types import BrokerConfigError, ConfigRow
from odradek_broker.metadata.errors import MetadataError
from odradek_broker.metadata.features import FEATURES
from odradek_broker.quotas.client_quotas import QuotaKey
from odradek_broker.security.acls import Acl
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek_protocol.constants import RESOURCE_CLIENT_METRICS, RESOURCE_TOPIC
from odradek_protocol.message import Message
from odradek_protocol.sasl.scram import ScramMechanism
from odradek_protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    PartitionRecords,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

#: The settings that a start reads: for each type of resource, the settings by name.
_READ_AT_START: dict[int, dict[str, ConfigRow]] = {
    RESOURCE_TOPIC: {row.name: row for row in LOG_SETTINGS.values()},
    RESOURCE_CLIENT_METRICS: METRICS_SETTINGS,
}
_QUOTA_KEYS = frozenset(map(str, QuotaKey))


class Known(Protocol):
    """The state that records must not contradict."""

    def has_topic(self, name: str, /) -> bool: ...

    def topic_name(self, topic_id: bytes, /) -> str | None: ...

    def acl(self, acl_id: bytes, /) -> Acl | None: ...

    def has_acl(self, acl: Acl, /) -> bool: ...

    def has_token(self, token_id: str, /) -> bool: ...

    def has_credential(self, user: str, mechanism: ScramMechanism, /) -> bool: ...

    @property
    def producer_ids_end(self) -> int:
        """The first producer id that is in no reserved block."""
        ...


def check_record(record: Message | PartitionRecords, known: Known) -> None:
    """Raise MetadataError if a record contradicts the state."""
    match record:
        case PartitionRecord(topic_id=topic_id) if known.topic_name(topic_id) is None:
            raise MetadataError(f"a partition of the unknown topic {topic_id.hex()}")
        case PartitionRecords():
            check_record(record.first, known)
        case TopicRecord(name=name, topic_id=topic_id):
            if known.has_topic(name) or known.topic_name(topic_id) is not None:
                raise MetadataError(f"topic {name} is created twice")
        case RemoveTopicRecord(topic_id=topic_id) if known.topic_name(topic_id) is None:
            raise MetadataError(f"the unknown topic {topic_id.hex()} is removed")
        case ClientQuotaRecord(key=key) if key not in _QUOTA_KEYS:
            raise MetadataError(f"a quota of the unknown kind {key!r}")
        case UserScramCredentialRecord():
            scram_mechanism(record.mechanism)
        case RemoveUserScramCredentialRecord(name=name):
            if not known.has_credential(name, scram_mechanism(record.mechanism)):
                raise MetadataError(f"a credential that {name!r} does not have is removed")
        case FeatureLevelRecord():
            _check_feature_level(record)
        case AccessControlEntryRecord():
            acl = acl_of(record)
            if known.acl(record.id) is not None or known.has_acl(acl):
                raise MetadataError(f"the ACL {acl} is created twice")
        case RemoveAccessControlEntryRecord() if known.acl(record.id) is None:
            raise MetadataError(f"the unknown ACL {record.id.hex()} is removed")
        case RemoveDelegationTokenRecord(token_id=token_id) if not known.has_token(token_id):
            raise MetadataError(f"the unknown delegation token {token_id!r} is removed")
        case ProducerIdsRecord(next_producer_id=end) if end <= known.producer_ids_end:
            raise MetadataError(f"producer ids go back to {end}")


def check_all(records: Sequence[MetadataRecord], known: Known) -> None:
    """Raise MetadataError if a record contradicts the state as it is after the replay of the
    records before it, or if the record has a setting's value that a start could not read."""
    ahead = known if len(records) == 1 else _Ahead(known)
    for record in records:
        if type(record) is ConfigRecord:
            _check_setting(record)
            continue
        check_record(record, ahead)
        if type(ahead) is _Ahead:
            ahead.note(record)


class _Ahead:
    """The state as it will be after the replay of some records.

    `_changes`: the objects that these records add, by kind and id; None for a removed object.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._changes: dict[tuple[str, object], object] = {}
        self.producer_ids_end = known.producer_ids_end

    def note(self, record: MetadataRecord) -> None:
        changes = self._changes
        match record:
            case TopicRecord():
                changes["topic", record.name] = True
                changes["id", record.topic_id] = record.name
            case RemoveTopicRecord():
                changes["topic", self.topic_name(record.topic_id)] = None
                changes["id", record.topic_id] = None
            case AccessControlEntryRecord():
                acl = acl_of(record)
                changes["ACL id", record.id] = acl
                changes["ACL", acl] = True
            case RemoveAccessControlEntryRecord():
                changes["ACL", self.acl(record.id)] = None
                changes["ACL id", record.id] = None
            case DelegationTokenRecord():
                changes["token", record.token_id] = True
            case RemoveDelegationTokenRecord():
                changes["token", record.token_id] = None
            case UserScramCredentialRecord():
                changes["credential", (record.name, scram_mechanism(record.mechanism))] = True
            case RemoveUserScramCredentialRecord():
                changes["credential", (record.name, scram_mechanism(record.mechanism))] = None
            case ProducerIdsRecord():
                self.producer_ids_end = record.next_producer_id

    def has_topic(self, name: str) -> bool:
        found = self._changes.get(("topic", name), self)
        return self._known.has_topic(name) if found is self else found is not None

    def topic_name(self, topic_id: bytes) -> str | None:
        found = self._changes.get(("id", topic_id), self)
        if found is self:
            return self._known.topic_name(topic_id)
        return found if isinstance(found, str) else None

    def acl(self, acl_id: bytes) -> Acl | None:
        found = self._changes.get(("ACL id", acl_id), self)
        if found is self:
            return self._known.acl(acl_id)
        return found if isinstance(found, Acl) else None

    def has_acl(self, acl: Acl) -> bool:
        found = self._changes.get(("ACL", acl), self)
        return self._known.has_acl(acl) if found is self else found is not None

    def has_token(self, token_id: str) -> bool:
        found = self._changes.get(("token", token_id), self)
        return self._known.has_token(token_id) if found is self else found is not None

    def has_credential(self, user: str, mechanism: ScramMechanism) -> bool:
        found = self._changes.get(("credential", (user, mechanism)), self)
        if found is self:
            return self._known.has_credential(user, mechanism)
        return found is not None


# --- Each type of record --------------------------------------------------------------------------


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The ACL of a record. Raises MetadataError."""
    try:
        return Acl(
            AclResourceType(record.resource_type),
            record.resource_name,
            PatternType(record.pattern_type),
            record.principal,
            record.host,
            AclOperation(record.operation),
            AclPermission(record.permission_type),
        )
    except ValueError as problem:
        raise MetadataError(f"an ACL cannot be used: {problem}") from problem


def scram_mechanism(number: int) -> ScramMechanism:
    """The mechanism that has this number in records. Raises MetadataError."""
    mechanism = ScramMechanism.of_number(number)
    if mechanism is None:
        raise MetadataError(f"a credential of the unknown mechanism {number}")
    return mechanism


def _check_setting(record: ConfigRecord) -> None:
    """Raise MetadataError if a start could not read a setting. Not called for records that are
    replayed, because an older version may have written such a value, which a later record then
    replaces."""
    row = _READ_AT_START.get(record.resource_type, {}).get(record.name)
    if row is not None and record.value is not None:
        try:
            row.read(record.value)
        except BrokerConfigError as problem:
            raise MetadataError(f"a setting of {record.resource_name}: {problem}") from problem


def _check_feature_level(record: FeatureLevelRecord) -> None:
    levels = FEATURES.get(record.name)
    if levels is None or not levels.lowest <= record.feature_level <= levels.highest:
        raise MetadataError(
            f"the feature {record.name!r} is at level {record.feature_level}, which this version of"
            " the broker does not have"
        )

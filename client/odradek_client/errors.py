"""What can go wrong for a user of the client.

::

    OdradekError
    ├── Retriable                    may succeed when tried again; the client has tried already
    │   ├── ConnectionLost           the connection broke, or could not be made
    │   ├── RequestTimedOut          a broker did not answer in time
    │   ├── UnknownTopicOrPartition  LeaderUnknown  NotLeader  CorruptMessage
    │   ├── NotEnoughReplicas  StorageFailed  NotController  Throttled
    │   └── CoordinatorUnavailable  NotCoordinator  CoordinatorLoading  ConcurrentTransactions
    ├── Abortable                    the open transaction must be aborted; then the producer goes on
    │   └── InvalidProducerEpoch  TransactionAborted
    ├── Fatal                        the producer can do nothing more but be closed
    │   └── ProducerFenced  ClusterAuthorizationFailed  TransactionalIdAuthorizationFailed
    │       InvalidProducerIdMapping  UnsupportedByBroker
    ├── Refused                      the broker said no; the same request will be refused again
    │   ├── MessageTooLarge  InvalidRecord  InvalidTopic  InvalidTimestamp  UnsupportedCompression
    │   ├── OutOfOrderSequence  OffsetOutOfRange  TopicAlreadyExists  InvalidPartitions
    │   ├── InvalidReplicationFactor  InvalidConfig  InvalidRequest  PolicyViolation
    │   ├── TopicAuthorizationFailed  GroupAuthorizationFailed
    │   └── IllegalGeneration  UnknownMember  RebalanceInProgress  FencedInstance  InvalidGroup
    └── LocalError                   decided here, no broker was asked
        ├── ConfigError              a setting (also a ValueError)
        ├── BufferFull               `send_nowait` found no room
        ├── BufferTimeout            no room in buffer_memory within max_block_ms (also a TimeoutError)
        ├── MetadataTimeout          a topic or a broker was not found in time (also a TimeoutError)
        ├── DeliveryTimeout          delivery_timeout_ms ran out for a record (also a TimeoutError)
        ├── RecordTooLarge           a record above max_request_size or buffer_memory
        ├── Closed                   the client is closed, or not started yet
        ├── IllegalState             a call that the state of the client does not allow
        └── BadAnswer                a broker sent bytes that are no answer

An error that a broker sent has its `code`; `error_for` is the one place that maps codes to classes.
Every message says what happened and what to do about it.
"""

from __future__ import annotations

from odradek_protocol.errors import ErrorCode


class OdradekError(Exception):
    """Base of everything that the client raises. `code` is what a broker answered, or None."""

    retriable = False

    def __init__(self, message: str = "", *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class Retriable(OdradekError):
    """The same request may succeed later."""

    retriable = True


class Abortable(OdradekError):
    """The open transaction must be aborted."""


class Fatal(OdradekError):
    """The producer that got this must be closed."""


class Refused(OdradekError):
    """The broker will refuse the same request again."""


class LocalError(OdradekError):
    """No broker was involved."""


class ConnectionLost(Retriable):
    """A connection broke or could not be made; whether the request was carried out is unknown."""


class RequestTimedOut(Retriable, TimeoutError):
    """No answer in time; whether the request was carried out is unknown."""


class UnknownTopicOrPartition(Retriable):
    """The broker does not have it (yet)."""


class LeaderUnknown(Retriable):
    """The partition has no leader now."""


class NotLeader(Retriable):
    """The broker asked does not lead the partition."""


class CorruptMessage(Retriable):
    """A checksum or length was wrong at the broker."""


class NotEnoughReplicas(Retriable):
    """Fewer replicas are in sync than min.insync.replicas asks for."""


class StorageFailed(Retriable):
    """The broker's disk failed it."""


class NotController(Retriable):
    """The broker asked is not the controller."""


class Throttled(Retriable):
    """A quota of the cluster is used up."""


class CoordinatorUnavailable(Retriable):
    """No coordinator runs for this group or transactional id now."""


class NotCoordinator(Retriable):
    """Another broker coordinates this group or transactional id."""


class CoordinatorLoading(Retriable):
    """The coordinator is still reading its state."""


class ConcurrentTransactions(Retriable):
    """The previous transaction of this id is not finished yet."""


class InvalidProducerEpoch(Abortable):
    """A newer epoch of this producer id has written to the partition."""


class TransactionAborted(Abortable):
    """The transaction cannot be committed."""


class ProducerFenced(Fatal):
    """A newer producer owns this transactional id."""


class ClusterAuthorizationFailed(Fatal):
    """A permission on the cluster is missing."""


class TransactionalIdAuthorizationFailed(Fatal):
    """A permission on the transactional id is missing."""


class InvalidProducerIdMapping(Fatal):
    """The producer id does not belong to the transactional id."""


class UnsupportedByBroker(Fatal):
    """Broker and client have no version of a request in common."""


class MessageTooLarge(Refused):
    """A batch is above the topic's max.message.bytes."""


class InvalidRecord(Refused):
    """The broker's validation of a record failed."""


class InvalidTopic(Refused):
    """An illegal topic name, or a topic that clients may not write."""


class InvalidTimestamp(Refused):
    """A record's timestamp is outside the topic's window."""


class UnsupportedCompression(Refused):
    """The broker does not take this codec."""


class OutOfOrderSequence(Refused):
    """The broker misses records that this producer sent before."""


class OffsetOutOfRange(Refused):
    """The offset is not in the partition's log."""


class TopicAlreadyExists(Refused):
    """A topic of this name exists."""


class InvalidPartitions(Refused):
    """A partition count that cannot be."""


class InvalidReplicationFactor(Refused):
    """More replicas than brokers, or fewer than one."""


class InvalidConfig(Refused):
    """The broker does not know this setting or value."""


class InvalidRequest(Refused):
    """The broker could read the request and found it impossible."""


class PolicyViolation(Refused):
    """A policy of the cluster forbids it."""


class TopicAuthorizationFailed(Refused):
    """A permission on the topic is missing."""


class GroupAuthorizationFailed(Refused):
    """A permission on the group is missing."""


class IllegalGeneration(Refused):
    """The group has gone on to another generation."""


class UnknownMember(Refused):
    """The group does not have this member (any more)."""


class RebalanceInProgress(Refused):
    """The group is being rebalanced."""


class FencedInstance(Refused):
    """Another member took this group.instance.id."""


class InvalidGroup(Refused):
    """A group id or group state that the request does not fit."""


class ConfigError(LocalError, ValueError):
    """A setting is unknown, malformed, out of bounds, or contradicts another."""


class BufferFull(LocalError):
    """There is no room for the record now."""


class BufferTimeout(LocalError, TimeoutError):
    """There was no room for the record within max_block_ms."""


class MetadataTimeout(LocalError, TimeoutError):
    """A topic or a broker was not found in time."""


class DeliveryTimeout(LocalError, TimeoutError):
    """delivery_timeout_ms ran out; the record may have been written or not."""


class RecordTooLarge(LocalError):
    """The record does not fit max_request_size or buffer_memory."""


class Closed(LocalError):
    """The client is closed, or was never started."""


class IllegalState(LocalError):
    """The state of the client does not allow this call."""


class BadAnswer(LocalError):
    """A broker sent bytes that are no answer to what was asked."""


E = ErrorCode

_CLASSES: dict[ErrorCode, type[OdradekError]] = {
    E.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    E.CORRUPT_MESSAGE: CorruptMessage,
    E.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartition,
    E.UNKNOWN_TOPIC_ID: UnknownTopicOrPartition,
    E.LEADER_NOT_AVAILABLE: LeaderUnknown,
    E.NOT_LEADER_OR_FOLLOWER: NotLeader,
    E.FENCED_LEADER_EPOCH: NotLeader,
    E.REQUEST_TIMED_OUT: RequestTimedOut,
    E.NETWORK_EXCEPTION: ConnectionLost,
    E.MESSAGE_TOO_LARGE: MessageTooLarge,
    E.RECORD_LIST_TOO_LARGE: MessageTooLarge,
    E.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorLoading,
    E.COORDINATOR_NOT_AVAILABLE: CoordinatorUnavailable,
    E.NOT_COORDINATOR: NotCoordinator,
    E.INVALID_TOPIC_EXCEPTION: InvalidTopic,
    E.NOT_ENOUGH_REPLICAS: NotEnoughReplicas,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicas,
    E.ILLEGAL_GENERATION: IllegalGeneration,
    E.STALE_MEMBER_EPOCH: IllegalGeneration,
    E.FENCED_MEMBER_EPOCH: IllegalGeneration,
    E.INCONSISTENT_GROUP_PROTOCOL: InvalidGroup,
    E.INVALID_GROUP_ID: InvalidGroup,
    E.NON_EMPTY_GROUP: InvalidGroup,
    E.GROUP_ID_NOT_FOUND: InvalidGroup,
    E.GROUP_MAX_SIZE_REACHED: InvalidGroup,
    E.GROUP_SUBSCRIBED_TO_TOPIC: InvalidGroup,
    E.INVALID_SESSION_TIMEOUT: InvalidGroup,
    E.UNKNOWN_MEMBER_ID: UnknownMember,
    E.REBALANCE_IN_PROGRESS: RebalanceInProgress,
    E.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationFailed,
    E.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationFailed,
    E.CLUSTER_AUTHORIZATION_FAILED: ClusterAuthorizationFailed,
    E.INVALID_TIMESTAMP: InvalidTimestamp,
    E.UNSUPPORTED_VERSION: UnsupportedByBroker,
    E.TOPIC_ALREADY_EXISTS: TopicAlreadyExists,
    E.INVALID_PARTITIONS: InvalidPartitions,
    E.INVALID_REPLICATION_FACTOR: InvalidReplicationFactor,
    E.INVALID_REPLICA_ASSIGNMENT: InvalidReplicationFactor,
    E.INVALID_CONFIG: InvalidConfig,
    E.NOT_CONTROLLER: NotController,
    E.INVALID_REQUEST: InvalidRequest,
    E.POLICY_VIOLATION: PolicyViolation,
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequence,
    E.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    E.INVALID_TXN_STATE: TransactionAborted,
    E.TRANSACTION_ABORTABLE: TransactionAborted,
    E.INVALID_PRODUCER_ID_MAPPING: InvalidProducerIdMapping,
    E.CONCURRENT_TRANSACTIONS: ConcurrentTransactions,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionalIdAuthorizationFailed,
    E.KAFKA_STORAGE_ERROR: StorageFailed,
    E.UNSUPPORTED_COMPRESSION_TYPE: UnsupportedCompression,
    E.FENCED_INSTANCE_ID: FencedInstance,
    E.INVALID_RECORD: InvalidRecord,
    E.THROTTLING_QUOTA_EXCEEDED: Throttled,
    E.PRODUCER_FENCED: ProducerFenced,
}

_MEANINGS: dict[ErrorCode, str] = {
    E.UNKNOWN_SERVER_ERROR: "the broker failed in a way it has no code for; see its log",
    E.OFFSET_OUT_OF_RANGE: "the offset is not in the log; seek to one between its start and end",
    E.CORRUPT_MESSAGE: "the bytes arrived damaged; if it stays, look at network and client versions",
    E.UNKNOWN_TOPIC_OR_PARTITION: "the broker does not have this topic or partition; create it, "
    "or check its name",
    E.INVALID_FETCH_SIZE: "the fetch size is impossible; make it positive",
    E.LEADER_NOT_AVAILABLE: "the partition has no leader now; see that its brokers are up",
    E.NOT_LEADER_OR_FOLLOWER: "another broker leads this partition now",
    E.REQUEST_TIMED_OUT: "the broker could not finish within the request's timeout",
    E.BROKER_NOT_AVAILABLE: "the broker is not up",
    E.REPLICA_NOT_AVAILABLE: "a replica that should be there is not",
    E.MESSAGE_TOO_LARGE: "the batch is above the topic's max.message.bytes; send smaller records "
    "or raise that setting",
    E.OFFSET_METADATA_TOO_LARGE: "the metadata of an offset commit is above "
    "offset.metadata.max.bytes; shorten it",
    E.NETWORK_EXCEPTION: "the connection was lost before the answer came",
    E.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading its state",
    E.COORDINATOR_NOT_AVAILABLE: "no coordinator is running for this group or transactional id",
    E.NOT_COORDINATOR: "another broker coordinates this group or transactional id now",
    E.INVALID_TOPIC_EXCEPTION: "the topic name is illegal, or clients may not write to it; names "
    "are 1 to 249 of letters, digits, '.', '_' and '-'",
    E.RECORD_LIST_TOO_LARGE: "the batch is above the topic's segment.bytes; lower batch_size",
    E.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas; bring brokers back",
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but fewer replicas are in sync than "
    "min.insync.replicas; bring brokers back",
    E.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or all",
    E.ILLEGAL_GENERATION: "the group has gone on without this member; rejoin it",
    E.INCONSISTENT_GROUP_PROTOCOL: "the members of the group have no assignor in common; give "
    "all of them one",
    E.INVALID_GROUP_ID: "the group id is empty or illegal; set group_id",
    E.UNKNOWN_MEMBER_ID: "the group removed this member; poll more often or raise the timeouts",
    E.INVALID_SESSION_TIMEOUT: "session_timeout_ms is outside what the broker allows",
    E.REBALANCE_IN_PROGRESS: "the group is being rebalanced; rejoin it",
    E.INVALID_COMMIT_OFFSET_SIZE: "the offset commit is too large for the broker",
    E.TOPIC_AUTHORIZATION_FAILED: "this principal lacks a permission on the topic; grant it",
    E.GROUP_AUTHORIZATION_FAILED: "this principal lacks a permission on the group; grant it",
    E.CLUSTER_AUTHORIZATION_FAILED: "this principal lacks a permission on the cluster; grant it",
    E.INVALID_TIMESTAMP: "a record's timestamp is outside the topic's window; see "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    E.UNSUPPORTED_SASL_MECHANISM: "the broker does not offer this SASL mechanism",
    E.ILLEGAL_SASL_STATE: "the broker did not expect this step of authentication",
    E.UNSUPPORTED_VERSION: "the broker does not serve this version of the request",
    E.TOPIC_ALREADY_EXISTS: "a topic of this name exists already",
    E.INVALID_PARTITIONS: "the number of partitions is impossible; it must be above 0, and can "
    "only grow",
    E.INVALID_REPLICATION_FACTOR: "the replication factor is below 1 or above the number of brokers",
    E.INVALID_REPLICA_ASSIGNMENT: "the assignment of replicas contradicts itself",
    E.INVALID_CONFIG: "the broker does not know this setting or cannot take this value",
    E.NOT_CONTROLLER: "another broker is the controller now",
    E.INVALID_REQUEST: "the broker found the request impossible",
    E.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message format is too old for this",
    E.POLICY_VIOLATION: "a policy of the cluster forbids it",
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: "the broker misses records sent before these; some were lost",
    E.DUPLICATE_SEQUENCE_NUMBER: "the broker has these records already",
    E.INVALID_PRODUCER_EPOCH: "a newer producer with the same id has written here",
    E.INVALID_TXN_STATE: "the transaction is in a state that does not allow this; abort it",
    E.INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to the transactional id; "
    "start a new producer",
    E.INVALID_TRANSACTION_TIMEOUT: "transaction_timeout_ms is above the broker's "
    "transaction.max.timeout.ms; lower it",
    E.CONCURRENT_TRANSACTIONS: "the previous transaction of this id is still being finished",
    E.TRANSACTION_COORDINATOR_FENCED: "a newer transaction coordinator has taken over",
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this principal lacks a permission on the "
    "transactional id; grant it",
    E.SECURITY_DISABLED: "the cluster has no authorizer; configure one first",
    E.OPERATION_NOT_ATTEMPTED: "not tried, because another part of the request failed",
    E.KAFKA_STORAGE_ERROR: "the broker's disk failed; see its log",
    E.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    E.SASL_AUTHENTICATION_FAILED: "the credentials were refused",
    E.UNKNOWN_PRODUCER_ID: "the broker has forgotten this producer; its records were deleted",
    E.REASSIGNMENT_IN_PROGRESS: "the partition is being moved; wait for that",
    E.DELEGATION_TOKEN_AUTH_DISABLED: "the cluster does not use delegation tokens",
    E.DELEGATION_TOKEN_NOT_FOUND: "no such delegation token",
    E.DELEGATION_TOKEN_OWNER_MISMATCH: "the delegation token belongs to someone else",
    E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "delegation tokens need an authenticated connection "
    "that does not use one",
    E.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "this principal may not use the delegation token",
    E.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired; get a new one",
    E.INVALID_PRINCIPAL_TYPE: "the broker does not know this type of principal",
    E.NON_EMPTY_GROUP: "the group still has members; stop them first",
    E.GROUP_ID_NOT_FOUND: "no such group",
    E.FETCH_SESSION_ID_NOT_FOUND: "the broker has dropped the fetch session",
    E.INVALID_FETCH_SESSION_EPOCH: "the fetch session is out of step",
    E.LISTENER_NOT_FOUND: "the leader has no listener of this name",
    E.TOPIC_DELETION_DISABLED: "the broker has delete.topic.enable=false",
    E.FENCED_LEADER_EPOCH: "another leader was elected meanwhile",
    E.UNKNOWN_LEADER_EPOCH: "the broker has not heard of this leader epoch yet",
    E.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not take this codec; choose another "
    "compression_type",
    E.STALE_BROKER_EPOCH: "the broker was restarted meanwhile",
    E.OFFSET_NOT_AVAILABLE: "the new leader does not know the end of the log yet",
    E.MEMBER_ID_REQUIRED: "the group wants a member id first; join again with the one given",
    E.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not up",
    E.GROUP_MAX_SIZE_REACHED: "the group is full; see the broker's group.max.size",
    E.FENCED_INSTANCE_ID: "another member uses the same group_instance_id; give each its own",
    E.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica may become leader",
    E.ELECTION_NOT_NEEDED: "this replica leads already",
    E.NO_REASSIGNMENT_IN_PROGRESS: "no reassignment to cancel",
    E.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to the topic; stop its members first",
    E.INVALID_RECORD: "the broker refused a record; a compacted topic needs keys, for one",
    E.UNSTABLE_OFFSET_COMMIT: "a transaction that commits these offsets is still open",
    E.THROTTLING_QUOTA_EXCEEDED: "a quota of the cluster is used up; try later",
    E.PRODUCER_FENCED: "a newer producer uses the same transactional id; this one must stop",
    E.RESOURCE_NOT_FOUND: "no such resource",
    E.DUPLICATE_RESOURCE: "the request names a resource twice",
    E.UNACCEPTABLE_CREDENTIAL: "the credential does not meet the rules",
    E.INCONSISTENT_VOTER_SET: "the voters of the quorum differ",
    E.INVALID_UPDATE_VERSION: "the feature has another version by now",
    E.FEATURE_UPDATE_FAILED: "the feature could not be updated",
    E.PRINCIPAL_DESERIALIZATION_FAILURE: "the broker could not read the forwarded principal",
    E.SNAPSHOT_NOT_FOUND: "no such snapshot",
    E.POSITION_OUT_OF_RANGE: "the position is outside the snapshot",
    E.UNKNOWN_TOPIC_ID: "the broker does not know this topic id; the topic may be new or deleted",
    E.DUPLICATE_BROKER_REGISTRATION: "a broker of this id is registered already",
    E.BROKER_ID_NOT_REGISTERED: "no broker of this id is registered",
    E.INCONSISTENT_TOPIC_ID: "the topic was deleted and made again meanwhile",
    E.INCONSISTENT_CLUSTER_ID: "this is another cluster",
    E.TRANSACTIONAL_ID_NOT_FOUND: "no such transactional id",
    E.FETCH_SESSION_TOPIC_ID_ERROR: "the fetch session mixes topic names and ids",
    E.INELIGIBLE_REPLICA: "the replica may not be in sync",
    E.NEW_LEADER_ELECTED: "another leader was elected by this change",
    E.OFFSET_MOVED_TO_TIERED_STORAGE: "the offset lies in tiered storage",
    E.FENCED_MEMBER_EPOCH: "the group has gone on without this member; rejoin it",
    E.UNRELEASED_INSTANCE_ID: "another member still holds this group_instance_id",
    E.UNSUPPORTED_ASSIGNOR: "the broker does not have this assignor",
    E.STALE_MEMBER_EPOCH: "the member's epoch is old; heartbeat first",
    E.MISMATCHED_ENDPOINT_TYPE: "this endpoint is of another type",
    E.UNSUPPORTED_ENDPOINT_TYPE: "the broker does not know this type of endpoint",
    E.UNKNOWN_CONTROLLER_ID: "no such controller",
    E.UNKNOWN_SUBSCRIPTION_ID: "the broker does not know this telemetry subscription",
    E.TELEMETRY_TOO_LARGE: "the telemetry is too large",
    E.INVALID_REGISTRATION: "the registration was refused",
    E.TRANSACTION_ABORTABLE: "the transaction cannot go on; abort it",
    E.INVALID_RECORD_STATE: "the record is not in a state for this acknowledgement",
    E.SHARE_SESSION_NOT_FOUND: "the broker has dropped the share session",
    E.INVALID_SHARE_SESSION_EPOCH: "the share session is out of step",
    E.FENCED_STATE_EPOCH: "the state's epoch is old",
    E.INVALID_VOTER_KEY: "the voter's key is not the registered one",
    E.DUPLICATE_VOTER: "the voter is there already",
    E.VOTER_NOT_FOUND: "no such voter",
    E.INVALID_REGULAR_EXPRESSION: "the broker cannot read the pattern; it takes RE2/J syntax",
    E.REBOOTSTRAP_REQUIRED: "the broker asks to start again from bootstrap_servers",
    E.STREAMS_INVALID_TOPOLOGY: "the topology is invalid",
    E.STREAMS_INVALID_TOPOLOGY_EPOCH: "the topology's epoch is invalid",
    E.STREAMS_TOPOLOGY_FENCED: "a newer topology is in use",
    E.SHARE_SESSION_LIMIT_REACHED: "the broker has too many share sessions",
}


def error_for(
    code: ErrorCode | int, message: str | None = None, *, about: str = ""
) -> OdradekError:
    """The exception for a code that is not NONE.

    `message`: the broker's own words, if it sent some. `about`: what the code was answered for,
    e.g. "topic 'orders', partition 3"; it is put in front. A code that we do not know becomes
    UNKNOWN_SERVER_ERROR, which is not retried; its number stays in the text.
    """
    known = ErrorCode.of(code)
    if known is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    text = _MEANINGS[known]
    if message:
        text = f"{text}. The broker says: {message}"
    name = known.name if known == code else f"code {int(code)}"
    cls = _CLASSES.get(known)
    if cls is None:
        cls = Retriable if known.retriable else Refused
    prefix = f"{about}: " if about else ""
    return cls(f"{prefix}{text} ({name})", code=known)

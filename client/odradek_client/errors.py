"""The exceptions of the client.

::

    OdradekError
    ├── Retriable                    may succeed when tried again; the client has tried already
    │   ├── ConnectionLost           the connection broke, or could not be made
    │   │   └── TlsFailed            for a reason of TLS, which trying again does not remove
    │   ├── RequestTimedOut          a broker did not answer in time
    │   ├── TaskCancelled            the program cancelled a task of the client
    │   ├── UnknownTopicOrPartition  LeaderUnknown  NotLeader  CorruptMessage
    │   ├── NotEnoughReplicas  StorageFailed  NotController  Throttled
    │   └── CoordinatorUnavailable  NotCoordinator  CoordinatorLoading  ConcurrentTransactions
    ├── Abortable                    the open transaction must be aborted; then the producer goes on
    │   └── InvalidProducerEpoch  TransactionAborted  GroupMovedOn
    ├── Fatal                        the producer can do nothing more but be closed
    │   ├── AuthenticationFailed     the broker refuses our credentials or our SASL mechanism
    │   └── ProducerFenced  ClusterAuthorizationFailed  TransactionalIdAuthorizationFailed
    │       InvalidProducerIdMapping  UnsupportedByBroker
    ├── Refused                      the broker said no; the same request will be refused again
    │   ├── MessageTooLarge  InvalidRecord  InvalidTopic  InvalidTimestamp  UnsupportedCompression
    │   ├── OutOfOrderSequence  OffsetOutOfRange  TopicAlreadyExists  InvalidPartitions
    │   ├── InvalidReplicationFactor  InvalidConfig  InvalidRequest  PolicyViolation
    │   ├── TopicAuthorizationFailed  GroupAuthorizationFailed
    │   ├── IllegalGeneration  UnknownMember  RebalanceInProgress  FencedInstance  InvalidGroup
    │   └── NothingKnown             the broker has no history of the subject
    └── LocalError                   decided here, no broker was asked
        ├── ConfigError              a setting is wrong (also a ValueError)
        ├── BufferFull               `send_nowait` found no room
        ├── BufferTimeout            no room in buffer_memory within max_block_ms (a TimeoutError)
        ├── MetadataTimeout          a topic or a broker was not found in time (also a TimeoutError)
        ├── DeliveryTimeout          delivery_timeout_ms ran out for a record (also a TimeoutError)
        ├── TransactionTimeout       a transaction step took longer than max_block_ms (TimeoutError)
        ├── RecordTooLarge           a record above max_request_size or buffer_memory
        ├── Closed                   the client is closed, or
        │   └── NotStarted           not started yet
        ├── IllegalState             a call that the state of the client does not allow
        ├── InternalError            an exception that the client does not expect; a bug
        └── BadAnswer                a broker sent bytes that are no answer

An error that a broker sent has its `code`; `error_for` is the one place that maps codes to classes.
Every message says what happened and what to do about it.
"""

from __future__ import annotations

import re

from odradek_client.error_meanings import BARE_WORDS, MEANINGS, SAID_BY_BROKERS
from odradek_protocol.errors import ErrorCode
from odradek_protocol.visible import visible


class OdradekError(Exception):
    """Base of everything that the client raises. `code`: the error code of a broker, or None."""

    retriable = False

    def __init__(self, message: str = "", *, code: ErrorCode | None = None) -> None:
        super().__init__(visible(message, keep="\n"))
        self.code = code


class Retriable(OdradekError):
    """The same request may succeed later."""

    retriable = True


class Abortable(OdradekError):
    """The open transaction must be aborted."""


class Fatal(OdradekError):
    """The producer with this error must be closed."""


class Refused(OdradekError):
    """The broker will refuse the same request again."""


class LocalError(OdradekError):
    """An error that the client itself has detected."""


class ConnectionLost(Retriable):
    """A connection broke or could not be made; whether the request was carried out is unknown."""


class TlsFailed(ConnectionLost):
    """A connection could not be made: one side does not accept a certificate, or only one side uses
    TLS. A retry does not help."""

    retriable = False


class RequestTimedOut(Retriable, TimeoutError):
    """The broker did not answer in time; whether the request was carried out is unknown."""


class TaskCancelled(Retriable):
    """Another part of the program cancelled a task of the client; whether the request of the task
    was carried out is unknown."""


class UnknownTopicOrPartition(Retriable):
    """The broker does not have the topic or partition, or does not have it yet."""


class LeaderUnknown(Retriable):
    """The partition has no leader now."""


class NotLeader(Retriable):
    """The broker does not lead the partition."""


class CorruptMessage(Retriable):
    """The broker found a wrong checksum or length."""


class NotEnoughReplicas(Retriable):
    """Fewer replicas are in sync than min.insync.replicas asks for."""


class StorageFailed(Retriable):
    """The broker's disk has failed."""


class NotController(Retriable):
    """The broker is not the controller."""


class Throttled(Retriable):
    """A quota of the cluster is exhausted."""


class CoordinatorUnavailable(Retriable):
    """The group or transactional id has no running coordinator now."""


class NotCoordinator(Retriable):
    """Another broker coordinates this group or transactional id."""


class CoordinatorLoading(Retriable):
    """The coordinator is still reading its state."""


class ConcurrentTransactions(Retriable):
    """The previous transaction of this id is not finished yet."""


class InvalidProducerEpoch(Abortable):
    """The producer id has a higher epoch now, because there is a newer producer, or because the
    coordinator aborted a transaction that was open for too long."""


class TransactionAborted(Abortable):
    """The transaction cannot be committed."""


class GroupMovedOn(Abortable):
    """The group has a newer generation, without the member that read the records."""


class ProducerFenced(Fatal):
    """The epoch of this producer is not valid any more: a newer producer owns its transactional id,
    or the coordinator aborted a transaction that was open for longer than
    transaction_timeout_ms."""


class AuthenticationFailed(Fatal):
    """The broker refused the authentication, there are no credentials, or only one side uses SASL.
    Raised immediately, because a retry does not help."""


class ClusterAuthorizationFailed(Fatal):
    """A permission on the cluster is missing."""


class TransactionalIdAuthorizationFailed(Fatal):
    """A permission on the transactional id is missing."""


class InvalidProducerIdMapping(Fatal):
    """The producer id does not belong to the transactional id."""


class UnsupportedByBroker(Fatal):
    """Broker and client have no version of a request in common."""


class MessageTooLarge(Refused):
    """A batch exceeds the topic's max.message.bytes."""


class InvalidRecord(Refused):
    """The broker's validation of a record failed."""


class InvalidTopic(Refused):
    """An illegal topic name, or a topic that clients may not write to."""


class InvalidTimestamp(Refused):
    """The timestamp of a record is outside of the topic's limits."""


class UnsupportedCompression(Refused):
    """The broker does not accept this codec."""


class OutOfOrderSequence(Refused):
    """The broker does not have records that this producer sent before."""


class OffsetOutOfRange(Refused):
    """The offset is not in the partition's log."""


class TopicAlreadyExists(Refused):
    """A topic of this name exists."""


class InvalidPartitions(Refused):
    """An invalid number of partitions."""


class InvalidReplicationFactor(Refused):
    """The replication factor is greater than the number of brokers, or less than 1."""


class InvalidConfig(Refused):
    """The broker does not know this setting or value."""


class InvalidRequest(Refused):
    """The broker found the request invalid."""


class PolicyViolation(Refused):
    """A policy of the cluster forbids the request."""


class TopicAuthorizationFailed(Refused):
    """A permission on the topic is missing."""


class GroupAuthorizationFailed(Refused):
    """A permission on the group is missing."""


class IllegalGeneration(Refused):
    """The group has a newer generation."""


class UnknownMember(Refused):
    """The group does not have this member (any more)."""


class RebalanceInProgress(Refused):
    """The group is being rebalanced."""


class FencedInstance(Refused):
    """Another member has this group.instance.id."""


class InvalidGroup(Refused):
    """A group id or group state that the request does not allow."""


class NothingKnown(Refused):
    """The broker has neither a history nor a state of the subject of `describe_history`."""


class ConfigError(LocalError, ValueError):
    """A setting is unknown, malformed, out of bounds, or contradicts another."""


class BufferFull(LocalError):
    """There is no memory for the record at present."""


class BufferTimeout(LocalError, TimeoutError):
    """There was no memory for the record within max_block_ms."""


class MetadataTimeout(LocalError, TimeoutError):
    """A topic or a broker was not found in time."""


class DeliveryTimeout(LocalError, TimeoutError):
    """delivery_timeout_ms has passed; whether the record was written is unknown."""


class TransactionTimeout(LocalError, TimeoutError):
    """A call about a transaction did not end within max_block_ms. Only the same call is allowed
    next."""


class RecordTooLarge(LocalError):
    """The record exceeds max_request_size or buffer_memory."""


class Closed(LocalError):
    """The client is closed, or was never started."""


class NotStarted(Closed):
    """The client was never started."""


class IllegalState(LocalError):
    """The state of the client does not allow this call."""


class InternalError(LocalError):
    """A part of the client failed with an exception that the client does not expect, which is
    logged; perhaps a bug."""


class BadAnswer(LocalError):
    """A broker sent bytes that are no valid answer to the request."""


_E = ErrorCode

_CLASSES: dict[ErrorCode, type[OdradekError]] = {
    _E.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    _E.CORRUPT_MESSAGE: CorruptMessage,
    _E.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartition,
    _E.UNKNOWN_TOPIC_ID: UnknownTopicOrPartition,
    _E.LEADER_NOT_AVAILABLE: LeaderUnknown,
    _E.NOT_LEADER_OR_FOLLOWER: NotLeader,
    _E.FENCED_LEADER_EPOCH: NotLeader,
    _E.REQUEST_TIMED_OUT: RequestTimedOut,
    _E.NETWORK_EXCEPTION: ConnectionLost,
    _E.MESSAGE_TOO_LARGE: MessageTooLarge,
    _E.RECORD_LIST_TOO_LARGE: MessageTooLarge,
    _E.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorLoading,
    _E.COORDINATOR_NOT_AVAILABLE: CoordinatorUnavailable,
    _E.NOT_COORDINATOR: NotCoordinator,
    _E.INVALID_TOPIC_EXCEPTION: InvalidTopic,
    _E.NOT_ENOUGH_REPLICAS: NotEnoughReplicas,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicas,
    _E.ILLEGAL_GENERATION: IllegalGeneration,
    _E.STALE_MEMBER_EPOCH: IllegalGeneration,
    _E.FENCED_MEMBER_EPOCH: IllegalGeneration,
    _E.INCONSISTENT_GROUP_PROTOCOL: InvalidGroup,
    _E.INVALID_GROUP_ID: InvalidGroup,
    _E.NON_EMPTY_GROUP: InvalidGroup,
    _E.GROUP_ID_NOT_FOUND: InvalidGroup,
    _E.GROUP_MAX_SIZE_REACHED: InvalidGroup,
    _E.GROUP_SUBSCRIBED_TO_TOPIC: InvalidGroup,
    _E.INVALID_SESSION_TIMEOUT: InvalidGroup,
    _E.UNKNOWN_MEMBER_ID: UnknownMember,
    _E.REBALANCE_IN_PROGRESS: RebalanceInProgress,
    _E.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationFailed,
    _E.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationFailed,
    _E.CLUSTER_AUTHORIZATION_FAILED: ClusterAuthorizationFailed,
    _E.INVALID_TIMESTAMP: InvalidTimestamp,
    _E.UNSUPPORTED_VERSION: UnsupportedByBroker,
    _E.TOPIC_ALREADY_EXISTS: TopicAlreadyExists,
    _E.INVALID_PARTITIONS: InvalidPartitions,
    _E.INVALID_REPLICATION_FACTOR: InvalidReplicationFactor,
    _E.INVALID_REPLICA_ASSIGNMENT: InvalidReplicationFactor,
    _E.INVALID_CONFIG: InvalidConfig,
    _E.NOT_CONTROLLER: NotController,
    _E.INVALID_REQUEST: InvalidRequest,
    _E.POLICY_VIOLATION: PolicyViolation,
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequence,
    _E.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    _E.INVALID_TXN_STATE: TransactionAborted,
    _E.TRANSACTION_ABORTABLE: TransactionAborted,
    _E.INVALID_PRODUCER_ID_MAPPING: InvalidProducerIdMapping,
    _E.CONCURRENT_TRANSACTIONS: ConcurrentTransactions,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionalIdAuthorizationFailed,
    _E.KAFKA_STORAGE_ERROR: StorageFailed,
    _E.UNSUPPORTED_COMPRESSION_TYPE: UnsupportedCompression,
    _E.FENCED_INSTANCE_ID: FencedInstance,
    _E.INVALID_RECORD: InvalidRecord,
    _E.THROTTLING_QUOTA_EXCEEDED: Throttled,
    _E.PRODUCER_FENCED: ProducerFenced,
    _E.SASL_AUTHENTICATION_FAILED: AuthenticationFailed,
    _E.UNSUPPORTED_SASL_MECHANISM: AuthenticationFailed,
    _E.ILLEGAL_SASL_STATE: AuthenticationFailed,
}


def error_for(
    code: ErrorCode | int, message: str | None = None, *, about: str = ""
) -> OdradekError:
    """The exception for a code that is not NONE.

    `message`: the broker's message, if any. `about`: the subject, e.g. "topic 'orders', partition
    3". The subject is put in front of the message unless the broker's message names it. An unknown
    code becomes UNKNOWN_SERVER_ERROR, and the error is not retried; the number of the code stays in
    the text.
    """
    known = ErrorCode.of(code)
    if known is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    text, message = MEANINGS[known], visible(message or "")
    by_broker = bool(message) and known in SAID_BY_BROKERS
    if message and by_broker:
        text = message.rstrip(".")
    elif message and not (known in BARE_WORDS and BARE_WORDS[known].fullmatch(message)):
        text = f"{text}. The broker says: {message.removeprefix('The broker says: ')}"
    name = known.name if known == code else f"code {int(code)}"
    cls = _CLASSES.get(known)
    if cls is None:
        cls = Retriable if known.retriable else Refused
    if about and not (by_broker and _names(text, about)):
        text = f"{about}: {text}"
    return cls(f"{text} ({name})", code=known)


def _names(text: str, about: str) -> bool:
    """True if the text begins with the subject, or contains it in quotes."""
    quoted = re.search(r"'(.+)'", about)
    if quoted is None:
        return False
    start = text.lower().removeprefix("the ")
    return quoted[0] in text or start.startswith(
        (about.lower().replace("'", ""), quoted[1].lower())
    )

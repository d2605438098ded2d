"""The meaning of each of Kafka's error codes to a user, and the remedy."""

from __future__ import annotations

import re

from odradek_protocol.errors import ErrorCode

_E = ErrorCode

#: The errors whose message from the broker needs no further explanation.
SAID_BY_BROKERS = frozenset(
    {_E.INVALID_TOPIC_EXCEPTION, _E.INVALID_PARTITIONS, _E.TOPIC_ALREADY_EXISTS}
)
#: Patterns of brokers' messages that only repeat the code. The text of `MEANINGS` is shown instead.
BARE_WORDS: dict[ErrorCode, re.Pattern[str]] = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: re.compile(
        r"This server does not host this topic-partition\.|The topic '.*' does not exist\."
    ),
    _E.UNKNOWN_TOPIC_ID: re.compile(r"This server does not host this topic ID\."),
    _E.SECURITY_DISABLED: re.compile(r"No Authorizer is configured\..*"),
}

MEANINGS: dict[ErrorCode, str] = {
    _E.UNKNOWN_SERVER_ERROR: "the broker failed in a way it has no code for; see its log",
    _E.OFFSET_OUT_OF_RANGE: "the offset is not in the log; seek to one between its start and end",
    _E.CORRUPT_MESSAGE: "the bytes arrived damaged; if it stays, look at network and client versions",
    _E.UNKNOWN_TOPIC_OR_PARTITION: "the broker does not have this topic or partition; create it, "
    "or check its name",
    _E.INVALID_FETCH_SIZE: "the fetch size is impossible; make it positive",
    _E.LEADER_NOT_AVAILABLE: "the partition has no leader now; see that its brokers are up",
    _E.NOT_LEADER_OR_FOLLOWER: "another broker leads this partition now",
    _E.REQUEST_TIMED_OUT: "the broker could not finish within the request's timeout",
    _E.BROKER_NOT_AVAILABLE: "the broker is not up",
    _E.REPLICA_NOT_AVAILABLE: "a replica that should be there is not",
    _E.MESSAGE_TOO_LARGE: "the batch is above the topic's max.message.bytes; send smaller records "
    "or raise that setting",
    _E.STALE_CONTROLLER_EPOCH: "the request came from a controller that was replaced",
    _E.OFFSET_METADATA_TOO_LARGE: "the metadata of an offset commit is above "
    "offset.metadata.max.bytes; shorten it",
    _E.NETWORK_EXCEPTION: "the connection was lost before the answer came",
    _E.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading its state",
    _E.COORDINATOR_NOT_AVAILABLE: "no coordinator is running for this group or transactional id",
    _E.NOT_COORDINATOR: "another broker coordinates this group or transactional id now",
    _E.INVALID_TOPIC_EXCEPTION: "the topic name is illegal, or clients may not write to it; names "
    "are 1 to 249 of letters, digits, '.', '_' and '-'",
    _E.RECORD_LIST_TOO_LARGE: "the batch is above the topic's segment.bytes; lower batch_size",
    _E.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas; bring brokers back",
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but fewer replicas are in sync than "
    "min.insync.replicas; bring brokers back",
    _E.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or all",
    _E.ILLEGAL_GENERATION: "the group has gone on without this member; rejoin it",
    _E.INCONSISTENT_GROUP_PROTOCOL: "the members of the group have no assignor in common; give "
    "all of them one",
    _E.INVALID_GROUP_ID: "the group id is empty or illegal; set group_id",
    _E.UNKNOWN_MEMBER_ID: "the group removed this member; poll more often or raise the timeouts",
    _E.INVALID_SESSION_TIMEOUT: "session_timeout_ms is outside what the broker allows",
    _E.REBALANCE_IN_PROGRESS: "the group is being rebalanced; rejoin it",
    _E.INVALID_COMMIT_OFFSET_SIZE: "the offset commit is too large for the broker",
    _E.TOPIC_AUTHORIZATION_FAILED: "this user lacks a right on the topic: READ to consume, WRITE to "
    "produce, DESCRIBE to see it, CREATE to make it; whoever may alter the cluster grants it "
    "(odradek acl add)",
    _E.GROUP_AUTHORIZATION_FAILED: "this user lacks a right on the group: READ to be a member and to "
    "commit, DESCRIBE to look at it, DELETE to remove it; whoever may alter the cluster grants it "
    "(odradek acl add)",
    _E.CLUSTER_AUTHORIZATION_FAILED: "this user lacks a right on the cluster: CREATE for topics, "
    "DESCRIBE and ALTER for ACLs and users, DESCRIBE_CONFIGS and ALTER_CONFIGS for settings and quotas, "
    "IDEMPOTENT_WRITE for producers that write to no topic yet; whoever may alter the cluster grants "
    "it (odradek acl add)",
    _E.INVALID_TIMESTAMP: "a record's timestamp is outside the topic's window; see "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    _E.UNSUPPORTED_SASL_MECHANISM: "the broker does not offer this SASL mechanism",
    _E.ILLEGAL_SASL_STATE: "the broker did not expect this step of authentication",
    _E.UNSUPPORTED_VERSION: "the broker does not serve this version of the request",
    _E.TOPIC_ALREADY_EXISTS: "a topic of this name exists already",
    _E.INVALID_PARTITIONS: "the number of partitions is impossible; it must be above 0, and can "
    "only grow",
    _E.INVALID_REPLICATION_FACTOR: "the replication factor is below 1 or above the number of brokers",
    _E.INVALID_REPLICA_ASSIGNMENT: "the assignment of replicas contradicts itself",
    _E.INVALID_CONFIG: "the broker does not know this setting or cannot take this value",
    _E.NOT_CONTROLLER: "another broker is the controller now",
    _E.INVALID_REQUEST: "the broker found the request impossible",
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message format is too old for this",
    _E.POLICY_VIOLATION: "a policy of the cluster forbids it",
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: "the broker misses records sent before these; some were lost",
    _E.DUPLICATE_SEQUENCE_NUMBER: "the broker has these records already",
    _E.INVALID_PRODUCER_EPOCH: "the epoch of this producer id was raised: by a newer producer with the "
    "same transactional id, or by the coordinator, which aborts a transaction that was open for longer "
    "than transaction_timeout_ms",
    _E.INVALID_TXN_STATE: "the transaction is in a state that does not allow this; the coordinator "
    "aborts one that is open for longer than transaction_timeout_ms",
    _E.INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to the transactional id; "
    "start a new producer",
    _E.INVALID_TRANSACTION_TIMEOUT: "transaction_timeout_ms is above the broker's "
    "transaction.max.timeout.ms; lower it",
    _E.CONCURRENT_TRANSACTIONS: "the previous transaction of this id is still being finished",
    _E.TRANSACTION_COORDINATOR_FENCED: "a newer transaction coordinator has taken over",
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user lacks a right on the transactional id: "
    "WRITE for transactions, DESCRIBE to look at them; whoever may alter the cluster grants it "
    "(odradek acl add)",
    _E.SECURITY_DISABLED: "the cluster has no authorizer, so that everything is allowed; set "
    "authorizer.class.name on its brokers first",
    _E.OPERATION_NOT_ATTEMPTED: "not tried, because another part of the request failed",
    _E.KAFKA_STORAGE_ERROR: "the broker's disk failed or is full; see its log",
    _E.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    _E.SASL_AUTHENTICATION_FAILED: "the credentials were refused",
    _E.UNKNOWN_PRODUCER_ID: "the broker no longer knows this producer; its records were deleted",
    _E.REASSIGNMENT_IN_PROGRESS: "the partition is being moved; wait for that",
    _E.DELEGATION_TOKEN_AUTH_DISABLED: "the cluster does not use delegation tokens",
    _E.DELEGATION_TOKEN_NOT_FOUND: "no such delegation token",
    _E.DELEGATION_TOKEN_OWNER_MISMATCH: "the delegation token belongs to someone else",
    _E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "delegation tokens need an authenticated connection "
    "that does not use one",
    _E.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "this principal may not use the delegation token",
    _E.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired; get a new one",
    _E.INVALID_PRINCIPAL_TYPE: "the broker does not know this type of principal",
    _E.NON_EMPTY_GROUP: "the group still has members; stop them first",
    _E.GROUP_ID_NOT_FOUND: "no such group",
    _E.FETCH_SESSION_ID_NOT_FOUND: "the broker has dropped the fetch session",
    _E.INVALID_FETCH_SESSION_EPOCH: "the fetch session is out of step",
    _E.LISTENER_NOT_FOUND: "the leader has no listener of this name",
    _E.TOPIC_DELETION_DISABLED: "the broker has delete.topic.enable=false",
    _E.FENCED_LEADER_EPOCH: "another leader was elected meanwhile",
    _E.UNKNOWN_LEADER_EPOCH: "the broker has not heard of this leader epoch yet",
    _E.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not take this codec; choose another "
    "compression_type",
    _E.STALE_BROKER_EPOCH: "the broker was restarted meanwhile",
    _E.OFFSET_NOT_AVAILABLE: "the new leader does not know the end of the log yet",
    _E.MEMBER_ID_REQUIRED: "the group requires a member id first; join again with the one given",
    _E.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not up",
    _E.GROUP_MAX_SIZE_REACHED: "the group is full; see the broker's group.max.size",
    _E.FENCED_INSTANCE_ID: "another member uses the same group_instance_id; give each its own",
    _E.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica may become leader",
    _E.ELECTION_NOT_NEEDED: "this replica leads already",
    _E.NO_REASSIGNMENT_IN_PROGRESS: "no reassignment to cancel",
    _E.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to the topic; stop its members first",
    _E.INVALID_RECORD: "the broker refused a record; a compacted topic needs keys, for one",
    _E.UNSTABLE_OFFSET_COMMIT: "a transaction that commits these offsets is still open",
    _E.THROTTLING_QUOTA_EXCEEDED: "a quota of the cluster is used up; try later",
    _E.PRODUCER_FENCED: "the epoch of this producer is over: a newer producer uses the same "
    "transactional id, or the coordinator aborted a transaction that was open for longer than "
    "transaction_timeout_ms; close this one, and make a new one if it is the only one",
    _E.RESOURCE_NOT_FOUND: "no such resource",
    _E.DUPLICATE_RESOURCE: "the request names a resource twice",
    _E.UNACCEPTABLE_CREDENTIAL: "the credential does not meet the rules",
    _E.INCONSISTENT_VOTER_SET: "the voters of the quorum differ",
    _E.INVALID_UPDATE_VERSION: "the feature has another version by now",
    _E.FEATURE_UPDATE_FAILED: "the feature could not be updated",
    _E.PRINCIPAL_DESERIALIZATION_FAILURE: "the broker could not read the forwarded principal",
    _E.SNAPSHOT_NOT_FOUND: "no such snapshot",
    _E.POSITION_OUT_OF_RANGE: "the position is outside the snapshot",
    _E.UNKNOWN_TOPIC_ID: "the broker does not know this topic id; the topic may be new or deleted",
    _E.DUPLICATE_BROKER_REGISTRATION: "a broker of this id is registered already",
    _E.BROKER_ID_NOT_REGISTERED: "no broker of this id is registered",
    _E.INCONSISTENT_TOPIC_ID: "the topic was deleted and made again meanwhile",
    _E.INCONSISTENT_CLUSTER_ID: "this is another cluster",
    _E.TRANSACTIONAL_ID_NOT_FOUND: "no such transactional id",
    _E.FETCH_SESSION_TOPIC_ID_ERROR: "the fetch session mixes topic names and ids",
    _E.INELIGIBLE_REPLICA: "the replica may not be in sync",
    _E.NEW_LEADER_ELECTED: "another leader was elected by this change",
    _E.OFFSET_MOVED_TO_TIERED_STORAGE: "the offset lies in tiered storage",
    _E.FENCED_MEMBER_EPOCH: "the group has gone on without this member; rejoin it",
    _E.UNRELEASED_INSTANCE_ID: "another member still holds this group_instance_id",
    _E.UNSUPPORTED_ASSIGNOR: "the broker does not have this assignor",
    _E.STALE_MEMBER_EPOCH: "the member's epoch is old; heartbeat first",
    _E.MISMATCHED_ENDPOINT_TYPE: "this endpoint is of another type",
    _E.UNSUPPORTED_ENDPOINT_TYPE: "the broker does not know this type of endpoint",
    _E.UNKNOWN_CONTROLLER_ID: "no such controller",
    _E.UNKNOWN_SUBSCRIPTION_ID: "the broker does not know this telemetry subscription",
    _E.TELEMETRY_TOO_LARGE: "the telemetry is too large",
    _E.INVALID_REGISTRATION: "the registration was refused",
    _E.TRANSACTION_ABORTABLE: "the transaction cannot go on (it may have been open for longer than "
    "transaction_timeout_ms); abort it",
    _E.INVALID_RECORD_STATE: "the record is not in a state for this acknowledgement",
    _E.SHARE_SESSION_NOT_FOUND: "the broker has dropped the share session",
    _E.INVALID_SHARE_SESSION_EPOCH: "the share session is out of step",
    _E.FENCED_STATE_EPOCH: "the state's epoch is old",
    _E.INVALID_VOTER_KEY: "the voter's key is not the registered one",
    _E.DUPLICATE_VOTER: "the voter is there already",
    _E.VOTER_NOT_FOUND: "no such voter",
    _E.INVALID_REGULAR_EXPRESSION: "the broker cannot read the pattern; it takes RE2/J syntax",
    _E.REBOOTSTRAP_REQUIRED: "the broker asks to start again from bootstrap_servers",
    _E.STREAMS_INVALID_TOPOLOGY: "the topology is invalid",
    _E.STREAMS_INVALID_TOPOLOGY_EPOCH: "the topology's epoch is invalid",
    _E.STREAMS_TOPOLOGY_FENCED: "a newer topology is in use",
    _E.SHARE_SESSION_LIMIT_REACHED: "the broker has too many share sessions",
}

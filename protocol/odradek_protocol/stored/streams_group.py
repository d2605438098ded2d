"""A streams group as `__consumer_offsets` keeps it (KIP-1071; Kafka's StreamsGroup*Key and -Value).

The bytes are those of `typed_records`. The records of a group:

====  =============  =====================================================================
type  key            value
====  =============  =====================================================================
17    group          the group epoch, and the values for which it was computed
19    group, member  the member's own metadata
20    group          the group epoch and the time of the target assignment
21    group, member  the member's target assignment of tasks
22    group, member  the member's current tasks, and its epoch
23    group          the topology
====  =============  =====================================================================
"""

from __future__ import annotations

from enum import IntEnum

from odradek_protocol.common_structs import (
    StreamsProperty,
    StreamsSubtopology,
    StreamsTaskIds,
    UserEndpoint,
)
from odradek_protocol.message import Message, Struct, array, field, message
from odradek_protocol.primitives import INT8, INT32, INT64, STRING
from odradek_protocol.stored.typed_records import GroupKey, GroupMemberKey


class StreamsRecordType(IntEnum):
    """The type of a record: the int16 at the start of its key. Kafka no longer uses the type 18."""

    GROUP = 17
    MEMBER = 19
    TARGET_EPOCH = 20
    TARGET = 21
    CURRENT = 22
    TOPOLOGY = 23


# --- The group ---


@message(key=StreamsRecordType.GROUP, versions="0", flexible="0+")
class StreamsGroupMetadataValue(Message):
    """The group epoch, with the values for which it was computed: the hash of the topics (0 for no
    topic), the epoch of the topology whose topics all existed (-1 for none), and the settings of
    the assignor."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64)
    validated_topology_epoch: int = field(INT32, tag=0, tagged="0+", default=-1)
    last_assignment_configs: list[StreamsProperty] | None = field(
        array(StreamsProperty), nullable="0+", tag=1, tagged="0+", default=None
    )


@message(key=StreamsRecordType.TOPOLOGY, versions="0", flexible="0+")
class StreamsGroupTopologyValue(Message):
    """The topology of the group, in the version `epoch`."""

    epoch: int = field(INT32)
    subtopologies: list[StreamsSubtopology] = field(array(StreamsSubtopology))


# --- A member ---


@message(key=StreamsRecordType.MEMBER, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue(Message):
    """The metadata that a member has sent about itself. Members of one client have the same process
    id."""

    instance_id: str | None = field(STRING, nullable="0+")
    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    topology_epoch: int = field(INT32)
    process_id: str = field(STRING)
    user_endpoint: UserEndpoint | None = field(UserEndpoint, nullable="0+", default=None)
    client_tags: list[StreamsProperty] = field(array(StreamsProperty))


class StoredTasks(Struct):
    """Tasks of one subtopology. `assignment_epochs`: the group epoch in which the member got each
    task; only for active tasks."""

    subtopology_id: str = field(STRING)
    partitions: list[int] = field(array(INT32))
    assignment_epochs: list[int] | None = field(
        array(INT32), nullable="0+", tag=0, tagged="0+", default=None
    )


@message(key=StreamsRecordType.CURRENT, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue(Message):
    """The tasks of a member, and the tasks that it has to revoke. `state` is a number of Kafka's
    MemberState."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    active_tasks: list[StoredTasks] = field(array(StoredTasks))
    standby_tasks: list[StoredTasks] = field(array(StoredTasks))
    warmup_tasks: list[StoredTasks] = field(array(StoredTasks))
    active_tasks_pending_revocation: list[StoredTasks] = field(array(StoredTasks))
    standby_tasks_pending_revocation: list[StoredTasks] = field(array(StoredTasks))
    warmup_tasks_pending_revocation: list[StoredTasks] = field(array(StoredTasks))


# --- The target assignment ---


@message(key=StreamsRecordType.TARGET_EPOCH, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue(Message):
    """The group epoch that the target assignment belongs to, and the time of its computation in
    milliseconds since the epoch, 0 if it is not known."""

    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0, tagged="0+", default=0, ignorable=True)


@message(key=StreamsRecordType.TARGET, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue(Message):
    active_tasks: list[StreamsTaskIds] = field(array(StreamsTaskIds))
    standby_tasks: list[StreamsTaskIds] = field(array(StreamsTaskIds))
    warmup_tasks: list[StreamsTaskIds] = field(array(StreamsTaskIds))


# --- Types ---

KEYS: dict[int, type[Message]] = {
    StreamsRecordType.GROUP: GroupKey,
    StreamsRecordType.MEMBER: GroupMemberKey,
    StreamsRecordType.TARGET_EPOCH: GroupKey,
    StreamsRecordType.TARGET: GroupMemberKey,
    StreamsRecordType.CURRENT: GroupMemberKey,
    StreamsRecordType.TOPOLOGY: GroupKey,
}

VALUES: dict[int, type[Message]] = {
    StreamsRecordType.GROUP: StreamsGroupMetadataValue,
    StreamsRecordType.MEMBER: StreamsGroupMemberMetadataValue,
    StreamsRecordType.TARGET_EPOCH: StreamsGroupTargetAssignmentMetadataValue,
    StreamsRecordType.TARGET: StreamsGroupTargetAssignmentMemberValue,
    StreamsRecordType.CURRENT: StreamsGroupCurrentMemberAssignmentValue,
    StreamsRecordType.TOPOLOGY: StreamsGroupTopologyValue,
}

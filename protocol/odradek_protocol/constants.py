"""Special numbers in messages and logs, such as -1 for none.

Each of these numbers is the default of its field, or is described with its API. The names are
Kafka's, if Kafka has a name for the number.
"""

from __future__ import annotations

# --- None -----------------------------------------------------------------------------------------

NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
#: As the id of a broker: there is no leader, or no coordinator.
NO_NODE_ID = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_COORDINATOR_EPOCH = -1
#: As the generation of a classic group: the sender is not a member.
NO_GENERATION = -1
#: As the retention of a committed offset: the broker's retention applies.
NO_EXPIRY = -1
#: As the transaction timeout of a producer (InitProducerId): the producer has no transactions, or
#: uses two-phase commit (KIP-939).
NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1

# --- Epochs of a consumer group's member (ConsumerGroupHeartbeat, KIP-848) ------------------------

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
#: A static member that will return leaves with this member epoch.
LEAVE_STATIC_EPOCH = -2

# --- States of share partitions (KIP-932) ---------------------------------------------------------

#: The value for a number of completely delivered records that is not known.
NO_DELIVERY_COUNT = -1

# --- Fetch sessions (KIP-227) ---------------------------------------------------------------------

NO_FETCH_SESSION = 0
#: The session epoch that requests a new session; the next fetch of the session has epoch 1.
INITIAL_SESSION_EPOCH = 0
#: The session epoch that closes the session of a fetch, and requests no new one.
FINAL_SESSION_EPOCH = -1
#: The last session epoch; the next epoch after it is 1.
SESSION_EPOCH_MAX = 2**31 - 1

# --- Types of coordinators (FindCoordinator) ------------------------------------------------------

GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1
SHARE_COORDINATOR = 2

# --- Types of resources with settings (DescribeConfigs, IncrementalAlterConfigs) ------------------

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32

# --- Types of endpoints (DescribeCluster) ---------------------------------------------------------

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2

# --- Isolation levels (Fetch, ListOffsets) --------------------------------------------------------

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

# --- Special timestamps (ListOffsets) -------------------------------------------------------------

#: The end of the log: the high watermark, or the last stable offset with READ_COMMITTED.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
#: The record with the largest timestamp (KIP-734).
MAX_TIMESTAMP = -3
#: Tiered storage: the earliest offset on this broker's own disk (KIP-405).
EARLIEST_LOCAL_TIMESTAMP = -4
#: Tiered storage: the last offset in the remote tier (KIP-1005).
LATEST_TIERED_TIMESTAMP = -5
#: Tiered storage: the first offset that is not in the remote tier yet (KIP-1023).
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

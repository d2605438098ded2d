"""InitProducerId (key 22): assigns a producer id and epoch.

Versions: 2 is flexible; 3 has the current id and epoch in the request (KIP-360); 4 may answer
PRODUCER_FENCED; 5 may answer TRANSACTION_ABORTABLE; 6 has two-phase commit (KIP-939).

Of note: version 6 (two-phase commit) is advertised unless
`transaction.two.phase.commit.enable=false`; Kafka calls this version unstable.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, field
from odradek_protocol.primitives import BOOL, INT16, INT32, INT64, STRING

#: From this version on a producer with an id may request its next epoch (KIP-360).
EPOCH_BUMP_SINCE = 3
#: Before this version the answer is INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
PRODUCER_FENCED_SINCE = 4
#: Two-phase commit (KIP-939). Kafka calls this version unstable.
TWO_PHASE_COMMIT_SINCE = 6


@api_message(ApiKey.INIT_PRODUCER_ID)
class InitProducerIdRequest(Message):
    transactional_id: str | None = field(STRING, nullable="0+")
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, "3+", default=-1)
    producer_epoch: int = field(INT16, "3+", default=-1)
    enable2_pc: bool = field(BOOL, "6+")
    keep_prepared_txn: bool = field(BOOL, "6+")


@api_message(ApiKey.INIT_PRODUCER_ID)
class InitProducerIdResponse(Message):
    throttle_time_ms: int = field(INT32, ignorable=True)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
    ongoing_txn_producer_id: int = field(INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = field(INT16, "6+", default=-1)

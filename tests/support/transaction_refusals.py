"""Error responses of a coordinator to the requests of a transactional producer."""

from __future__ import annotations

from typing import Any

from odradek_client.producer.batch import ProducerIdAndEpoch
from odradek_client.producer.transaction_requests import (
    AddOffsetsToTxnHandler,
    AddPartitionsToTxnHandler,
    EndTxnHandler,
    EpochBumpHandler,
    InitProducerIdHandler,
    TxnOffsetCommitHandler,
    TxnRequestHandler,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnResponse
from odradek_protocol.schemas.end_txn import EndTxnResponse
from odradek_protocol.schemas.init_producer_id import InitProducerIdResponse
from transaction_model import add_partitions_response, offset_commit_response


def refusal(ask: TxnRequestHandler, code: ErrorCode) -> Any:
    request: Any = ask.message(ProducerIdAndEpoch(7, 0))
    if isinstance(ask, AddPartitionsToTxnHandler):
        return add_partitions_response(request, code)
    if isinstance(ask, TxnOffsetCommitHandler):
        return offset_commit_response(request, code)
    kinds: dict[type[TxnRequestHandler], Any] = {
        AddOffsetsToTxnHandler: AddOffsetsToTxnResponse,
        EndTxnHandler: EndTxnResponse,
        InitProducerIdHandler: InitProducerIdResponse,
        EpochBumpHandler: InitProducerIdResponse,
    }
    return kinds[type(ask)](error_code=code)

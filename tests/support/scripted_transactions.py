"""The scripted broker with transactions: `TransactionModel` served over sockets."""

from __future__ import annotations

from typing import Any

from odradek_protocol.schemas.api_versions import (
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek_protocol.schemas.init_producer_id import InitProducerIdResponse
from odradek_protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from scripted_broker import ScriptedBroker
from transaction_model import TransactionModel


class TransactionBroker(ScriptedBroker):
    """A scripted broker with transactions.

    `level`: the finalized level of transaction.version; -1 if the broker reports no features.
    """

    def __init__(self, node_id: int = 1, *, level: int = -1, **settings: Any) -> None:
        super().__init__(node_id, **settings)
        self.level = level
        self.features_epoch = 1
        self.model = TransactionModel(self.log)
        #: The node that FindCoordinator returns; None for this node.
        self.coordinator: ScriptedBroker | None = None

    def _api_versions(self, request: Any = None, version: int = 0) -> ApiVersionsResponse:
        answer = super()._api_versions(request, version)
        if self.level >= 0:
            # A client must ignore a level that is supported but not finalized (C-70).
            answer.supported_features = [
                SupportedFeatureKey(name="transaction.version", min_version=1, max_version=2)
            ]
            answer.finalized_features_epoch = self.features_epoch
            answer.finalized_features = [
                FinalizedFeatureKey(
                    name="transaction.version",
                    min_version_level=self.level,
                    max_version_level=self.level,
                )
            ]
        return answer

    def _init_producer_id(self, request: Any, version: int) -> InitProducerIdResponse:
        if request.transactional_id is None:
            return super()._init_producer_id(request, version)
        return self.model.init_producer_id(request, version)

    def _add_partitions_to_txn(self, request: Any, version: int) -> Any:
        return self.model.add_partitions(request, version)

    def _add_offsets_to_txn(self, request: Any, version: int) -> Any:
        return self.model.add_offsets(request, version)

    def _txn_offset_commit(self, request: Any, version: int) -> Any:
        return self.model.commit_offsets(request, version)

    def _end_txn(self, request: Any, version: int) -> Any:
        return self.model.end(request, version)

    def _find_coordinator(self, request: Any, version: int) -> Any:
        answer = super()._find_coordinator(request, version)
        if self.coordinator is not None:
            for found in [answer] if version < 4 else answer.coordinators:
                found.node_id, found.port = self.coordinator.node_id, self.coordinator.port
        return answer

    def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        if request.transactional_id is None:
            return self.produce(request)
        transactional_id = request.transactional_id

        def append(topic: str, index: int, records: Any) -> PartitionProduceResponse:
            code, offset = self.model.append(topic, index, transactional_id, records, version)
            return PartitionProduceResponse(index=index, error_code=code, base_offset=offset)

        return self.answer_produce(request, append)

    def after(self, key: Any, verdict: Any) -> None:
        """Carry out the next request of an API, but give `verdict` (such as HANG_UP) as the
        response."""

        def carry_out(request: Any, version: int) -> Any:
            getattr(self, f"_{key.name.lower()}")(request, version)
            return verdict

        self.on(key, carry_out)

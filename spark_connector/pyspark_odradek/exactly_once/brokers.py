"""The execution of the actions of `protocol` on a cluster.

A process has one object for each set of client settings. Coroutines run on the connector's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

from odradek_client.admin import Admin, ConfigResource
from odradek_client.admin.transactions import TransactionDescription
from odradek_client.config.admin import AdminConfig
from odradek_client.config.consumer import ConsumerConfig
from odradek_client.config.definition import Settings
from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import (
    InvalidProducerIdMapping,
    OdradekError,
    ProducerFenced,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    UnsupportedByBroker,
)
from odradek_client.network.client import NetworkClient
from odradek_client.producer.producer import Producer, producer_on_network
from odradek_client.structs import PreparedTransaction
from odradek_protocol.errors import ErrorCode
from pyspark_odradek.errors import SinkError
from pyspark_odradek.exactly_once import fault_points, protocol
from pyspark_odradek.exactly_once.decision_log import DecisionLog
from pyspark_odradek.exactly_once.fault_points import SparkFaultPoint
from pyspark_odradek.exactly_once.identity import split_id, transactional_id
from pyspark_odradek.exactly_once.ledger import LedgerRecordType, Participant
from pyspark_odradek.exactly_once.protocol import Fate, Terms

T = TypeVar("T")

log = logging.getLogger("odradek.spark")

#: The number of transactions that are ended at the same time.
ENDS_AT_ONCE_MAX = 64
#: The timeouts to try, in this order, if `transaction.max.timeout.ms` cannot be read. The first is
#: Kafka's default.
_TIMEOUTS_MS = (900_000, 60_000, 10_000, 1_000)
#: The name in the transactional id that exists once the job of a run is over (S-16).
_CLOSED = "closed"
#: The epoch from which on a new producer id may be needed (T-13).
_LAST_EPOCH = 32766
_COMMITTING = ("PrepareCommit", "CompleteCommit")
_ABORTING = ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")
#: The possible increases of the epoch after the transaction was prepared: by a commit, and by an
#: abort (requested, or caused by the broker's timeout).
_EPOCHS_OF_A_COMMIT = (0, 1)
_EPOCHS_OF_AN_ABORT = (0, 1, 2)
_NOT_OURS = frozenset(
    {"transactional_id", "transaction_timeout_ms", "transaction_two_phase_commit_enable"}
)


def settings_for(settings: Mapping[str, str], config: type[Settings]) -> dict[str, Any]:
    """The part of a sink's settings that another kind of client also has. `config`: the class of
    the settings of that client."""
    rows = config.rows()
    return {name: value for name, value in settings.items() if name in rows}


class Brokers:
    """The requests of the sink to the cluster, apart from the producers of rows."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = {k: v for k, v in settings.items() if k not in _NOT_OURS}
        self._wanted_timeout_ms = settings.get("transaction_timeout_ms")
        two_phase = settings.get("transaction_two_phase_commit_enable", "true")
        #: False if transactions without a timeout (two-phase commit, KIP-939) are known to be
        #: impossible, or are switched off.
        self.two_phase = two_phase.strip().lower() != "false"
        self._two_phase_refused_by_settings = not self.two_phase
        self._timeout_ms: int | None = None
        self._told_of_no_list = False
        self._admin = Admin(**settings_for(self._settings, AdminConfig))
        # Reading must not create the topic of the decision log, because a topic that is created
        # automatically has the broker's default cleanup.policy. A topic that once existed may be
        # missing: this worker may outlive a broker, and a new broker may have the same address.
        absent = {"allow_auto_create_topics": "false"}
        reading = settings_for(self._settings, ConsumerConfig)
        self._network = NetworkClient(
            ConsumerConfig.from_settings(
                {**reading, **absent, "isolation_level": "read_uncommitted"}
            )
        )
        writing = settings_for(self._settings, AdminConfig)
        self._producer = Producer(**{**writing, **absent, "linger_ms": "0"})
        #: The connections of all producers of rows. The producers can share the connections,
        #: because each task has a new producer, and the tasks run one after the other.
        self._rows_network = NetworkClient(ProducerConfig.from_settings(self._settings))
        self._logs: dict[str, DecisionLog] = {}

    async def start(self) -> None:
        """Connect. Raises OdradekError if no broker is reached within `max_block_ms`."""
        await self._network.start(self._rows_network.config.start_timeout_ms)
        await asyncio.gather(self._admin.start(), self._producer.start())

    async def close(self) -> None:
        await asyncio.gather(
            self._admin.close(),
            self._network.close(),
            self._rows_network.close(),
            self._producer.close(timeout_ms=1000),
        )

    # --- procedures -------------------------------------------------------------------------------

    async def run(self, steps: Generator[Any, Any, T], terms: Terms, topic: str) -> T:
        """Run a procedure of `protocol` to its end. `topic`: the topic of the decision log."""
        decisions = self._logs.get(topic)
        if decisions is None:
            decisions = DecisionLog(topic, self._network, self._admin, self._producer)
            self._logs[topic] = decisions
        query = terms.writer.query
        answer: Any = None
        try:
            while True:
                action = steps.send(answer)
                answer = await self._carry_out(action, query, decisions)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def _carry_out(self, action: Any, query: str, decisions: DecisionLog) -> Any:
        if isinstance(action, protocol.Read):
            return await decisions.read(query)
        if isinstance(action, protocol.Append):
            return await self._append(action, query, decisions)
        if isinstance(action, protocol.Describe):
            return await self._describe(query, action)
        if isinstance(action, protocol.End):
            return await self._end(query, action)
        if isinstance(action, protocol.ListOpen):
            return await self._list_open(query, action)
        if isinstance(action, protocol.Fence):
            return await self._fence(query, action)
        if isinstance(action, protocol.Close):
            # This creates the id.
            return await self._admin.fence_producer(transactional_id(query, action.run, _CLOSED))
        if isinstance(action, protocol.AskClosed):
            name = transactional_id(query, action.run, _CLOSED)
            return bool(await self._described([name]))
        assert isinstance(action, protocol.Forget), action
        try:
            return await decisions.forget(action.keys)
        except OdradekError as error:
            log.info("odradek: obsolete records of the decision log were not deleted: %s", error)
            return None

    async def _append(self, action: protocol.Append, query: str, decisions: DecisionLog) -> None:
        kind = action.record.kind
        if kind is LedgerRecordType.DONE:
            fault_points.reach(SparkFaultPoint.ALL_ENDED)
        await decisions.append(query, action.record)
        if kind is LedgerRecordType.COMMIT:
            fault_points.reach(SparkFaultPoint.DECISION_DURABLE)

    # --- transactions -----------------------------------------------------------------------------

    async def _describe(self, query: str, action: protocol.Describe) -> tuple[Fate, ...]:
        ids = [transactional_id(query, action.run, part.name) for part in action.participants]
        found = await self._described(ids)
        if found is None:
            log.warning("odradek: the broker cannot tell whether transactions are still open")
            return (Fate.OPEN,) * len(ids)
        return tuple(
            fate_of(part, found.get(name))
            for part, name in zip(action.participants, ids, strict=True)
        )

    async def _described(self, ids: Sequence[str]) -> Mapping[str, TransactionDescription] | None:
        """The descriptions of the ids that exist; None if the broker cannot describe transactions.
        Raises SinkError."""
        try:
            found = await self._admin.describe_transactions(ids, raise_errors=False)
        except UnsupportedByBroker:
            return None
        for error in found.errors.values():
            if isinstance(error, UnsupportedByBroker):
                return None
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise SinkError(
                    f"odradek: the outcome of transactions could not be looked up: {error}"
                ) from error
        return found

    async def _end(self, query: str, action: protocol.End) -> tuple[bool, ...]:
        limit = asyncio.Semaphore(ENDS_AT_ONCE_MAX)

        async def end(part: Participant) -> bool:
            prepared = PreparedTransaction(
                transactional_id(query, action.run, part.name),
                part.producer_id,
                part.epoch,
                part.version,
            )
            async with limit:
                try:
                    await self._admin.end_transaction(prepared, commit=action.commit)
                except (ProducerFenced, TransactionAborted, InvalidProducerIdMapping) as error:
                    log.warning("odradek: %s", error)
                    return False
            return True

        parts = list(action.participants)
        first: list[bool] = []
        if fault_points.is_armed(SparkFaultPoint.ONE_ENDED) and len(parts) > 1:
            first = [await end(parts.pop(0))]
            fault_points.reach(SparkFaultPoint.ONE_ENDED)
        results = await asyncio.gather(*map(end, parts), return_exceptions=True)
        for result in results:
            if isinstance(result, OdradekError):
                raise SinkError(
                    "odradek: a transaction could not be ended, and what was decided is not yet "
                    f"visible: {result}. A restart continues there"
                ) from result
            if isinstance(result, BaseException):
                raise result
        return (*first, *(bool(result) for result in results))

    async def _list_open(
        self, query: str, action: protocol.ListOpen
    ) -> tuple[tuple[str, str], ...]:
        try:
            found = await self._admin.list_transactions(states=["Ongoing", "Empty"])
        except OdradekError as error:
            # A broker before Kafka 3.0 never supports the request, so one warning is enough.
            if not isinstance(error, UnsupportedByBroker) or not self._told_of_no_list:
                log.warning(
                    "odradek: the clean-up could not list open transactions, and aborted none: %s. "
                    "Transactions that failed or superseded attempts of query %s left open may hold "
                    "back read_committed readers until they end. The next batch or restart tries again; "
                    "`odradek txn list --state Ongoing` shows them, "
                    "`odradek txn abort ID --execute` ends them",
                    error,
                    query,
                )
            self._told_of_no_list |= isinstance(error, UnsupportedByBroker)
            return ()
        names = (split_id(query, each.transactional_id) for each in found)
        return tuple(name for name in names if name is not None and name[0] in action.runs)

    async def _fence(self, query: str, action: protocol.Fence) -> None:
        limit = asyncio.Semaphore(ENDS_AT_ONCE_MAX)
        ids = [transactional_id(query, *each) for each in action.transactions]

        async def fence(name: str) -> None:
            async with limit:
                try:
                    await self._admin.fence_producer(name)
                except OdradekError as error:
                    self._tell_of_open(name, error)

        found = await self._admin.describe_transactions(ids, raise_errors=False)
        for name, error in found.errors.items():
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                self._tell_of_open(name, error)
        # Ids that an earlier clean-up has fenced stay in the list for days.
        may_write = (
            name
            for name, each in found.items()
            if each.is_open or (each.state == "Empty" and not each.is_fenced)
        )
        await asyncio.gather(*map(fence, may_write))

    def _tell_of_open(self, name: str, error: OdradekError) -> None:
        log.warning(
            "odradek: the clean-up could not abort transaction %s, which may hold back "
            "read_committed readers until it ends: %s. The next batch or restart tries again; "
            "so does `odradek txn abort ID --execute`",
            name,
            error,
        )

    # --- producers --------------------------------------------------------------------------------

    async def producer(self, name: str, two_phase: bool) -> Producer:
        """A started producer with an open transaction under this transactional id. Raises
        OdradekError."""
        while True:
            lasting = two_phase and self.two_phase
            settings: dict[str, Any] = {**self._settings, "transactional_id": name}
            if lasting:
                settings["transaction_two_phase_commit_enable"] = "true"
            else:
                settings["transaction_timeout_ms"] = str(await self._longest_timeout_ms())
            made = producer_on_network(self._rows_network, **settings)
            await made.start()
            try:
                await made.init_transactions()
                await made.begin_transaction()
            except (UnsupportedByBroker, TransactionalIdAuthorizationFailed):
                await made.close(timeout_ms=0)
                if not lasting:
                    raise
                self.two_phase = False
            except OdradekError as error:
                await made.close(timeout_ms=0)
                too_long = (
                    error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
                    and self._wanted_timeout_ms is None
                )
                refused_ms = self._timeout_ms or 0
                shorter_ms = next((each for each in _TIMEOUTS_MS if each < refused_ms), None)
                if lasting or not too_long or shorter_ms is None:
                    raise
                self._timeout_ms = shorter_ms
            else:
                return made

    @property
    def fallback_timeout_ms(self) -> int | None:
        """The timeout in ms of this process's transactions, if the timeout was derived from the
        broker's limit. None if the transactions have no timeout. Also None if the user has set a
        timeout, or has switched two-phase commit off.
        """
        asked_for = self._two_phase_refused_by_settings or self._wanted_timeout_ms is not None
        return None if self.two_phase or asked_for else self._timeout_ms

    async def _longest_timeout_ms(self) -> int:
        """The timeout in ms that the user has set; otherwise the longest timeout that the broker
        accepts.
        """
        if self._timeout_ms is None:
            self._timeout_ms = (
                int(self._wanted_timeout_ms)
                if self._wanted_timeout_ms is not None
                else await self._ask_timeout_ms()
            )
        return self._timeout_ms

    async def _ask_timeout_ms(self) -> int:
        name = "transaction.max.timeout.ms"
        try:
            cluster = await self._admin.describe_cluster()
            resource = ConfigResource.broker(cluster.brokers[0].node_id)
            found = await self._admin.describe_configs(resource, names=[name])
            return int(found[resource][name].value or _TIMEOUTS_MS[0])
        except (OdradekError, KeyError, IndexError, ValueError):
            return _TIMEOUTS_MS[0]


def fate_of(part: Participant, found: TransactionDescription | None) -> Fate:
    """The outcome of a prepared transaction, from its coordinator's description.

    No other transaction begins under the transactional id before the batch is finished (S-09). So
    the last transaction under the id is the prepared transaction, unless an administrator has
    intervened. After an intervention the outcome is UNKNOWN, and UNKNOWN is never treated as
    success.
    """
    if found is None:
        return Fate.UNKNOWN
    same = found.producer_id == part.producer_id
    ahead = found.epoch - part.epoch
    if found.state == "Ongoing":
        return Fate.OPEN if same and ahead == 0 else Fate.UNKNOWN
    rolled_over = not same and part.epoch >= _LAST_EPOCH and found.epoch == 0
    if found.state in _COMMITTING and ((same and ahead in _EPOCHS_OF_A_COMMIT) or rolled_over):
        return Fate.COMMITTED
    if found.state in _ABORTING and same and ahead in _EPOCHS_OF_AN_ABORT:
        return Fate.ABORTED
    return Fate.UNKNOWN

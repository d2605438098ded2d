"""The I/O of the sender: sends the requests of its plans, and passes on the answers.

There is no task: a pass runs after an event (a record, an answer, new metadata) or at the time that
a plan sets; several requests for a pass in one turn of the event loop lead to one pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from odradek_client.errors import (
    AuthenticationFailed,
    BadAnswer,
    Closed,
    OdradekError,
    RequestTimedOut,
    UnsupportedByBroker,
)
from odradek_client.network.client import NetworkClient
from odradek_client.producer.batch import ProducerBatch
from odradek_client.producer.sender import Produce, Sender, SenderPass
from odradek_client.producer.transaction_requests import TxnRequestHandler
from odradek_client.tasks import as_odradek, begin, require_running
from odradek_client.words import counted
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey, api_of
from odradek_protocol.primitives import WireError
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest

#: Failures within this time after a first failure are logged together with the first failure.
GATHERED_MS = 1_000.0

#: The minimum time between two log lines about failures, and between two log lines about refused
#: records.
NEXT_LINE_MS = 30_000.0

#: The time for which records are refused and sent again before a log line reports it.
PATIENCE_MS = 5_000.0

log = logging.getLogger("odradek.client.producer")


class _Failures:
    __slots__ = ("first_error", "partitions", "records")

    def __init__(self) -> None:
        self.records = 0
        self.partitions: set[tuple[str, int]] = set()
        self.first_error: BaseException | None = None

    def add(self, batch: ProducerBatch) -> None:
        self.records += batch.record_count
        self.partitions.add(batch.tp)
        self.first_error = self.first_error or batch.error_of(0)


class DeliveryLog:
    """The log of failed batches. Several failures share a line, because a line for each batch would
    hide all other log lines. `call_at(at_ms, tell)` calls `tell` at `at_ms`, a time of a monotonic
    clock in milliseconds."""

    def __init__(self, call_at: Callable[[float, Callable[[], None]], None]) -> None:
        self._call_at = call_at
        # The failures of records that were not written (False), and of records that may be in the
        # log (True).
        self._failures = {False: _Failures(), True: _Failures()}
        self._next_line_ms = 0.0
        self._refused_since_ms: float | None = None
        self._refusal_line_ms = 0.0

    def failed(self, batches: list[ProducerBatch], now_ms: float) -> None:
        """Note batches that have finally failed, because the program may never look at their
        deliveries."""
        if not batches:
            return
        if not any(failures.records for failures in self._failures.values()):
            line_ms = max(now_ms + GATHERED_MS, self._next_line_ms)
            self._next_line_ms = line_ms + NEXT_LINE_MS
            self._call_at(line_ms, self.tell)
        for batch in batches:
            self._failures[batch.unknown_fate].add(batch)

    def tell(self) -> None:
        """Log a line about all records that have failed since the last line. If some of these
        records may be in the log, they get a line of their own."""
        for unknown, failures in self._failures.items():
            if failures.records:
                log.warning(
                    "%s for %s %s: %s",
                    counted(failures.records, "record"),
                    _names(sorted(failures.partitions)),
                    "may be written or not" if unknown else "not written",
                    failures.first_error,
                )
                self._failures[unknown] = _Failures()

    def answered(self, trouble: OdradekError | None, now_ms: float) -> None:
        """Note batches that were acknowledged (`trouble` is None), or that were refused and will be
        sent again. `trouble`: the reason of the last refusal."""
        if trouble is None:
            self._refused_since_ms = None
            return
        if self._refused_since_ms is None:
            self._refused_since_ms = now_ms
        waited_ms = now_ms - self._refused_since_ms
        if waited_ms >= PATIENCE_MS and now_ms >= self._refusal_line_ms:
            self._refusal_line_ms = now_ms + NEXT_LINE_MS
            log.warning(
                "no record has been acknowledged for %.0f s; the records are sent again: %s",
                waited_ms / 1000,
                trouble,
            )


def _names(partitions: list[tuple[str, int]]) -> str:
    (topic, index), *others = partitions
    more = f" and {counted(len(others), 'other partition')}" if others else ""
    return f"{topic}-{index}{more}"


#: The minimum wait between two passes, so that passes do not spin when a wait is rounded to 0.
_WAKE_MS_MIN = 1.0


class SenderLoop:
    """Runs a `Sender` over a `NetworkClient`. `on_progress` is called after answers, because memory
    may be free; `on_failure` if the sender itself has failed, and can do nothing more."""

    def __init__(
        self,
        sender: Sender,
        network: NetworkClient,
        on_progress: Callable[[], None],
        on_failure: Callable[[OdradekError], None],
    ) -> None:
        self._sender = sender
        self._network = network
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._loop = network.loop
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._identity: asyncio.Task[None] | None = None
        self._txn_request: asyncio.Task[None] | None = None
        self._stopped = False
        self._delivery_log = DeliveryLog(self._call_at)
        self._log_timer: asyncio.TimerHandle | None = None
        sender.why_unreachable = network.why_unreachable

    def wake(self) -> None:
        """Schedule a pass. Closed if the event loop is closed."""
        if self._scheduled is None and not self._stopped:
            require_running(self._loop)
            self._scheduled = self._loop.call_soon(self._pass)

    def stop(self) -> None:
        """Run no more passes. Answers that still arrive are processed."""
        self._stopped = True
        for handle in (self._scheduled, self._timer, self._log_timer):
            if handle is not None:
                handle.cancel()
        self._delivery_log.tell()
        for task in (self._identity, self._txn_request):
            if task is not None and not self._loop.is_closed():
                task.cancel()

    def _pass(self) -> None:
        self._scheduled = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopped:
            return
        try:
            self._carry_out_next_step()
        except (KeyboardInterrupt, SystemExit):
            # A KeyboardInterrupt may be raised at any line, even while only this pass refers to the
            # drained batches.
            self._sender.fail_all(
                Closed("the program was interrupted before the record was sent"),
                Closed("the program was interrupted; the record may be written or not"),
            )
            raise
        except Exception as error:  # noqa: BLE001  the producer's calls raise it
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        failure = as_odradek(error, "the sender of the producer")
        assert failure is not None
        self._on_failure(failure)

    def _carry_out_next_step(self) -> None:
        plan = self._sender.step(self._now_ms(), self._network.is_ready)
        for produce in plan.produce:
            self._produce(produce)
        if plan.init_producer_id is not None:
            request = plan.init_producer_id
            self._identity = begin(
                self._loop,
                self._send_init_producer_id(request),
                "InitProducerId",
                self._identity_ended,
            )
        if plan.txn_request is not None:
            handler = plan.txn_request
            self._txn_request = begin(
                self._loop,
                self._send_txn_request(handler),
                "a request of the transaction",
                partial(self._txn_request_ended, handler),
            )
        for node_id in plan.connect:
            self._connect(node_id, plan)
        if plan.refresh_metadata:
            self._network.request_metadata_update()
        if plan.failed or plan.freed:
            self._delivery_log.failed(plan.failed, self._now_ms())
            self._on_progress()
        if plan.wake_ms is not None:
            wait_s = max(plan.wake_ms, _WAKE_MS_MIN) / 1000
            self._timer = self._loop.call_later(wait_s, self._pass)

    def _connect(self, node_id: int, plan: SenderPass) -> None:
        try:
            wait_s = self._network.connect_soon(node_id, self.wake)
        except AuthenticationFailed as error:
            self._after(self._sender.refused(node_id, error))
            return
        except OdradekError:
            # The node was just removed from the metadata; that change causes another pass.
            return
        if wait_s is not None:
            plan.wake_within(wait_s * 1000)

    def _produce(self, sent: Produce) -> None:
        try:
            limit = self._sender.version_limit(sent.batches)
            version = self._network.version_now(sent.node_id, ApiKey.PRODUCE, max_version=limit)
            request = self._sender.request(sent, version)
        except UnsupportedByBroker as error:
            code = error.code or ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            self._unanswered(sent, code, error)
            return
        except OdradekError as error:
            self._unanswered(sent, ErrorCode.NETWORK_EXCEPTION, error)
            return
        future = self._network.submit(sent.node_id, request, version=version)
        future.add_done_callback(partial(self._produced, sent))

    def _produced(self, sent: Produce, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self._unanswered(sent, ErrorCode.NETWORK_EXCEPTION, Closed("the request was cancelled"))
            return
        error = future.exception()
        try:
            if error is None:
                failed = self._sender.answered(sent, future.result(), self._now_ms())
                self._after(failed)
            elif isinstance(error, OdradekError):
                code = _CODES.get(type(error), ErrorCode.NETWORK_EXCEPTION)
                self._unanswered(sent, code, error)
            elif isinstance(error, WireError):
                reason = BadAnswer(f"the request cannot be put into bytes: {error}")
                self._unanswered(sent, ErrorCode.INVALID_REQUEST, reason)
            else:
                raise error
        except Exception as failure:  # noqa: BLE001  the producer's calls raise it
            self._fail(failure)

    def _unanswered(self, sent: Produce, code: ErrorCode, error: OdradekError) -> None:
        self._after(self._sender.unanswered(sent, code, error, self._now_ms()))

    def _after(self, failed: list[ProducerBatch]) -> None:
        now_ms = self._now_ms()
        self._delivery_log.failed(failed, now_ms)
        self._delivery_log.answered(self._sender.trouble, now_ms)
        self._on_progress()
        self.wake()

    async def _send_init_producer_id(self, request: InitProducerIdRequest) -> None:
        node_id = await self._network.least_loaded_node()
        response = await self._network.send(node_id, request)
        self._sender.identity_answered(response, self._now_ms())

    def _identity_ended(self, failure: OdradekError | None) -> None:
        if self._stopped:
            return
        if failure is not None:
            self._sender.identity_failed(failure, self._now_ms())
        self.wake()

    async def _send_txn_request(self, handler: TxnRequestHandler) -> None:
        """Look up the coordinator of a request, and send the request to it (C-33)."""
        network = self._network
        message = self._sender.request_message(handler)
        api = api_of(message)
        node_id = await network.find_coordinator(handler.key, handler.key_type)
        version = await network.version_for(
            node_id, api.key, channel="coordinator", max_version=handler.max_version
        )
        handler.check_version(version, api.name)
        try:
            response = await network.send(
                node_id, message, channel="coordinator", max_version=version
            )
        except WireError as error:
            raise UnsupportedByBroker(f"{api.name} cannot be put into bytes: {error}") from error
        if self._sender.request_answered(handler, response, version, self._now_ms()):
            network.forget_coordinator(handler.key, handler.key_type)

    def _txn_request_ended(self, handler: TxnRequestHandler, failure: OdradekError | None) -> None:
        if self._stopped:
            return
        if failure is not None:
            lost = self._sender.request_failed(handler, failure, self._now_ms())
            if lost:
                self._network.forget_coordinator(handler.key, handler.key_type)
        self.wake()

    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    def _call_at(self, at_ms: float, tell: Callable[[], None]) -> None:
        if self._stopped:
            tell()
        else:
            self._log_timer = self._loop.call_at(at_ms / 1000, tell)


#: The error code for each failure of a request (C-54). Other failures count as a lost connection.
_CODES: dict[type[OdradekError], ErrorCode] = {
    RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    UnsupportedByBroker: ErrorCode.UNSUPPORTED_VERSION,
    BadAnswer: ErrorCode.NETWORK_EXCEPTION,
}

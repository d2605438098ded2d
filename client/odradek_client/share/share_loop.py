"""The background work of a share consumer: requests to the leaders, and the renewal of locks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from odradek_client.config.share_consumer import ShareConsumerConfig
from odradek_client.errors import OdradekError
from odradek_client.network.client import NetworkClient
from odradek_client.share.fetcher import PlanKind, ShareFetcher, SharePlan
from odradek_client.tasks import LastingTask, begin, cancel

log = logging.getLogger("odradek.client.share")

#: The limit of the time between two checks for requests to send.
_IDLE_S = 1.0


class ShareLoop:
    """The task that sends the requests that a `ShareFetcher` plans.

    `on_change` is called after every event that a call of the application may be waiting for.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        network: NetworkClient,
        fetcher: ShareFetcher,
        on_change: Callable[[], None],
    ) -> None:
        self._config = config
        self._network = network
        self._fetcher = fetcher
        self._on_change = on_change
        self._wakeup = asyncio.Event()
        self._task: LastingTask | None = None
        self._requests: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        task = LastingTask(self._network.loop, self._run, "the work of a share consumer")
        self._task = self._network.stop_at_close(task)

    def wake(self) -> None:
        """Check now whether there are requests to send."""
        self._wakeup.set()

    async def _run(self) -> None:
        while True:
            self._wakeup.clear()
            try:
                self._send()
            except Exception:
                log.exception("the requests of a share consumer cannot be sent")
            try:
                async with asyncio.timeout(self._wait_s()):
                    await self._wakeup.wait()
            except TimeoutError:
                pass

    def _wait_s(self) -> float:
        at_ms = self._fetcher.wake_at_ms(self._network.now_ms())
        if at_ms is None:
            return _IDLE_S
        return min(max((at_ms - self._network.now_ms()) / 1000, 0.001), _IDLE_S)

    def _send(self) -> None:
        network, fetcher = self._network, self._fetcher
        fetcher.pass_time(network.now_ms())
        for plan in fetcher.next_requests(network.cluster, network.now_ms()):
            task = begin(network.loop, self._ask(plan), "a request", partial(self._ask_ended, plan))
            self._requests[task] = None
            task.add_done_callback(self._requests.pop)
        if fetcher.metadata_wanted:
            fetcher.metadata_wanted = False
            network.request_metadata_update()
        self._on_change()

    async def _ask(self, plan: SharePlan) -> None:
        timeout_ms: float = self._config.request_timeout_ms
        if plan.kind is PlanKind.FETCH:
            timeout_ms += self._config.fetch_max_wait_ms
        response = await self._network.send(
            plan.node_id, plan.request, timeout_ms=timeout_ms, channel="fetch"
        )
        self._fetcher.on_response(plan, response, self._network.cluster, self._network.now_ms())

    def _ask_ended(self, plan: SharePlan, failure: OdradekError | None) -> None:
        if failure is not None:
            if self._task is None:
                return
            log.info("share group: node %d did not answer: %s", plan.node_id, failure)
            self._fetcher.on_failure(plan, failure, self._network.now_ms())
        self._wakeup.set()
        self._on_change()

    async def stop(self) -> None:
        """Cancel the task, and the requests that have no answer yet."""
        task, self._task = self._task, None
        if task is not None:
            await task.stopped()
        await cancel(*self._requests)

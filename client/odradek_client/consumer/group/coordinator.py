"""The requests of a consumer to the coordinator of its group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from odradek_client.config.common import ClientConfig
from odradek_client.consumer.group.offset_requests import CoordinatorRetry
from odradek_client.errors import (
    CoordinatorUnavailable,
    OdradekError,
    RequestTimedOut,
    Retriable,
)
from odradek_client.network.client import NetworkClient
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message


class Retries:
    """The retries of a request. `left`: the remaining attempts (None: no limit); `last_error`: the
    error of the last attempt."""

    __slots__ = ("last_error", "left")

    def __init__(self, left: int | None = None) -> None:
        self.left = left
        self.last_error: OdradekError | None = None


class ConsumerCoordinator:
    """The coordinator of one group. The coordinator is looked up for the first request, and again
    after `forget`.

    Requests to the coordinator have a separate connection, so that no fetch delays a heartbeat.
    """

    def __init__(self, config: ClientConfig, group_id: str, network: NetworkClient) -> None:
        self._config = config
        self._network = network
        self.group_id = group_id

    async def find(self) -> int:
        """The coordinator's node id. CoordinatorUnavailable or another Retriable if no coordinator
        is available."""
        return await self._network.find_coordinator(self.group_id)

    def forget(self) -> None:
        """Drop the known coordinator, so that the next request looks it up again."""
        self._network.forget_coordinator(self.group_id)

    async def version_for(
        self, node_id: int, key: ApiKey, *, max_version: int | None = None
    ) -> int:
        """The version that `send` would choose."""
        return await self._network.version_for(
            node_id, key, channel="coordinator", max_version=max_version
        )

    async def send(
        self,
        node_id: int,
        request: Message,
        *,
        timeout_ms: float,
        max_version: int | None = None,
    ) -> Any:
        """Send a request to the node that `find` returned; returns the response. Errors as in
        `NetworkClient.send`."""
        return await self._network.send(
            node_id,
            request,
            channel="coordinator",
            timeout_ms=timeout_ms,
            max_version=max_version,
        )

    async def back_off(self) -> None:
        """Wait before the next try."""
        await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def ask(
        self,
        request: Callable[[int], Awaitable[Message | None]],
        max_version: int,
        read: Callable[..., CoordinatorRetry | None],
        retries: Retries,
    ) -> None:
        """Send the message that `request` returns for the coordinator's node id. Repeat this until
        `read` accepts the response by returning None, or raises.

        The loop also ends when `request` returns None. Raises the error of the last attempt when no
        retries are left.
        """
        while True:
            try:
                node_id = await self.find()
                message = await request(node_id)
                if message is None:
                    return
                response = await self.send(
                    node_id,
                    message,
                    timeout_ms=self._config.request_timeout_ms,
                    max_version=max_version,
                )
            except Retriable as error:
                retries.last_error = error
                self.forget()
            else:
                again = read(response)
                if again is None:
                    return
                retries.last_error = CoordinatorUnavailable(
                    f"group {self.group_id!r}: the coordinator cannot do it now"
                )
                if again is CoordinatorRetry.REDISCOVER:
                    self.forget()
            if retries.left is not None:
                retries.left -= 1
                if retries.left <= 0:
                    raise retries.last_error
            await self.back_off()

    async def within(
        self, timeout_ms: float, retries: Retries, work: Coroutine[Any, Any, None]
    ) -> None:
        """Await `work`. After `timeout_ms`, RequestTimedOut with the last error as its cause. A
        request in flight is not cancelled, and the broker handles it before later requests."""
        try:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                await work
        except TimeoutError as error:
            if isinstance(error, OdradekError):
                raise
            cause = retries.last_error
            raise RequestTimedOut(
                f"group {self.group_id!r}: the coordinator did not do it within {timeout_ms:.0f} ms"
                f"{f' ({cause})' if cause else ''}"
            ) from cause

"""The relay of orders for virtual clusters, from a broker under test to the process that makes
clusters.

The first order starts the process. The process ends when the broker ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import Any

from odradek_broker.server.http_messages import HttpError, Order

_START_S = 30.0
_ORDER_S = 60.0
_END_S = 10.0
_ANSWER_BYTES_MAX = 16 * 1024 * 1024


def _as_short_as_it_came(body: Any) -> bytes:
    """The body as JSON. The JSON is at most as long as the received text, so that it stays below
    the size limit of orders."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


class ClusterRelay:
    """A relay of orders to the host process of virtual clusters. The first order starts the
    process.

    `settings`: the settings of the clusters, by Kafka's names.
    """

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._address = ("", 0)
        self._starting = asyncio.Lock()
        #: The highest number of any cluster until now. A new host process continues with the next
        #: number.
        self._number = 0

    async def carry_out(self, order: Order) -> tuple[int, Any]:
        """(status, answer as JSON) of the host process. Raises Refused."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()
        try:
            async with asyncio.timeout(_ORDER_S):
                return await self._exchange(order)
        except TimeoutError:
            raise HttpError(503, f"the order was not carried out within {_ORDER_S:g} s") from None
        except (OSError, ValueError, asyncio.IncompleteReadError) as problem:
            name = type(problem).__name__
            raise HttpError(503, f"the process that makes clusters failed ({name})") from problem

    async def _exchange(self, order: Order) -> tuple[int, Any]:
        reader, writer = await asyncio.open_connection(*self._address, limit=_ANSWER_BYTES_MAX)
        try:
            body = b"" if order.body is None else _as_short_as_it_came(order.body)
            head = (
                f"{order.method} {order.path} HTTP/1.1\r\nHost: {self._address[0]}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode("latin-1") + body)
            status = int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])
            answer = json.loads(await reader.read(-1))
            self._number = max(self._number, answer.get("id", 0))
            return status, answer
        finally:
            writer.close()

    async def _start(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "odradek_testkit.virtual_clusters",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            # The child needs the module path of this process, which an inherited environment might
            # lack.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            first = {"settings": self._settings, "after": self._number}
            process.stdin.write(json.dumps(first).encode() + b"\n")
            async with asyncio.timeout(_START_S):
                line = await process.stdout.readline()
            host, _, port = json.loads(line)["http"].rpartition(":")
        except (OSError, ValueError, TimeoutError) as problem:
            with suppress(ProcessLookupError):
                process.kill()
            self._process = None
            await process.wait()
            raise HttpError(503, "the process that makes clusters did not start") from problem
        self._address = (host, int(port))

    async def close(self) -> None:
        """End the process and all clusters."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with suppress(ProcessLookupError):
            # A child that this program has forked may have inherited the other end of the pipe, so
            # closing it here does not always end the process.
            process.terminate()
        try:
            async with asyncio.timeout(_END_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()

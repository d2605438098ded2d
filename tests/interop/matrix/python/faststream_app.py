"""FastStream's subscribers and publishers, while the broker is killed. Arguments: HOST:PORT
NAME."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from faststream.kafka import KafkaBroker, KafkaMessage

from checks import DEADLINE_S, Wrong, check, each_once, kill_the_broker, same

COUNT = 100
WHILE_KILLED = 100


async def until(ready: Callable[[], bool], awaited: str) -> None:
    for _ in range(int(DEADLINE_S * 10)):
        if ready():
            return
        await asyncio.sleep(0.1)
    raise Wrong(f"{awaited}: not after {DEADLINE_S:.0f} s")


class Application:
    """An application that doubles numbers from one topic into another, and keeps what it reads."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.broker = KafkaBroker(bootstrap, enable_idempotence=True, logger=None)
        self.doubled: list[str] = []
        self.headers: set[str] = set()
        self.batches: list[list[int]] = []
        self.handled = 0
        options: dict[str, Any] = {"auto_offset_reset": "earliest"}

        async def double(number: int, message: KafkaMessage) -> int:
            self.handled += 1
            self.headers.add(str(message.headers.get("h")))
            return number * 2

        async def collect(number: int) -> None:
            self.doubled.append(str(number))

        async def batch(numbers: list[int]) -> None:
            self.batches.append(numbers)

        subscriber = self.broker.subscriber(f"{name}-in", group_id=f"{name}-double", **options)
        subscriber(self.broker.publisher(f"{name}-out")(double))
        self.broker.subscriber(f"{name}-out", group_id=f"{name}-collect", **options)(collect)
        self.broker.subscriber(f"{name}-batch", group_id=f"{name}-batch", batch=True, **options)(
            batch
        )


async def pipeline(bootstrap: str, name: str) -> None:
    app = Application(bootstrap, name)
    async with app.broker:
        await app.broker.start()
        for number in range(COUNT):
            key = f"k{number}".encode()
            await app.broker.publish(number, f"{name}-in", key=key, headers={"h": "1"})
        await until(lambda: len(app.doubled) >= COUNT, "all numbers")
        each_once(app.doubled, [str(2 * number) for number in range(COUNT)])
        same(app.headers, {"1"})
        await app.broker.publish_batch(*range(COUNT), topic=f"{name}-batch")
        await until(lambda: sum(map(len, app.batches)) >= COUNT, "the batch")
        same([number for batch in app.batches for number in batch], list(range(COUNT)))


async def two_members(bootstrap: str, name: str) -> None:
    """Let a second instance of the application take over partitions and leave."""
    first, second = Application(bootstrap, name), Application(bootstrap, name)
    async with first.broker, second.broker:
        await first.broker.start()
        await second.broker.start()
        sent: list[int] = []
        for turn in range(30):
            for number in range(10):
                sent.append(1000 + turn * 10 + number)
                await first.broker.publish(sent[-1], f"{name}-in", partition=number % 2)
            await until(lambda: first.handled + second.handled >= len(sent), "all of them")
            if first.handled and second.handled:
                break
        same(bool(first.handled and second.handled), True)
        await until(lambda: len(first.doubled + second.doubled) >= len(sent), "all results")
        each_once(first.doubled + second.doubled, [str(2 * number) for number in sent])


async def killed(bootstrap: str, name: str) -> None:
    """Publish messages, one after the other, while the broker is killed and started again."""
    app = Application(bootstrap, name)
    async with app.broker:
        await app.broker.start()
        sent: list[int] = []
        killer: asyncio.Task[None] | None = None
        while killer is None or not killer.done() or len(sent) < WHILE_KILLED:
            sent.append(10_000 + len(sent))
            await app.broker.publish(sent[-1], f"{name}-in")
            if len(sent) == WHILE_KILLED // 2:
                killer = asyncio.create_task(asyncio.to_thread(kill_the_broker))
        wanted = {str(2 * number) for number in sent}
        await until(lambda: wanted <= set(app.doubled), "all results")


async def create_topic(bootstrap: str, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(f"{name}-in", 2, 1)])
    await admin.close()


def main() -> None:
    bootstrap, name = sys.argv[1:]
    asyncio.run(create_topic(bootstrap, name))

    def work(story: Callable[[str, str], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        return lambda: asyncio.run(story(bootstrap, name))

    check("numbers go through a subscriber and a publisher, with headers; batches", work(pipeline))
    check("two instances share the partitions and handle each message once", work(two_members))
    check("a broker that is killed loses no published message", work(killed))


if __name__ == "__main__":
    main()

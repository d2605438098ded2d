"""The topics that `odradek consume` reads: named topics, and topics that match expressions.
Matching topics that are created during the run are also read."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from odradek_cli.commands import fail
from odradek_cli.common import tell
from odradek_cli.topic_patterns import is_pattern, matching, nothing_matches, quoted
from odradek_protocol.settings import nearest

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.consumer.consumer import Consumer

#: The time after which all nodes of a cluster should have a new topic.
_NEW_TOPIC_S = 2.0
_NEW_TOPIC_PAUSE_S = 0.25
#: The time within which a newly created topic that matches an expression is read.
NEW_TOPICS_MS = 5_000


async def topics_of(admin: Admin, words: list[str], *, wait: bool) -> list[str]:
    """The topics that these names and expressions match now. Ends the program if a named topic does
    not exist. Also ends it if the expressions match no topic, unless `wait`."""
    names = [word for word in words if not is_pattern(word)]
    if names:
        await _require_topics(admin, names)
    if len(names) == len(words):
        return words
    found = matching(words, await admin.list_topics())
    if not found:
        if not wait:
            fail(nothing_matches(words))
        tell(f"no topic matches {quoted(words)} yet; waiting for one, until Ctrl+C")
    return list(dict.fromkeys([*names, *found]))


async def take_new_topics(
    consumer: Consumer, admin: Admin, words: list[str], wanted: list[int]
) -> None:
    """Read new topics that match the expressions, each from its beginning."""
    from odradek_client.errors import OdradekError, Retriable
    from odradek_client.structs import TopicPartition

    while True:
        await asyncio.sleep(NEW_TOPICS_MS / 1000)
        try:
            known = {each.topic for each in consumer.assignment()}
            for topic in matching(words, await admin.list_topics()):
                if topic not in known:
                    numbers = await consumer.partitions_for(topic)
                    new = [
                        TopicPartition(topic, each)
                        for each in numbers
                        if not wanted or each in wanted
                    ]
                    consumer.assign([*consumer.assignment(), *new])
        except Retriable:
            continue
        except OdradekError as error:
            tell(f"odradek: new topics are no longer noticed: {error}")
            return


async def _require_topics(admin: Admin, topics: list[str]) -> None:
    """End the program if a topic does not exist, because users seldom want to wait for it.

    In a cluster of several nodes, the search is repeated for a while, because some nodes may not
    know a new topic yet.
    """
    from odradek_client.errors import UnknownTopicOrPartition

    deadline = time.monotonic() + _NEW_TOPIC_S
    while True:
        try:
            await admin.describe_topics(topics)
            return
        except UnknownTopicOrPartition:
            if len(admin.network.cluster.brokers) == 1 or time.monotonic() >= deadline:
                break
        await asyncio.sleep(_NEW_TOPIC_PAUSE_S)
    there = await admin.list_topics(internal=True)
    missing = next((topic for topic in topics if topic not in there), topics[0])
    alike = nearest(missing, there)
    fail(
        f"topic {missing!r} does not exist; "
        + (f"is it {alike!r}?" if alike else "`odradek topic list` shows those that do")
    )

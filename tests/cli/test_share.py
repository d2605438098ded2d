"""`odradek share` against a scripted broker: output, answers and refusals."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from cli_runner import Commands
from odradek_protocol.common_structs import DescribedAssignment, TopicPartitionsInfo
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.list_groups import ListedGroup, ListGroupsResponse
from odradek_protocol.schemas.share_group_describe import (
    DescribedShareGroup,
    DescribedShareMember,
    ShareGroupDescribeResponse,
)
from scripted_broker import topic_id
from share_broker import ShareBroker
from share_leader import ACKNOWLEDGED, ARCHIVED, AVAILABLE


@pytest.fixture
def broker() -> Iterator[ShareBroker]:
    """A broker whose event loop runs in its own thread, because commands block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> ShareBroker:
        broker = ShareBroker()
        await broker.start()
        return broker

    broker = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    try:
        yield broker
    finally:
        asyncio.run_coroutine_threadsafe(broker.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def odradek(broker: ShareBroker) -> Commands:
    return Commands(broker.address)


def test_records_are_printed_and_accepted(broker: ShareBroker, odradek: Commands) -> None:
    broker.append(b"a", b"b", b"c")
    assert odradek.run("share", "consume", "t", "-g", "g", "-c", "2") == "a\nb\n"
    assert broker.states() == [ACKNOWLEDGED, ACKNOWLEDGED, AVAILABLE]
    assert "2 records" in odradek.stderr


@pytest.mark.parametrize(("answer", "state"), [("release", AVAILABLE), ("reject", ARCHIVED)])
def test_records_may_be_released_or_rejected(
    broker: ShareBroker, odradek: Commands, answer: str, state: str
) -> None:
    broker.append(b"a")
    (row,) = odradek.rows("share", "consume", "t", "-g", "g", "-c", "1", "--answer", answer)
    assert (row["payload"], row["offset"], row["delivery_count"]) == ("a", 0, 1)
    assert broker.states() == [state]


def test_refused_acknowledgements_are_reported(broker: ShareBroker, odradek: Commands) -> None:
    for number in range(2):
        broker.leader.errors[topic_id("t"), number] = (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    broker.append(b"a", b"b")
    assert odradek.run("share", "consume", "t", "-g", "g", "--exit", code=1) == "a\nb\n"
    assert "INVALID_REQUEST" in odradek.stderr
    assert "2 records, of which 2 were not answered" in odradek.stderr


def test_share_consume_takes_the_format_of_consume(broker: ShareBroker, odradek: Commands) -> None:
    broker.append(b"a")
    printed = odradek.run("share", "consume", "t", "-g", "g", "-c", "1", "-f", "%t/%p/%o %s;")
    assert printed == "t/0/0 a;"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consume", "t", "-g", "g", "--answer", "renew"), "accept, release, reject"),
        (("consume", "t", "-g", "g", "-f", "%y"), "--format"),
        (("reset-offsets", "g", "--to-earliest"), "--topic"),
        (("reset-offsets", "g", "-t", "t"), "say where to"),
        (("delete-offsets", "g"), "--topic"),
    ],
)
def test_wrong_share_options_are_refused(
    odradek: Commands, arguments: tuple[str, ...], said: str
) -> None:
    odradek.run("share", *arguments, code=2)
    assert said in odradek.stderr


def test_share_groups_are_listed_and_described(broker: ShareBroker, odradek: Commands) -> None:
    listed = ListedGroup(
        group_id="g", protocol_type="share", group_state="Stable", group_type="Share"
    )
    broker.always(ApiKey.LIST_GROUPS, lambda request, version: ListGroupsResponse(groups=[listed]))
    assert odradek.run("share", "list") == "g\n"
    assert broker.received(ApiKey.LIST_GROUPS)[0].types_filter == ["share"]
    member = DescribedShareMember(
        member_id="m",
        member_epoch=4,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        assignment=DescribedAssignment(
            topic_partitions=[
                TopicPartitionsInfo(topic_id=topic_id("t"), topic_name="t", partitions=[0, 1])
            ]
        ),
    )
    described = DescribedShareGroup(
        group_id="g", group_state="Stable", group_epoch=5, assignor_name="simple", members=[member]
    )
    broker.always(
        ApiKey.SHARE_GROUP_DESCRIBE,
        lambda request, version: ShareGroupDescribeResponse(groups=[described]),
    )
    assert odradek.table("share", "describe")[1] == ["g", "Stable", "1", "m", "/h", "c", "t-0,t-1"]
    row = json.loads(odradek.run("share", "describe", "g", "--json"))
    assert row["members"][0]["assignment"][1] == {"topic": "t", "partition": 1}

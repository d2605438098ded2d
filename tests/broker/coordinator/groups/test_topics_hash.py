"""The hash of topics, compared with hashes that Kafka's library makes (hash4j 0.22, in the jars of
Kafka 4.3.0)."""

from __future__ import annotations

import pytest

from at_once import at_once
from coordinator_world import Topics
from odradek_broker.coordinator.groups.topics_hash import topic_hash, topics_hash, xxh3

ID = bytes.fromhex("0102030405060708f0f1f2f3f4f5f6f7")
#: Length of the input in bytes -> its hash.
HASHES = {
    8: 8015172013031959949,
    9: 1585606089054485779,
    12: -8364032100020616036,
    15: -1869944042574525753,
    16: 7002310230026271048,
    17: -1713561490077343190,
    31: -5947906086174657632,
    32: 1264165659790605147,
    33: -1773722363692809100,
    64: -4416497458536422225,
    65: 7398296777216935588,
    96: -5942486388004699012,
    97: 1173387717976140289,
    128: -4335260953473190593,
    129: -9037722003333534649,
    143: 2026093801520833700,
    144: -2484770851555303341,
    200: 3352990268752720209,
    239: -4572174906882530540,
    240: 513842647491184740,
    241: -8505843878175771691,
    255: -9152167767453559127,
    256: 3876560911931501243,
    257: 3608068206163112126,
    512: -3868214212900259358,
    1023: -3120853329197277445,
    1024: -2091614837683013513,
    1025: -6036750704733529799,
    1087: -2852669435432437942,
    1088: 6182677612386748603,
    1089: -4481280921082085572,
    2048: -1194461588420795360,
    2049: -4896561613680755336,
    40031: -803419275394033273,
}
TOPIC, ORDERS, LONG, IN_RACK = (
    -1879725825248105204,
    -7498333110588660321,
    1612141138663399903,
    2495181982498849964,
)


def test_the_hash_function_is_that_of_kafka() -> None:
    for size, expected in HASHES.items():
        data = bytes((at * at * 7 + at * 31 + size) & 0xFF for at in range(size))
        assert at_once(xxh3(data)) == expected, size


@pytest.mark.parametrize(
    ("name", "partitions", "rack", "expected"),
    [
        ("topic", 1, "", TOPIC),
        ("orders", 3, "", ORDERS),
        ("a-much-longer.topic_name", 60, "", LONG),
        ("orders", 3, "rack-a", IN_RACK),
    ],
)
def test_h03_a_topic_has_the_hash_that_kafka_computes(
    name: str, partitions: int, rack: str, expected: int
) -> None:
    assert at_once(topic_hash(name, ID, partitions, rack)) == expected


def test_h03_topics_are_hashed_in_the_order_of_their_names() -> None:
    topics = Topics({"topic": 1, "orders": 3}, {"topic": ID, "orders": ID})
    assert at_once(topics_hash({"topic"}, topics)) == 4768104911567865227
    both = at_once(
        xxh3(b"".join([(each & (2**64 - 1)).to_bytes(8, "little") for each in (ORDERS, TOPIC)]))
    )
    assert at_once(topics_hash({"topic", "orders", "nonesuch"}, topics)) == both
    assert at_once(topics_hash({"nonesuch"}, topics)) == 0

"""The partitions of records (C-18): murmur2 as in Java, and the sticky partitioner."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from odradek_client.producer.partitioner import next_sticky, partition_for_key
from odradek_protocol.murmur2 import murmur2


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_c18_murmur2_agrees_with_the_java_clients_own_vectors(key: bytes, java: int) -> None:
    assert murmur2(key) == java & 0xFFFFFFFF


def test_c18_murmur2_agrees_with_two_other_clients() -> None:
    from aiokafka.partitioner import murmur2 as of_aiokafka
    from kafka.partitioner import murmur2 as of_kafka_python

    rng = random.Random(7)
    for length in [*range(40), 255, 1000]:
        key = rng.randbytes(length)
        assert murmur2(key) == of_aiokafka(key) & 0xFFFFFFFF
        assert murmur2(key) == of_kafka_python(key) & 0xFFFFFFFF


@pytest.mark.parametrize("length", [0, 3, 64, 65, 500])
def test_c18_a_key_goes_to_the_positive_hash_modulo_partitions(length: int) -> None:
    key = random.Random(length).randbytes(length)
    for partitions in (1, 2, 7, 100):
        assert partition_for_key(key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions


def test_c18_sticky_partitions_are_chosen_by_queue_length() -> None:
    rng = random.Random(1)
    chosen = Counter(next_sticky([0, 3, 5], [0, 2, 4], rng) for _ in range(9000))
    assert set(chosen) == {0, 3, 5}
    assert chosen[0] == pytest.approx(5000, rel=0.1)
    assert chosen[3] == pytest.approx(3000, rel=0.1)
    assert chosen[5] == pytest.approx(1000, rel=0.2)
    assert next_sticky([4], [9], rng) == 4

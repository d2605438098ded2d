"""The share session, compared with a model of the broker's side."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek_client.share.acknowledgements import TopicIdPartition
from odradek_client.share.session import ShareSessionHandler, acknowledge_topics
from odradek_protocol.settings import INT32_MAX

PARTITIONS = [
    TopicIdPartition(bytes([topic]) * 16, f"t{topic}", number)
    for topic in range(2)
    for number in range(3)
]
SOME = st.lists(st.sampled_from(PARTITIONS), unique=True)


@given(st.lists(st.tuples(SOME, SOME, st.booleans())))
def test_k65_a_share_session_fetches_exactly_the_wanted_partitions(
    steps: list[tuple[list[TopicIdPartition], list[TopicIdPartition], bool]],
) -> None:
    session, at_broker, epoch = ShareSessionHandler(), set[tuple[bytes, int]](), 0
    for wanted, acknowledged, lost in steps:
        answers = {each: {5: 1} for each in acknowledged} if session.is_open else {}
        request = session.fetch(wanted, answers)
        assert request.epoch == epoch
        named = {(t.topic_id, p.partition_index) for t in request.topics for p in t.partitions}
        with_answers = {
            (t.topic_id, p.partition_index)
            for t in request.topics
            for p in t.partitions
            if p.acknowledgement_batches
        }
        assert with_answers == {(each.topic_id, each.partition) for each in answers}
        if epoch == 0:
            at_broker = set()
        at_broker |= named
        at_broker -= {(t.topic_id, p) for t in request.forgotten for p in t.partitions}
        assert at_broker == {(each.topic_id, each.partition) for each in wanted}
        assert set(session.partitions) == set(wanted)
        if lost:
            session.restart()
            epoch = 0
        else:
            session.answered()
            epoch += 1


def test_k65_an_unchanged_partition_is_not_sent_again() -> None:
    session = ShareSessionHandler()
    session.fetch(PARTITIONS[:2], {})
    session.answered()
    request = session.fetch(PARTITIONS[:2], {})
    assert request.topics == [] and request.forgotten == []


def test_k65_a_partition_named_only_to_acknowledge_is_forgotten_at_once() -> None:
    session = ShareSessionHandler()
    session.fetch(PARTITIONS[:1], {})
    session.answered()
    request = session.fetch(PARTITIONS[:1], {PARTITIONS[4]: {3: 1}})
    assert [t.topic_id for t in request.topics] == [PARTITIONS[4].topic_id]
    assert [(t.topic_id, t.partitions) for t in request.forgotten] == [
        (PARTITIONS[4].topic_id, [1])
    ]


def test_k65_the_session_epoch_wraps_to_one() -> None:
    session = ShareSessionHandler()
    session.fetch(PARTITIONS[:1], {})
    session.answered()
    session._epoch = INT32_MAX
    session.answered()
    assert session.epoch == 1 and session.is_open


def test_k72_acknowledgements_are_grouped_by_topic() -> None:
    topics = acknowledge_topics(
        {PARTITIONS[0]: {1: 1, 2: 1}, PARTITIONS[2]: {4: 2}, PARTITIONS[3]: {0: 0}}
    )
    assert [[p.partition_index for p in topic.partitions] for topic in topics] == [[0, 2], [0]]

"""Acknowledgements: the batches in requests, and the search for the record that a broker
refuses."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from odradek_client.share.acknowledgements import (
    AcknowledgeType,
    PendingAcknowledgements,
    to_batches,
)

TYPES = st.dictionaries(st.integers(0, 60), st.integers(0, 3))


@given(TYPES)
def test_k72_acknowledgement_batches_cover_the_given_types_exactly(types: dict[int, int]) -> None:
    batches = [
        (each.first_offset, each.last_offset, each.acknowledge_types) for each in to_batches(types)
    ]
    said: dict[int, int] = {}
    for first, last, kinds in batches:
        assert len(kinds) in (1, last - first + 1)
        for offset in range(first, last + 1):
            assert offset not in said
            said[offset] = kinds[0] if len(kinds) == 1 else kinds[offset - first]
    assert said == types
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(batches))


@given(TYPES, st.sets(st.integers(0, 60)))
def test_k73_halved_acknowledgements_find_exactly_the_refused_records(
    types: dict[int, int], bad: set[int]
) -> None:
    pending = PendingAcknowledgements()
    for offset, kind in types.items():
        pending.add(offset, kind)
    taken, refused, requests = set[int](), set[int](), 0
    while group := pending.take():
        requests += 1
        if not bad & set(group):
            taken |= set(group)
        elif len(group) == 1:
            refused |= set(group)
        else:
            pending.halve(group)
    assert refused == bad & set(types)
    assert taken == set(types) - bad
    assert not pending
    assert requests <= 2 * len(types) + 1


def test_k75_an_answer_replaces_a_renewal_that_was_not_sent() -> None:
    pending = PendingAcknowledgements()
    pending.add(7, AcknowledgeType.RENEW)
    pending.add(8, AcknowledgeType.RENEW)
    pending.add(7, AcknowledgeType.ACCEPT)
    assert pending.take() == {7: AcknowledgeType.ACCEPT}
    assert pending.take() == {}
    assert pending.take_renewals() == {8: AcknowledgeType.RENEW}
    assert not pending


def test_k76_the_last_request_of_a_session_renews_no_lock() -> None:
    pending = PendingAcknowledgements()
    pending.add(1, AcknowledgeType.ACCEPT)
    pending.add(2, AcknowledgeType.RENEW)
    pending.add_again({3: AcknowledgeType.RELEASE, 4: AcknowledgeType.RENEW})
    assert pending.take_all() == {1: AcknowledgeType.ACCEPT, 3: AcknowledgeType.RELEASE}
    assert not pending

"""Users with random ACLs get the answers of Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.oracle.rights.random_cells import compare_seeds, random_cell


@pytest.mark.kafka
@pytest.mark.own_broker
@pytest.mark.timeout(600)
def test_users_with_random_acls_get_the_answers_of_kafka(tmp_path: Path) -> None:
    found = compare_seeds(tmp_path, range(1, 101))
    assert not found, "\n".join(found)


def test_a_seed_makes_the_same_user_each_time() -> None:
    assert repr(random_cell(1).scenario.steps) == repr(random_cell(1).scenario.steps)
    assert repr(random_cell(1).scenario.steps) != repr(random_cell(2).scenario.steps)

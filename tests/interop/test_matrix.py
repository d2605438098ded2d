"""Programs and tools of others pass at our broker what they pass at an Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.interop.matrix import results
from tests.interop.matrix.row import Row
from tests.interop.matrix.run import brokers, run
from tests.interop.matrix.table import ROWS

from killable import Killable


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Killable]]:
    """An Apache Kafka and our broker."""
    with brokers(tmp_path_factory.mktemp("matrix")) as running:
        yield running


@pytest.mark.kafka
@pytest.mark.own_broker
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_a_tool_passes_what_it_passes_at_kafka(
    row: Row, both: Mapping[str, Killable], tmp_path: Path
) -> None:
    found = run(row, both, tmp_path)
    if found.skipped:
        pytest.skip(found.skipped)
    assert found.kafka is not None and found.kafka.of
    assert not found.differ or row.differs, found


def test_every_row_has_a_result_of_its_version() -> None:
    kept = results.load()
    assert {key: each.version for key, each in kept.items()} == {
        row.key: row.version for row in ROWS
    }, "run: python -m tests.interop.matrix ROW"


def test_a_difference_has_a_reason() -> None:
    kept = results.load()
    assert {row.key for row in ROWS if kept[row.key].differ and not row.differs} == set()


def test_a_reason_has_a_difference() -> None:
    kept = results.load()
    same = {row.key for row in ROWS if row.differs and not kept[row.key].differ}
    assert {key for key in same if not kept[key].skipped} == set()

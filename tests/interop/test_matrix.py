"""Foreign programs and tools pass the same checks with our broker as with an Apache Kafka."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.interop.matrix import results
from tests.interop.matrix.row import Missing, Row
from tests.interop.matrix.run import brokers, run
from tests.interop.matrix.table import ROWS
from tests.interop.matrix.toolchains import release_jar

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
def test_a_tool_passes_the_same_checks_as_at_kafka(
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


def test_every_difference_from_kafka_has_a_reason() -> None:
    kept = results.load()
    assert {row.key for row in ROWS if kept[row.key].differ and not row.differs} == set()


def test_every_reason_belongs_to_a_difference() -> None:
    kept = results.load()
    same = {row.key for row in ROWS if row.differs and not kept[row.key].differ}
    assert {key for key in same if not kept[key].skipped} == set()


_VARIABLE = "ODRADEK_SOME_JAR"
_some_jar = release_jar("some", "1.2.0", _VARIABLE, "https://example.com/releases")


@pytest.mark.parametrize("named", [None, "/nowhere/some-1.2.0.jar"])
def test_a_row_whose_jar_is_missing_names_the_download(
    named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named is None:
        monkeypatch.delenv(_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(_VARIABLE, named)
    with pytest.raises(Missing) as missing:
        _some_jar()
    assert str(missing.value) == (
        "ODRADEK_SOME_JAR names no file: download some-1.2.0.jar from https://example.com/releases "
        "and set the variable to its path"
    )


def test_a_row_refuses_the_jar_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "some.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Implementation-Version: 1.1.9\r\n")
    monkeypatch.setenv(_VARIABLE, str(jar))
    with pytest.raises(Missing, match=r"^some\.jar is some 1\.1\.9, and this row wants 1\.2\.0$"):
        _some_jar()

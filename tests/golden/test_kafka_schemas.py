"""The definitions in `kafka_schemas.jsonl` are of the Kafka release that other tests run."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.golden import kafka_schemas

import kafka_cluster

REQUEST = """\
// Their licence.
{
  "apiKey": 7, "type": "request", "listeners": ["broker"], "name": "KnockRequest",
  // Version 1 adds Who.
  "validVersions": "0-1", "flexibleVersions": "1+",
  "fields": [
    { "name": "Doors", "type": "[]Door", "versions": "0+", "about": "Text of theirs.", "fields": [
      { "name": "Id", "type": "int32", "versions": "0+", "mapKey": true, "about": "More." } ]},
    { "name": "Who", "type": "string", "versions": "1+", "nullableVersions": "1+",
      "taggedVersions": "1+", "tag": 0, "default": "null", "ignorable": true }
  ]
}
"""
KNOCK: dict[str, Any] = {
    "name": "KnockRequest",
    "type": "request",
    "apiKey": 7,
    "validVersions": "0-1",
    "flexibleVersions": "1+",
    "fields": [
        {
            "name": "Doors",
            "type": "[]Door",
            "versions": "0+",
            "fields": [{"name": "Id", "type": "int32", "versions": "0+"}],
        },
        {
            "name": "Who",
            "type": "string",
            "versions": "1+",
            "nullableVersions": "1+",
            "taggedVersions": "1+",
            "tag": 0,
            "default": "null",
            "ignorable": True,
        },
    ],
}


def _jar(folder: Path, name: str, path: str = "common/message/KnockRequest.json") -> None:
    with zipfile.ZipFile(folder / name, "w") as jar:
        jar.writestr(path, REQUEST)
        jar.writestr("kafka/kafka-version.json", "no definition")


def test_message_definitions_are_read_from_jars(tmp_path: Path) -> None:
    _jar(tmp_path, "kafka-clients-9.1.0.jar")
    _jar(tmp_path, "other-9.1.0.jar")
    assert list(kafka_schemas.read(tmp_path)) == [{"release": "9.1.0"}, KNOCK]


def test_a_message_defined_in_two_jars_is_refused(tmp_path: Path) -> None:
    _jar(tmp_path, "kafka-clients-9.1.0.jar")
    _jar(tmp_path, "kafka-storage-9.1.0.jar", "message/KnockRequest.json")
    with pytest.raises(ValueError, match="defines KnockRequest again"):
        list(kafka_schemas.read(tmp_path))


@pytest.mark.parametrize("releases", [[], ["9.1.0", "9.2.0"]])
def test_jars_of_several_releases_are_refused(tmp_path: Path, releases: list[str]) -> None:
    for release in releases:
        _jar(tmp_path, f"kafka-clients-{release}.jar")
    with pytest.raises(ValueError, match=f"of {len(releases)} releases"):
        list(kafka_schemas.read(tmp_path))


def test_the_definitions_are_of_the_kafka_release_that_tests_start() -> None:
    assert kafka_schemas.release() == kafka_cluster.VERSION


@pytest.mark.kafka
def test_the_definitions_file_equals_the_definitions_in_the_jars() -> None:
    jars = Path(kafka_cluster.class_path()).parent
    lines = kafka_schemas.FILE.read_text(encoding="utf-8").splitlines()
    assert list(map(json.loads, lines)) == list(kafka_schemas.read(jars))

"""Kafka's own definitions of all messages, in `kafka_schemas.jsonl`.

    python -m tests.golden.kafka_schemas FOLDER     writes the file from a release's jars in FOLDER

The first line names the release. Each further line is a message as Kafka defines it: requests,
responses, their headers, and records in logs. Only the parts that determine the bytes are copied:
names, types, versions, defaults and tags, but no descriptions and comments.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".jsonl")

_OF_A_MESSAGE = (
    *("name", "type", "apiKey", "validVersions", "flexibleVersions", "latestVersionUnstable"),
    *("fields", "commonStructs"),
)
_OF_A_FIELD = (
    *("name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "flexibleVersions"),
    *("default", "ignorable", "fields"),
)
#: The definitions in Kafka's jars. `metadata` has the records of the controllers' log.
_DEFINITION = re.compile(r"(?:common/)?(?:message|metadata)/\w+\.json")
#: The jar whose name has the release.
_CLIENTS_JAR = re.compile(r"kafka-clients-(\d[\w.]*)\.jar")


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Message name -> definition."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:]
    return {each["name"]: each for each in map(json.loads, lines)}


def release() -> str:
    """The release of Kafka from which the definitions are, such as "4.3.0"."""
    text: str = json.loads(FILE.read_text(encoding="utf-8").partition("\n")[0])["release"]
    return text


def _chosen(definition: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    chosen = {key: definition[key] for key in keys if key in definition}
    for key in ("fields", "commonStructs"):
        if key in chosen:
            chosen[key] = [_chosen(each, _OF_A_FIELD) for each in chosen[key]]
    return chosen


def _definitions(jar: Path) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if _DEFINITION.fullmatch(name):
                # Kafka's JSON files have comments on separate lines.
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                yield _chosen(json.loads(text), _OF_A_MESSAGE)


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines for the jars in a folder. Raises ValueError if the jars are not of one release."""
    releases = {
        match[1] for path in folder.iterdir() if (match := _CLIENTS_JAR.fullmatch(path.name))
    }
    if len(releases) != 1:
        raise ValueError(f"{folder} has kafka-clients of {len(releases)} releases, wanted: one")
    (release,) = releases
    found: dict[str, dict[str, Any]] = {}
    for jar in sorted(folder.glob(f"kafka-*-{release}.jar")):
        for definition in _definitions(jar):
            if definition["name"] in found:
                raise ValueError(f"{jar.name} defines {definition['name']} again")
            found[definition["name"]] = definition
    yield {"release": release}
    yield from (found[name] for name in sorted(found))


def main() -> None:
    """Write `kafka_schemas.jsonl`."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.golden.kafka_schemas FOLDER (with the jars of a Kafka)")
    lines = [json.dumps(line, separators=(",", ":")) for line in read(Path(sys.argv[1]))]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines) - 1} messages of Kafka {release()} in {FILE}")


if __name__ == "__main__":
    main()

"""Kafka's own definitions of every message, in `kafka_schemas.jsonl`.

    python -m tests.golden.kafka_schemas FOLDER     writes it anew from a release's jars in FOLDER

The first line names the release. Each line behind it is one message, as Kafka defines it: requests
and responses, both headers, and what is kept in logs. Only what bytes depend on is taken over:
names, types, versions, defaults, tags. Kafka's descriptions and comments are not.
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
#: Where jars of Kafka keep definitions. `metadata` is the log of the controllers.
_DEFINITION = re.compile(r"(?:common/)?(?:message|metadata)/\w+\.json")
#: Tells the release.
_CLIENTS_JAR = re.compile(r"kafka-clients-(\d[\w.]*)\.jar")


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Name to definition."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:]
    return {each["name"]: each for each in map(json.loads, lines)}


def release() -> str:
    """The release of Kafka that the definitions are of: "4.3.0"."""
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
                # Their JSON has comments, on lines of their own.
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                yield _chosen(json.loads(text), _OF_A_MESSAGE)


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines for the jars of a release. ValueError if they are not those of one release."""
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
    """Write the file."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.golden.kafka_schemas FOLDER (with the jars of a Kafka)")
    lines = [json.dumps(line, separators=(",", ":")) for line in read(Path(sys.argv[1]))]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines) - 1} messages of Kafka {release()} in {FILE}")


if __name__ == "__main__":
    main()

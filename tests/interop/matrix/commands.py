"""Command line tools and exporters of metrics. The checks expect the same output with any
broker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.matrix.row import Check, Place, executed
from tests.interop.matrix.services import Http, Service, running, until

from kafka_cluster import free_ports

_COMMAND_DEADLINE_S = 60
_METRICS_DEADLINE_S = 60
RECORDS = 50

Words = list[str | Path]


def _check(name: str, command: Words, place: Place, expected: str = "", stdin: str = "") -> Check:
    """Check that a command succeeds and prints text that matches `expected`."""
    done = executed(command, place.folder, stdin=stdin, deadline_s=_COMMAND_DEADLINE_S)
    printed = done.stdout + done.stderr
    well = done.returncode == 0 and re.search(expected, printed, re.DOTALL) is not None
    return Check(name, "" if well else f"ended with {done.returncode}: {printed[-1000:]}")


def _numbered(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


def kcat(tool: Path, place: Place) -> Iterator[Check]:
    """Use kcat: produce with every codec and a tombstone, read in a group, query offsets by time
    and metadata."""
    base: Words = [tool, "-b", place.address]
    topic = place.name
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce = [
            *base,
            "-P",
            "-t",
            topic,
            "-z",
            codec,
            "-K",
            ":",
            "-X",
            "enable.idempotence=true",
        ]
        yield _check(f"produce {codec}", produce, place, stdin="k:v\n" * RECORDS)
    yield _check(
        "produce a tombstone", [*base, "-P", "-t", topic, "-Z", "-K", ":"], place, stdin="k:\n"
    )
    read: Words = [*base, "-C", "-t", topic, "-e", "-q", "-f", r"%k=%s(%S)\n"]
    yield _check("consume", read, place, rf"(k=v\(1\)\n){{{5 * RECORDS}}}k=\(-1\)\n")
    group: Words = [
        *base,
        "-G",
        f"{topic}-group",
        "-e",
        "-q",
        "-X",
        "auto.offset.reset=earliest",
        topic,
    ]
    yield _check("a group", group, place, rf"(v\n){{{5 * RECORDS}}}")
    yield _check("the group again", group, place, r"\A[^v]*\Z")
    yield _check("an offset by time", [*base, "-Q", "-t", f"{topic}:0:1"], place, r"offset 0")
    yield _check(
        "metadata", [*base, "-L", "-t", topic], place, rf'topic "{topic}" with 1 partitions'
    )


def kaf(tool: Path, place: Place) -> Iterator[Check]:
    """Use kaf: topics, records, groups and their offsets."""
    base: Words = [tool, "--config", place.folder / "config", "-b", place.address]
    topic, group = place.name, f"{place.name}-group"
    create: Words = [*base, "topic", "create", topic, "-p", "3", "-r", "1"]
    yield _check("topic create", create, place)
    yield _check("topics", [*base, "topics"], place, topic)
    yield _check("produce", [*base, "produce", topic, "-k", "key"], place, stdin=_numbered(RECORDS))
    consume: Words = [
        *base,
        "consume",
        topic,
        "--offset",
        "oldest",
        "--output",
        "raw",
        "--limit-messages",
    ]
    yield _check("consume", [*consume, str(RECORDS)], place, r"(\d+\n){50}")
    commit: Words = [
        *base,
        "group",
        "commit",
        group,
        "-t",
        topic,
        "--offset",
        "7",
        "--all-partitions",
    ]
    yield _check("group commit", [*commit, "--noconfirm"], place)
    yield _check("group describe", [*base, "group", "describe", group], place, rf"{topic}.*\b7\b")
    yield _check("groups", [*base, "groups"], place, group)
    yield _check("group delete", [*base, "group", "delete", group], place)
    alter: Words = [*base, "topic", "set-config", topic, "retention.ms=100000"]
    yield _check("topic set-config", alter, place)
    yield _check(
        "topic describe", [*base, "topic", "describe", topic], place, r"retention\.ms.*100000"
    )
    yield _check("nodes", [*base, "nodes"], place, r"127\.0\.0\.1")
    yield _check("topic delete", [*base, "topic", "delete", topic], place)


def kafkactl(tool: Path, place: Place) -> Iterator[Check]:
    """Use kafkactl: topics, records, groups, offsets, ACLs and deletions."""
    config = place.folder / "config.yml"
    config.write_text(
        f"contexts:\n  default:\n    brokers:\n    - {place.address}\ncurrent-context: default\n"
    )
    base: Words = [tool, "-C", config]
    topic, group = place.name, f"{place.name}-group"
    create: Words = [
        *base,
        "create",
        "topic",
        topic,
        "-p",
        "2",
        "-r",
        "1",
        "-c",
        "retention.ms=100000",
    ]
    yield _check("create topic", create, place)
    yield _check("alter topic", [*base, "alter", "topic", topic, "-p", "3"], place)
    described: Words = [*base, "describe", "topic", topic, "-o", "yaml"]
    yield _check("describe topic", described, place, r"id: 2.*retention\.ms")
    yield _check("produce", [*base, "produce", topic, "-H", "h:1"], place, stdin=_numbered(RECORDS))
    consume: Words = [*base, "consume", topic, "-b", "--max-messages", str(RECORDS), "--exit"]
    yield _check("consume", consume, place, r"(\d+\n){50}")
    yield _check("create group", [*base, "create", "cg", group, "-t", topic, "--oldest"], place)
    reset: Words = [*base, "reset", "cgo", group, "-t", topic, "--newest", "--execute"]
    yield _check("reset offsets", reset, place)
    yield _check("describe group", [*base, "describe", "cg", group, "-o", "yaml"], place, "lag: 0")
    yield _check("clone group", [*base, "clone", "cg", group, f"{group}-2"], place)
    acl = ["--topic", topic, "--operation", "read", "--allow", "--principal", "User:a"]
    yield _check("create acl", [*base, "create", "acl", *acl], place)
    yield _check("get acls", [*base, "get", "acl", "--topics", "-o", "yaml"], place, topic)
    drop = ["--topics", "--operation", "read", "--pattern", "any"]
    yield _check("delete acl", [*base, "delete", "acl", *drop], place)
    records: Words = [*base, "delete", "records", topic, "--offset", "0=1"]
    yield _check("delete records", records, place)
    yield _check("get brokers", [*base, "get", "brokers"], place, r"127\.0\.0\.1")
    yield _check("delete group", [*base, "delete", "cg", group], place)
    yield _check("delete topic", [*base, "delete", "topic", topic], place)


def exporter(
    command: Callable[[Path, Place, int], tuple[list[str], Mapping[str, str]]],
    expected: Mapping[str, str],
) -> Callable[[Path, Place], Iterator[Check]]:
    """Return a function that tries an exporter of metrics. There is a topic, and a group that has
    read a part of the topic.

    `expected`: patterns of lines of metrics; TOPIC and GROUP in a pattern are replaced by their
    names.
    """

    def run(tool: Path, place: Place) -> Iterator[Check]:
        _read_in_part(place)
        port = free_ports(1)[0]
        words, environment = command(tool, place, port)
        exporter = Service(words, place.folder, environment)
        patterns = {
            name: pattern.replace("TOPIC", place.name).replace("GROUP", f"{place.name}-group")
            for name, pattern in expected.items()
        }
        text = ""

        def complete() -> bool:
            nonlocal text
            text = Http(port)("GET", "/metrics").text
            return all(re.search(each, text, re.MULTILINE) for each in patterns.values())

        with running(exporter):
            until(lambda: complete() or not exporter.is_running, _METRICS_DEADLINE_S)
        for name, pattern in patterns.items():
            found = re.search(pattern, text, re.MULTILINE)
            yield Check(name, "" if found else f"no line is like {pattern}: {text[-1500:]}")

    return run


def _read_in_part(place: Place) -> None:
    """Write ten records to a topic, and commit offset 4 in a group."""
    producer = Producer({"bootstrap.servers": place.address})
    for number in range(10):
        producer.produce(place.name, str(number))
    producer.flush(_COMMAND_DEADLINE_S)
    consumer = Consumer({"bootstrap.servers": place.address, "group.id": f"{place.name}-group"})
    consumer.commit(offsets=[TopicPartition(place.name, 0, 4)], asynchronous=False)
    consumer.close()


def kafka_exporter_command(
    tool: Path, place: Place, port: int
) -> tuple[list[str], Mapping[str, str]]:
    """The command that starts kafka_exporter."""
    listen = f"--web.listen-address=127.0.0.1:{port}"
    return [str(tool), f"--kafka.server={place.address}", listen], {}


def kminion_command(tool: Path, place: Place, port: int) -> tuple[list[str], Mapping[str, str]]:
    """The command that starts kminion, configured to run its end-to-end test and to read offsets
    from the offsets topic."""
    config = place.folder / "kminion.yml"
    config.write_text(
        f"kafka:\n  brokers: [{place.address}]\n"
        f"exporter:\n  host: 127.0.0.1\n  port: {port}\n"
        "minion:\n  consumerGroups:\n    enabled: true\n    scrapeMode: offsetsTopic\n"
        "  endToEnd:\n    enabled: true\n    probeInterval: 500ms\n"
        "    topicManagement:\n      replicationFactor: 1\n"
    )
    return [str(tool)], {"CONFIG_FILEPATH": str(config)}

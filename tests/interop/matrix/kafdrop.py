"""Kafdrop, a web user interface for Kafka: its pages and its JSON must agree with the broker's
contents."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
from tests.interop.matrix.row import Check, Place
from tests.interop.matrix.services import DEADLINE_S, Http, Service, check, running, until

from foreign_topics import create_topic, delete_records, open_transaction, send_records
from kafka_cluster import free_ports, java

_PARTITIONS, _RECORDS = 3, 4
_CODECS = ("gzip", "lz4", "zstd")
_RETENTION_MS = "7200000"
#: Kafka with eligible leader replicas stores this setting for the whole cluster. Kafdrop shows it
#: for each topic, because it is neither a default nor from the broker's file.
_OF_ALL_TOPICS = {"min.insync.replicas": "1"}
_KEYS = 3
_WAIT_S = 30.0
_SECONDS_TO_ROLL = 0.3
#: An option that Kafdrop's own instructions require.
_OPEN = "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"


class Pages(Http):
    """Kafdrop's pages as texts without tags, and their data as JSON."""

    def text(self, path: str) -> str:
        """A page's text, with single blanks around each word and each cell of a table."""
        return _text(self("GET", path, headers={"Accept": "text/html"}).text)

    def found(self, path: str) -> Any:
        return self.json("GET", path)

    def messages(self, topic: str, partition: int, offset: int = 0) -> list[Any]:
        """The messages from an offset on, as shown on the page of a partition."""
        query = f"partition={partition}&offset={offset}&count=100&isAnyProto=false"
        return self.found(f"/topic/{topic}/messages?{query}") or []

    def all_messages(self, topic: str) -> list[Any]:
        return self.found(f"/topic/{topic}/allmessages") or []

    def lags(self, path: str, topic: str) -> Mapping[str, Sequence[int]]:
        """The lag of each partition of a topic, by group, as shown on a page."""
        told = self.found(path) or []
        return {
            group["groupId"]: [each["lag"] for each in of["partitions"]]
            for group in (told if isinstance(told, list) else [told])
            for of in group["topics"]
            if of["topic"] == topic
        }


def _text(page: str) -> str:
    without_scripts = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    words = html.unescape(re.sub(r"<[^>]*>", " ", without_scripts)).split()
    return f" {' '.join(words)} "


def _shown(name: str, ask: Callable[[], Any], expected: object) -> Check:
    """Check what Kafdrop shows. Retries, because Kafdrop stops reading a topic after 0.6 s."""
    found = None

    def as_expected() -> bool:
        nonlocal found
        found = ask()
        return bool(found == expected)

    return check(name, until(as_expected, _WAIT_S), found)


def _page(name: str, pages: Pages, path: str, pattern: str) -> Check:
    """Check that a part of a page's text matches a pattern. Retries, like `_shown`."""
    text = ""

    def as_expected() -> bool:
        nonlocal text
        text = pages.text(path)
        return re.search(pattern, text) is not None

    return check(name, until(as_expected, _WAIT_S), text)


def run(jar: Path, place: Place) -> Iterator[Check]:
    """Run Kafdrop with the broker; the broker is killed near the end."""
    port = free_ports(1)[0]
    command = [java(), "-Xmx512m", _OPEN, "-jar", str(jar)]
    command += [f"--kafka.brokerConnect={place.address}", "--server.address=127.0.0.1"]
    command += [f"--server.port={port}", f"--management.server.port={port}"]
    command += ["--message.sendEnabled=true"]
    kafdrop, pages = Service(command, place.folder), Pages(port)
    with running(kafdrop):
        until(lambda: pages("GET", "/").status == 200 or not kafdrop.is_running)
        ready = pages("GET", "/").status == 200
        yield check("it is ready", ready, kafdrop.log)
        if not ready:
            return
        yield from _records(pages, place)
        yield from _compacted(pages, place)
        yield from _transactions(pages, place)
        yield from _groups(pages, place)
        yield from _administration(pages, place)
        place.restart()
        yield from _after_the_kill(pages, place)


# --- Topics and messages --------------------------------------------------------------------------


def _moment(time_ms: int) -> str:
    """A time in the format that Kafdrop prints and parses."""
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"


def _message(first_time_ms: int, partition: int, offset: int) -> Any:
    """The message that Kafdrop shows for a record. The last record of each partition is a
    tombstone."""
    return {
        "partition": partition,
        "offset": offset,
        "key": f"key-{partition}-{offset}",
        "message": "empty" if offset == _RECORDS - 1 else f"value-{partition}-{offset}",
        "headers": {"none": None, "trace": f"trace-{partition}-{offset}"},
        "headersFormatted": f"none: null, trace: trace-{partition}-{offset}",
        "timestamp": _moment(first_time_ms + offset),
    }


def _fill(place: Place, time_ms: int) -> None:
    """Write records to three partitions, each with another codec, and delete the first record."""
    create_topic(place.address, place.name, _PARTITIONS, retention_ms=_RETENTION_MS)
    for partition, codec in enumerate(_CODECS):
        records = [
            (
                partition,
                f"key-{partition}-{offset}",
                None if offset == _RECORDS - 1 else f"value-{partition}-{offset}",
                time_ms + offset,
                [("trace", f"trace-{partition}-{offset}"), ("none", None)],
            )
            for offset in range(_RECORDS)
        ]
        send_records(place.address, place.name, records, compression_type=codec)
    delete_records(place.address, place.name, 0, 1)


def _records(pages: Pages, place: Place) -> Iterator[Check]:
    time_ms = int(time.time() * 1000) - 60_000
    _fill(place, time_ms)
    yield from _overview(pages, place)
    yield from _topic(pages, place)
    every = [
        _message(time_ms, partition, offset)
        for partition in range(_PARTITIONS)
        for offset in range(1 if partition == 0 else 0, _RECORDS)
    ]
    for partition, codec in enumerate(_CODECS):
        of_partition = [each for each in every if each["partition"] == partition]
        first = of_partition[0]["offset"]
        messages = partial(pages.messages, place.name, partition, first)
        yield _shown(f"messages of a partition, {codec}", messages, of_partition)
    in_order = sorted(every, key=lambda each: (each["offset"], each["partition"]))
    yield _shown("messages of all partitions", lambda: pages.all_messages(place.name), in_order)
    path = f"/topic/{place.name}/messages?partition=1&offset=2&count=1"
    line = "Offset: 2 Key: key-1-2 Timestamp: .* Headers: none: null, trace: trace-1-2 value-1-2 "
    yield _page("the page of messages", pages, path, line)
    yield from _search(pages, place, time_ms)


def _overview(pages: Pages, place: Place) -> Iterator[Check]:
    host, _, port = place.address.partition(":")
    found = pages.found("/") or {"brokers": [], "topics": [], "summary": {}}
    brokers = [(each["host"], each["port"], each["controller"]) for each in found["brokers"]]
    yield check("the brokers", brokers == [(host, int(port), True)], brokers)
    topics = {each["name"]: each for each in found["topics"]}
    yield check("a topic among the others", place.name in topics, sorted(topics))
    summary = found["summary"]
    partitions = sum(len(each["partitions"]) for each in topics.values())
    node = found["brokers"][0]["id"] if brokers else None
    expected = {
        "topicCount": len(topics),
        "partitionCount": partitions,
        "underReplicatedCount": 0,
        "preferredReplicaPercent": 1.0,
        "brokerLeaderPartitionCount": {f"{node}": partitions},
        "brokerPreferredLeaderPartitionCount": {f"{node}": partitions},
        "expectedBrokerIds": [node],
    }
    yield check("the summary of the cluster", summary == expected, summary)
    lines = f"Bootstrap servers {place.address} .* {node} {host} {port} - Yes .* {place.name} "
    yield _page("the page of the cluster", pages, "/", lines)
    lines = f"Host {host} Port {port} Rack - Controller Yes .* {place.name} 3 3 0,1,2 "
    yield _page("the page of a broker", pages, f"/broker/{node}", lines)


def _topic(pages: Pages, place: Place) -> Iterator[Check]:
    found = pages.found(f"/topic/{place.name}") or {"partitions": [], "config": {}}
    offsets = [(each["id"], each["firstOffset"], each["size"]) for each in found["partitions"]]
    expected = [(0, 1, _RECORDS), *((each, 0, _RECORDS) for each in range(1, _PARTITIONS))]
    yield check("partitions and their offsets", offsets == expected, offsets)
    healthy = [
        len(each["replicas"]) == len(each["inSyncReplicas"]) == 1
        and each["leader"] == each["preferredLeader"] == each["replicas"][0]
        and not each["offlineReplicas"]
        for each in found["partitions"]
    ]
    yield check("leaders and replicas", healthy == [True] * _PARTITIONS, found["partitions"])
    settings = {"retention.ms": _RETENTION_MS, **_OF_ALL_TOPICS}
    yield check("the settings of a topic", found["config"] == settings, found["config"])
    available = _PARTITIONS * _RECORDS - 1
    lines = (
        f"# of partitions {_PARTITIONS} Preferred replicas 100% Under-replicated partitions 0 "
        f"Total size {_PARTITIONS * _RECORDS} Total available messages {available} Configuration .*"
        f"retention.ms {_RETENTION_MS} "
    )
    yield _page("the page of a topic", pages, f"/topic/{place.name}", lines)
    status = pages("GET", f"/topic/{place.name}-unknown").status
    yield check("an unknown topic", status == 404, status)


def _search(pages: Pages, place: Place, time_ms: int) -> Iterator[Check]:
    def found(text: str, partition: int = -1, start_ms: int = 0) -> Any:
        body = {
            "searchText": text,
            "maximumCount": 100,
            "partition": partition,
            **dict.fromkeys(("format", "keyFormat"), "DEFAULT"),
            "startTimestamp": _moment(start_ms),
        }
        results = pages.json("POST", f"/topic/{place.name}/search-messages", body) or {}
        return sorted((each["partition"], each["offset"]) for each in results.get("messages", []))

    for part, text, expected in (
        ("a key", "KEY-1-2", [(1, 2)]),
        ("a value", "value-2-", [(2, 0), (2, 1), (2, 2)]),
        ("a header", "trace-0-", [(0, 1), (0, 2), (0, 3)]),
    ):
        yield _shown(f"search by {part}", partial(found, text), expected)
    expected = [(1, offset) for offset in range(_RECORDS)]
    yield _shown("search in a partition", lambda: found("key", partition=1), expected)
    expected = [(partition, offset) for partition in range(_PARTITIONS) for offset in (2, 3)]
    yield _shown("search from a time on", lambda: found("key", start_ms=time_ms + 2), expected)
    path = (
        f"/topic/{place.name}/search-messages?searchText=value-1-1&maximumCount=10&partition=-1"
        "&format=DEFAULT&keyFormat=DEFAULT&startTimestamp=1970-01-01%2000:00:00.000"
    )
    only = "Scanned 11 .* 1 messages found. Item: 1 Partition: 1 Offset: 1 .* value-1-1 $"
    yield _page("the page of search", pages, path, only)


def _compacted(pages: Pages, place: Place) -> Iterator[Check]:
    """Check a compacted topic: except in the active segment, only the last record of each key is
    left."""
    name = f"{place.name}-compacted"
    settings = {
        "cleanup_policy": "compact",
        "segment_ms": "100",
        "min_cleanable_dirty_ratio": "0.01",
    }
    create_topic(place.address, name, 1, **settings)
    now_ms = int(time.time() * 1000)
    for version in range(2):
        records: list[tuple[Any, ...]] = [
            (0, f"key-{each}", f"value-{each}-{version}", now_ms, []) for each in range(_KEYS)
        ]
        send_records(place.address, name, records)
    time.sleep(_SECONDS_TO_ROLL)
    send_records(place.address, name, [(0, "last", "last", now_ms + 1000, [])])

    def left() -> list[tuple[int, str]]:
        return [(each["offset"], each["message"]) for each in pages.messages(name, 0)]

    expected = [*((_KEYS + each, f"value-{each}-1") for each in range(_KEYS)), (2 * _KEYS, "last")]
    yield check("a compacted topic", until(lambda: left() == expected), left())
    found = (pages.found(f"/topic/{name}") or {}).get("config")
    shown = {key.replace("_", "."): value for key, value in settings.items()} | _OF_ALL_TOPICS
    yield check("its settings", found == shown, found)


def _transactions(pages: Pages, place: Place) -> Iterator[Check]:
    """Check that committed records are shown, and aborted and open ones are not."""
    name = f"{place.name}-transactions"
    create_topic(place.address, name)
    for end in ("commit", "abort", "commit"):
        producer = open_transaction(place.address, name, 2)
        if end == "commit":
            producer.commit_transaction(_WAIT_S)
        else:
            producer.abort_transaction(_WAIT_S)

    # Each transaction has two records and a marker.
    def offsets() -> list[int]:
        return [each["offset"] for each in pages.messages(name, 0)]

    def sizes() -> list[int]:
        found = pages.found(f"/topic/{name}") or {"partitions": []}
        return [each["size"] for each in found["partitions"]]

    yield _shown("an aborted transaction", offsets, [0, 1, 6, 7])
    producer = open_transaction(place.address, name, 2)
    yield _shown("an open transaction", offsets, [0, 1, 6, 7])
    yield check("the end of a topic with it", sizes() == [9], sizes())
    producer.commit_transaction(_WAIT_S)
    yield _shown("the end of the topic behind it", sizes, [12])
    yield _shown("its records", offsets, [0, 1, 6, 7, 9, 10])


# --- Groups and administration --------------------------------------------------------------------


def _at(topic: str, offsets: Sequence[int]) -> list[confluent_kafka.TopicPartition]:
    return [
        confluent_kafka.TopicPartition(topic, partition, offset)
        for partition, offset in enumerate(offsets)
    ]


def _commit(consumer: confluent_kafka.Consumer, topic: str, offsets: Sequence[int]) -> None:
    """Commit offsets; retries while the coordinator still loads the group."""

    def committed() -> bool:
        try:
            consumer.commit(offsets=_at(topic, offsets), asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return True

    assert until(committed, _WAIT_S), "the offsets of a group were not committed"


def _member(place: Place, group: str, protocol: str) -> confluent_kafka.Consumer:
    """The only member of a group, after it has got all partitions of the topic."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": place.address,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([place.name])

    def joined() -> bool:
        consumer.poll(0.2)
        return len(consumer.assignment()) == _PARTITIONS

    assert until(joined, _WAIT_S), f"{group} has no member"
    return consumer


def _group_names(place: Place) -> Mapping[str, str]:
    return {protocol: f"{place.name}-{protocol}" for protocol in ("empty", "classic", "consumer")}


def _groups(pages: Pages, place: Place) -> Iterator[Check]:
    """Check groups without members, and groups with the classic and the consumer protocol, with
    their lags."""
    names = _group_names(place)
    empty = confluent_kafka.Consumer(
        {"bootstrap.servers": place.address, "group.id": names["empty"], "log_level": 0}
    )
    # The first record of partition 0 has been deleted.
    _commit(empty, place.name, [0, 1, 4])
    empty.close()
    expected = {names["empty"]: [3, 3, 0]}
    members = []
    for protocol, offsets in (("classic", [2, 2, 2]), ("consumer", [4, 3, 0])):
        member = _member(place, names[protocol], protocol)
        _commit(member, place.name, offsets)
        members.append(member)
        expected[names[protocol]] = [_RECORDS - each for each in offsets]
    try:
        for protocol, name in names.items():
            found = pages.lags(f"/consumer/{name}", place.name)
            yield check(f"the lag of a group, {protocol}", found == {name: expected[name]}, found)
        found = pages.lags(f"/topic/{place.name}/consumers", place.name)
        yield check("the groups of a topic", found == expected, found)
        page = pages.text(f"/topic/{place.name}")
        shown = all(f" {name} {sum(lag)} " in page for name, lag in expected.items())
        yield check("the combined lag on a topic's page", shown, page)
        path = f"/consumer/{names['classic']}"
        lines = f"Topics 1 Topic: {place.name} .* 0 1 4 2 2 1 0 4 2 2 2 0 4 2 2 Combined lag 6 "
        yield _page("the page of a group", pages, path, lines)
    finally:
        for member in members:
            member.close()


def _acl(place: Place) -> Mapping[str, str]:
    """An ACL as Kafdrop shows it."""
    kafka_admin: Any = confluent_kafka.admin
    client = kafka_admin.AdminClient({"bootstrap.servers": place.address, "log_level": 0})
    binding = kafka_admin.AclBinding(
        kafka_admin.ResourceType.TOPIC,
        place.name,
        kafka_admin.ResourcePatternType.PREFIXED,
        "User:reader",
        "127.0.0.1",
        kafka_admin.AclOperation.READ,
        kafka_admin.AclPermissionType.DENY,
    )
    client.create_acls([binding])[binding].result(_WAIT_S)
    return {
        "name": place.name,
        "resourceType": "TOPIC",
        "patternType": "PREFIXED",
        "principal": "User:reader",
        "host": "127.0.0.1",
        "operation": "READ",
        "permissionType": "DENY",
    }


def _administration(pages: Pages, place: Place) -> Iterator[Check]:
    """Check ACLs, topics that are created and deleted with Kafdrop's forms, and a message sent with
    its form."""
    acl = _acl(place)

    def acls() -> Any:
        return [each for each in pages.found("/acl") or [] if each["name"] == place.name]

    yield _shown("an ACL", acls, [acl])
    line = f" {place.name} User:reader TOPIC PREFIXED READ 127.0.0.1 DENY "
    yield _page("the page of ACLs", pages, "/acl", line)

    name = f"{place.name}-made"
    form = {"name": name, "partitionsNumber": 5, "replicationFactor": 1}
    made = _text(pages.form("/topic", form).text)
    yield check("a topic is made", f"Successfully created topic {name}" in made, made)

    def partitions() -> int:
        return len((pages.found(f"/topic/{name}") or {"partitions": []})["partitions"])

    yield _shown("it has partitions", partitions, 5)
    again = _text(pages.form("/topic", form).text)
    yield check("it is made again", re.search("Error .* already exists", again) is not None, again)
    message = {"topic": name, "topicPartition": 3, "key": "sent-key", "value": "sent-value"}
    pages.form(f"/topic/{name}/addmessage", message)

    def sent() -> Any:
        return [(each["offset"], each["key"], each["message"]) for each in pages.messages(name, 3)]

    yield _shown("a message is sent", sent, [(0, "sent-key", "sent-value")])
    deleted = pages.form(f"/topic/{name}/delete", {}).status
    yield check("it is deleted", deleted == 200, deleted)

    def is_gone() -> bool:
        return pages("GET", f"/topic/{name}").status == 404

    yield check("it is gone", until(is_gone, _WAIT_S), pages.text("/"))
    refused = _text(pages.form("/topic", {**form, "name": "a/b"}).text)
    yield check("an invalid name", "Error creating topic a/b" in refused, refused)
    refused = _text(pages.form("/topic", {**form, "replicationFactor": 2}).text)
    yield check("too many replicas", f"Error creating topic {name}" in refused, refused)


def _after_the_kill(pages: Pages, place: Place) -> Iterator[Check]:
    """Check Kafdrop after the broker was killed and is up again."""
    ready = until(lambda: pages.found("/") is not None, DEADLINE_S)
    yield check("the broker is killed: the cluster is there", ready, pages.text("/"))
    send_records(place.address, place.name, [(1, "new", "new", int(time.time() * 1000), [])])

    def newest() -> Any:
        return [each["key"] for each in pages.messages(place.name, 1, _RECORDS)]

    yield _shown("new messages are there", newest, ["new"])
    name = _group_names(place)["classic"]
    lags = partial(pages.lags, f"/consumer/{name}", place.name)
    yield _shown("so is the lag of a group", lags, {name: [2, 3, 2]})

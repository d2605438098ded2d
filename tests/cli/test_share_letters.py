"""`odradek share dead-letters` and `redeliver` against a broker: rejected records are produced
again; records that cannot be produced again are listed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from cli_runner import Commands
from odradek.broker import SubprocessBroker
from odradek_cli.records.share_letters import Letter, letter_of, told_apart
from odradek_client.structs import ConsumerRecord
from odradek_protocol.records.record import TimestampType

_NUMBERS = count()
#: Settings with which members get their assignment soon.
SETTINGS = {
    "group.share.assignment.interval.ms": 0,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.min.heartbeat.interval.ms": 200,
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with SubprocessBroker(settings=SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture
def odradek(bootstrap: str) -> Commands:
    return Commands(bootstrap)


class Queue:
    """A new topic, its dead letter topic and a share group."""

    def __init__(self, odradek: Commands, folder: Path, *, copy: bool = True) -> None:
        number = next(_NUMBERS)
        self.file = folder / "records"
        self.odradek = odradek
        self.topic, self.letters, self.group = f"jobs{number}", f"dlq.jobs{number}", f"g{number}"
        odradek.run("topic", "create", self.topic, "--partitions", "2")
        allowed = "errors.deadletterqueue.group.enable=true"
        odradek.run("topic", "create", self.letters, "--config", allowed)
        odradek.run(
            "config",
            "set",
            "group",
            self.group,
            "share.auto.offset.reset=earliest",
            f"errors.deadletterqueue.topic.name={self.letters}",
            f"errors.deadletterqueue.copy.record.enable={str(copy).lower()}",
        )

    def reject(self, *values: str) -> None:
        """Produce records with keys to partition 1, and reject them in the group."""
        self.file.write_text("".join(f"k-{value}:{value}\n" for value in values), "utf-8")
        command = ("produce", self.topic, str(self.file), "-p", "1", "-K", ":", "-H", "from=here")
        self.odradek.run(*command)
        self.consume(len(values), "reject")

    def consume(self, number: int, answer: str = "accept") -> list[tuple[str, str]]:
        """Consume `number` records; returns (key, value) of each."""
        rows = self.odradek.rows(
            *("share", "consume", self.topic, "-g", self.group, "-c", str(number)),
            *("--answer", answer),
        )
        return [(row["key"], row["payload"]) for row in rows]


def test_dead_letters_are_listed_with_their_reasons(odradek: Commands, tmp_path: Path) -> None:
    queue = Queue(odradek, tmp_path)
    queue.reject("a", "b")
    first, second = odradek.rows("share", "dead-letters", queue.group)
    assert first.pop("time").endswith("Z")
    (described,) = odradek.rows("topic", "describe", queue.topic)
    (record, _) = odradek.rows("consume", queue.topic, "--exit")
    assert first == {
        "topic": queue.topic,
        "partition": 1,
        "offset": 0,
        "topic_id": described["topic_id"],
        "timestamp": record["ts"],
        "delivery_count": 1,
        "reason": "Offset rejected by client.",
        "copied": True,
        "dead_letter": {"topic": queue.letters, "partition": 0, "offset": 0},
    }
    assert second["offset"] == 1
    header, *lines = odradek.table("share", "dead-letters", queue.group)
    assert header == ["TOPIC", "PARTITION", "OFFSET", "DELIVERIES", "TIME", "REASON"]
    assert [line[:4] for line in lines] == [[queue.topic, "1", str(n), "1"] for n in (0, 1)]


def test_the_list_of_dead_letters_has_a_limit(odradek: Commands, tmp_path: Path) -> None:
    queue = Queue(odradek, tmp_path)
    queue.reject("a", "b", "c")
    (row,) = odradek.rows("share", "dead-letters", queue.group, "--limit", "1")
    assert row["offset"] == 2
    assert "2 older dead letters are left out" in odradek.stderr


def test_redeliver_is_a_plan_until_it_is_executed(odradek: Commands, tmp_path: Path) -> None:
    queue = Queue(odradek, tmp_path)
    queue.reject("a", "b")
    one = ("share", "redeliver", queue.group, "-t", queue.topic, "-p", "1", "--offset", "1")
    (row,) = odradek.rows(*one)
    assert (row["from"], row["new_offset"]) == ("copy", None)
    assert "nothing was produced" in odradek.stderr
    (row,) = odradek.rows(*one, "--execute")
    assert (row["partition"], row["offset"], row["new_offset"]) == (1, 1, 2)
    assert queue.consume(1) == [("k-b", "b")]


@pytest.mark.full
def test_redelivered_records_lack_the_headers_of_dead_letters(
    odradek: Commands, tmp_path: Path
) -> None:
    queue = Queue(odradek, tmp_path)
    queue.reject("a", "b")
    rows = odradek.rows("share", "redeliver", queue.group, "--all", "--execute")
    assert [row["new_offset"] for row in rows] == [2, 3]
    shown = odradek.rows("consume", queue.topic, "--exit")
    assert [row["headers"] for row in shown] == [["from", "here"]] * 4
    assert queue.consume(2) == [("k-a", "a"), ("k-b", "b")]


@pytest.mark.full
def test_a_dead_letter_without_a_copy_is_read_from_its_log(
    odradek: Commands, tmp_path: Path
) -> None:
    queue = Queue(odradek, tmp_path, copy=False)
    queue.reject("a", "b")
    (row,) = odradek.rows(
        *("share", "redeliver", queue.group, "-t", queue.topic, "-p", "1", "--offset", "1"),
        "--execute",
    )
    assert (row["from"], row["new_offset"]) == ("log", 2)
    assert queue.consume(1) == [("k-b", "b")]


@pytest.mark.full
def test_a_deleted_record_that_cannot_be_redelivered_is_named(
    odradek: Commands, tmp_path: Path
) -> None:
    queue = Queue(odradek, tmp_path, copy=False)
    queue.reject("a", "b")
    odradek.run("topic", "trim", f"{queue.topic}:1", "--to-offset", "1", "--execute")
    printed = odradek.run("share", "redeliver", queue.group, "--all", "--execute", code=1)
    assert f"{queue.topic}-1 at offset 0 cannot be redelivered" in odradek.stderr
    assert "the log has offsets 1 to 1" in odradek.stderr
    assert len(printed.splitlines()) == 2, "the other one was redelivered"


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("redeliver", "GROUP"), 2, "--topic T --partition P --offset N, or --all"),
        (("redeliver", "GROUP", "--all", "--offset", "1"), 2, "--all takes no"),
        (("redeliver", "GROUP", "-t", "x", "-p", "0", "--offset", "9"), 1, "has no dead letter of"),
        (("dead-letters", "nobody"), 1, "nobody has no dead letter topic"),
    ],
)
def test_wrong_dead_letter_arguments_are_explained(
    odradek: Commands, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    queue = Queue(odradek, tmp_path)
    given = [queue.group if each == "GROUP" else each for each in arguments]
    odradek.run("share", *given, code=code)
    assert said in odradek.stderr


def test_a_group_without_dead_letters_says_so(odradek: Commands, tmp_path: Path) -> None:
    queue = Queue(odradek, tmp_path)
    assert odradek.run("share", "dead-letters", queue.group) == ""
    assert "has no dead letters" in odradek.stderr
    assert odradek.run("share", "redeliver", queue.group, "--all") == ""


@pytest.mark.full
def test_listing_does_not_create_a_missing_dead_letter_topic(
    odradek: Commands, tmp_path: Path
) -> None:
    queue = Queue(odradek, tmp_path)
    odradek.run("topic", "delete", queue.letters)
    for command in (("dead-letters",), ("redeliver", "--all")):
        odradek.run("share", command[0], queue.group, *command[1:], code=1)
        assert f"odradek topic create {queue.letters} --config" in odradek.stderr
    assert queue.letters not in odradek.run("topic", "list")
    odradek.run("topic", "create", queue.letters)
    odradek.run("share", "dead-letters", queue.group)
    assert "gets no dead letters" in odradek.stderr


@pytest.mark.full
def test_the_record_of_a_deleted_topic_is_not_produced_to_a_new_one(
    odradek: Commands, tmp_path: Path
) -> None:
    queue = Queue(odradek, tmp_path)
    queue.reject("a")
    odradek.run("topic", "delete", queue.topic)
    odradek.run("share", "redeliver", queue.group, "--all", "--execute", code=1)
    assert "cannot be redelivered" in odradek.stderr
    assert queue.topic not in [line[0] for line in odradek.table("topic", "list")]


# --- A topic that was created again ---------------------------------------------------------------


def create_again(queue: Queue) -> None:
    queue.odradek.run("topic", "delete", queue.topic)
    queue.odradek.run("topic", "create", queue.topic, "--partitions", "2")


def test_records_of_two_topics_with_one_name_are_told_apart(
    odradek: Commands, tmp_path: Path
) -> None:
    queue = Queue(odradek, tmp_path)
    queue.reject("earlier")
    create_again(queue)
    queue.reject("later")
    one = ("share", "redeliver", queue.group, "-t", queue.topic, "-p", "1", "--offset", "0")
    first, second = odradek.rows("share", "dead-letters", queue.group)
    odradek.run(*one, "--execute", code=1)
    assert "has dead letters of several records" in odradek.stderr
    assert first["topic_id"] in odradek.stderr and second["topic_id"] in odradek.stderr
    odradek.run(*one, "--topic-id", first["topic_id"], "--execute")
    assert queue.consume(1) == [("k-earlier", "earlier")]
    rows = odradek.rows("share", "redeliver", queue.group, "--all", "--execute")
    assert [row["new_offset"] for row in rows] == [2, 3]
    assert queue.consume(2) == [("k-earlier", "earlier"), ("k-later", "later")]


def test_another_record_at_the_offset_of_a_dead_letter_is_not_produced(
    odradek: Commands, tmp_path: Path
) -> None:
    queue = Queue(odradek, tmp_path, copy=False)
    queue.reject("earlier")
    create_again(queue)
    queue.file.write_text("innocent\n", "utf-8")
    odradek.run("produce", queue.topic, str(queue.file), "-p", "1")
    odradek.run("share", "redeliver", queue.group, "--all", "--execute", code=1)
    assert "the topic was created again since" in odradek.stderr
    assert len(odradek.rows("consume", queue.topic, "--exit")) == 1


def letter(topic_id: str | None, value: bytes | None) -> Letter:
    named = {"topic": b"t", "partition": b"0", "offset": b"7", "group": b"g"}
    headers = [(f"__dlq.errors.{name}", text) for name, text in named.items()]
    headers += [("__dlq.errors.delivery.count", b"1"), ("__dlq.errors.message", b"rejected")]
    if topic_id is not None:
        headers.append(("__dlq.odradek.topic.id", topic_id.encode()))
    kind = TimestampType.CREATE_TIME
    record = ConsumerRecord("dlq.t", 0, next(_NUMBERS), 5, kind, None, value, tuple(headers), -1)
    found = letter_of(record, "g")
    assert found is not None
    return found


def test_dead_letters_without_topic_ids_count_as_one_if_they_are_equal() -> None:
    equal = [letter(None, b"a"), letter(None, b"a")]
    assert told_apart(equal) == (equal[1:], [])
    different = [letter(None, b"a"), letter(None, b"b"), letter("A" * 22, b"c")]
    chosen, errors = told_apart(different)
    assert chosen == different[2:]
    assert [different[0].where in errors[0], different[1].where in errors[1]] == [True, True]
    same_id = [letter("A" * 22, b"a"), letter("A" * 22, None), letter("B" * 22, b"a")]
    assert told_apart(same_id) == (same_id[1:], [])

"""The rights listed on the page about exactly-once writes are sufficient together, and each of them
is necessary."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from cli_runner import Commands
from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.admin import NewTopic, UserScramCredentialUpsertion
from odradek_client.structs import TopicPartition
from pyspark_odradek import blocking
from pyspark_odradek.errors import SinkError, SourceError
from pyspark_odradek.options import QueryKind as Kind
from pyspark_odradek.options import columns_of, parse_source
from pyspark_odradek.schema import schema_of
from pyspark_odradek.stream_reader import StreamReader
from sasl_brokers import ADMIN_PASSWORD, LISTENER, as_admin, as_user, scram_line
from sink_query import Query
from snippets import snippets

PAGE = Path(__file__, "../../../docs/spark/exactly-once.md").resolve()
MECHANISM = "SCRAM-SHA-512"
SECRET = "a-hidden-word"
WAIT_S = 120

#: (right, name of the resource), as on the page.
Right = tuple[str, str]
SINK: list[Right] = [
    ("write", "copies"),
    ("read", "__odradek_spark_commits"),
    ("write", "__odradek_spark_commits"),
    ("create", "__odradek_spark_commits"),
    ("write", "odradek-spark."),
    ("two-phase-commit", "odradek-spark."),
]
SOURCE: list[Right] = [("read", "originals"), ("read", "copying")]


class User:
    """A user, with topics and a group for the user's job. A test gives the user some of the page's
    rights."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.settings = as_user(bootstrap, MECHANISM, name, SECRET)
        self.names = {
            "job": name,
            **{each: f"{name}-{each}" for each in ("copies", "originals", "copying")},
            "__odradek_spark_commits": f"{name}-commits",
        }
        with sync.Admin(**as_admin(bootstrap)) as admin:
            admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion(name, SECRET, MECHANISM)
            )
            admin.create_topics(NewTopic(self.names["copies"]), NewTopic(self.names["originals"]))
        self.options = {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": MECHANISM,
            "kafka.sasl.jaas.config": scram_line(name, SECRET),
        }
        self.sink_options = {
            **self.options,
            "topic": self.names["copies"],
            "commitLogTopic": self.names["__odradek_spark_commits"],
        }
        self.source_options = {
            **self.options,
            "subscribe": self.names["originals"],
            "groupId": self.names["copying"],
            "startingOffsets": "earliest",
            "fetchOffset.numRetries": "0",
        }

    def allow(self, without: Right | None = None) -> None:
        """Run the page's commands that give rights, but do not give the right `without`."""
        admin = ("sasl_plaintext", "PLAIN", "admin", ADMIN_PASSWORD)
        names = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password")
        settings = [f"-X{name}={value}" for name, value in zip(names, admin, strict=True)]
        left_out = 0
        for words in lines():
            taken: list[str] = []
            for at, word in enumerate(words):
                if words[at - 1] == "--operation" and (word, words_resource(words)) == without:
                    taken.pop()
                    left_out += 1
                else:
                    taken.append(self.names.get(word, word))
            if "--operation" in taken:
                Commands(self.bootstrap).run(*taken, *settings)
        assert left_out == (without is not None)

    def visible(self) -> list[str]:
        """The committed records of the topic, read by the administrator."""
        settings = {**as_admin(self.bootstrap), "isolation_level": "read_committed"}
        partition = TopicPartition(self.names["copies"], 0)
        with sync.Consumer(**settings) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = consumer.end_offsets(partition)[partition]
            values: list[str] = []
            while consumer.position(partition) < end:
                values += [str(each.value, "utf-8") for each in consumer.poll(1000)]
        return values


def lines() -> list[list[str]]:
    """The words of the page's commands that add ACLs, without the program's name."""
    found = [
        shlex.split(line)[1:]
        for each in snippets(PAGE.read_text("utf-8"), PAGE.name)
        for line in each.code.splitlines()
        if line.startswith("odradek acl add ")
    ]
    assert len(found) == 5
    return found


def words_resource(words: list[str]) -> str:
    """The name of the resource in a command."""
    kinds = ("--topic", "--transactional-id", "--group")
    (name,) = [word for at, word in enumerate(words) if words[at - 1] in kinds]
    return name


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = LISTENER | {
        "log.durability": "page-cache",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "auto.create.topics.enable": "false",
        "transaction.max.timeout.ms": "900000",
    }
    with SubprocessBroker(data_dir=tmp_path_factory.mktemp("b"), settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture
def user(bootstrap: str, unique_topic: str) -> User:
    return User(bootstrap, unique_topic.replace("_", "-"))


def batches(monkeypatch: pytest.MonkeyPatch, user: User) -> Query:
    """Write three batches. The first run commits two batches and fails in the third; the next run
    commits the third."""
    query = Query(monkeypatch, user.bootstrap, user.names["copies"])
    query.options = user.sink_options
    for batch in range(2):
        query.commit(batch, query.tasks(batch, [f"{batch}"]))
    query.task(2, 0, "failed")
    again = query.restarted()
    again.commit(2, again.tasks(2, ["2"]))
    return query


def test_the_rights_of_the_page_equal_the_tested_rights() -> None:
    found = [
        (word, words_resource(words))
        for words in lines()
        for at, word in enumerate(words)
        if words[at - 1] == "--operation"
    ]
    assert found == SINK + SOURCE


def test_the_rights_of_the_page_are_enough(
    monkeypatch: pytest.MonkeyPatch, user: User, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(blocking.shared(), "_told", set())
    user.allow()
    batches(monkeypatch, user)
    assert user.visible() == ["0", "1", "2"]
    assert caplog.text == ""
    with sync.Admin(**as_admin(user.bootstrap)) as admin:
        assert admin.list_transactions(states=["Ongoing"]) == []


@pytest.mark.full
@pytest.mark.parametrize("missing", SINK[:-1], ids=" ".join)
def test_a_write_without_a_right_of_the_page_fails_and_names_the_right(
    monkeypatch: pytest.MonkeyPatch, user: User, missing: Right
) -> None:
    user.allow(without=missing)
    operation, name = missing
    with pytest.raises(SinkError, match=operation.upper()) as raised:
        batches(monkeypatch, user)
    resource = "transactional id" if name == "odradek-spark." else user.names[name]
    assert resource in str(raised.value)
    assert user.visible() == []


def test_a_write_without_the_right_to_two_phase_commit_logs_a_warning(
    monkeypatch: pytest.MonkeyPatch, user: User, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(blocking.shared(), "_told", set())
    user.allow(without=SINK[-1])
    batches(monkeypatch, user)
    assert user.visible() == ["0", "1", "2"]
    assert "this cluster aborts transactions after 900 s" in caplog.text


def read(user: User) -> int:
    """Read everything in the topic as a stream does, and commit the progress. Returns the number of
    rows."""
    options: dict[str, Any] = user.source_options
    reader = StreamReader(parse_source(options, Kind.STREAM), schema_of(columns_of(options)))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = reader.partitions(start, end)
    rows: int = sum(batch.num_rows for part in parts for batch in reader.read(part))
    reader.latestOffset(end, ReadAllAvailable())
    return rows


@pytest.mark.full
@pytest.mark.parametrize("missing", [None, *SOURCE], ids=str)
def test_a_source_needs_the_rights_of_the_page(
    user: User, missing: Right | None, caplog: pytest.LogCaptureFixture
) -> None:
    with sync.Producer(**as_admin(user.bootstrap)) as producer:
        producer.send_and_wait(user.names["originals"], b"a")
    user.allow(without=missing)
    if missing == SOURCE[0]:
        with pytest.raises(SourceError, match=user.names["originals"]):
            read(user)
        return
    assert read(user) == 1
    assert ("progress was not committed" in caplog.text) == (missing is not None)


@pytest.mark.full
@pytest.mark.spark
def test_a_stream_of_spark_runs_with_the_rights_of_the_page(
    spark: SparkSession, user: User, tmp_path: Path
) -> None:
    with sync.Producer(**as_admin(user.bootstrap)) as producer:
        for number in range(20):
            producer.send(user.names["originals"], str(number).encode())
    user.allow()
    query = (
        spark.readStream.format("odradek")
        .options(**user.source_options)
        .load()
        .selectExpr("value")
        .writeStream.format("odradek")
        .options(**user.sink_options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    assert sorted(map(int, user.visible())) == list(range(20))

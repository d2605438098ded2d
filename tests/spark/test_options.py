"""Options have the names and defaults of Spark's own `kafka` format; all wrong options are reported
together."""

from __future__ import annotations

import pickle

import pytest

from pyspark_odradek.admission import BatchLimits
from pyspark_odradek.errors import OptionsError
from pyspark_odradek.kafka_settings import REFUSED_IN_SINK, REFUSED_IN_SOURCE
from pyspark_odradek.offsets import EARLIEST, LATEST, AtEdge, AtTime
from pyspark_odradek.options import QueryKind, SinkOptions, SourceOptions, parse_sink, parse_source
from pyspark_odradek.planning import Partition

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


def source(**options: str) -> SourceOptions:
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    return parse_source(BROKER | {"subscribe": "t"} | dotted)


def sink(**options: str) -> SinkOptions:
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    return parse_sink(BROKER | dotted)


def problems_of(options: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(OptionsError) as caught:
        parse_source(options)
    return caught.value.problems


def test_options_have_sparks_defaults() -> None:
    options = source()
    assert options.subscription.topics == ("t",)
    assert (options.start, options.end) == (AtEdge(EARLIEST), AtEdge(LATEST))
    assert options.fail_on_data_loss is True
    assert options.poll_timeout_ms == 120_000
    assert (options.num_retries, options.retry_interval_ms) == (3, 10)
    assert options.min_partitions is None
    assert options.max_records_per_partition is None
    assert "headers" not in options.columns
    assert options.latest_if_no_record is False


def test_option_names_are_case_insensitive() -> None:
    options = parse_source(
        {"KAFKA.bootstrap.SERVERS": "h:1", "SubScribe": "T", "minpartitions": "7"}
    )
    assert options.subscription.topics == ("T",)
    assert options.min_partitions == 7
    assert dict(options.client)["bootstrap_servers"] == "h:1"


def test_options_can_be_sent_to_executors() -> None:
    options = source(startingOffsets='{"t":{"0":5}}')
    assert pickle.loads(pickle.dumps(options)) == options


def test_all_invalid_options_are_reported_at_once() -> None:
    problems = problems_of(
        {
            "subscrib": "t",
            "failOnDataLoss": "perhaps",
            "minPartitions": "0",
            "startingOffsets": "latest",
            "endingOffsets": "earliest",
            "kafka.auto.offset.reset": "latest",
        }
    )
    text = "\n".join(problems)
    for told in (
        "did you mean subscribe?",
        "failOnDataLoss='perhaps'",
        "minPartitions=0",
        "startingOffsets=latest",
        "endingOffsets=earliest",
        "kafka.auto.offset.reset cannot be set",
        "kafka.bootstrap.servers is missing",
        "give exactly one of assign, subscribe, subscribePattern",
    ):
        assert told in text
    assert len(problems) == 8


def test_an_options_error_survives_pickling() -> None:
    error = OptionsError(["one", "two"])
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.problems, str(copy)) == (("one", "two"), str(error))


def test_subscriptions_exclude_each_other() -> None:
    problems = problems_of(BROKER | {"subscribe": "a", "assign": '{"a":[0]}'})
    assert problems == (
        (
            "assign and subscribe exclude each other; give exactly one of assign, subscribe, "
            "subscribePattern"
        ),
    )


def test_subscriptions_are_topics_partitions_or_a_pattern() -> None:
    assert source(subscribe=" a, b ,a").subscription.topics == ("a", "b")
    assigned = parse_source(BROKER | {"assign": '{"a":[1]}'}).subscription
    assert assigned.partitions == (Partition("a", 1),)
    assert parse_source(BROKER | {"subscribePattern": "a.*"}).subscription.pattern == "a.*"
    assert "is no regular expression" in problems_of(BROKER | {"subscribePattern": "("})[0]
    assert "names no topic" in problems_of(BROKER | {"subscribe": " , "})[0]


def test_a_timestamp_option_overrides_timestamps_and_offsets() -> None:
    options = source(
        startingTimestamp="5",
        startingOffsetsByTimestamp='{"t":{"0":6}}',
        startingOffsets="nonsense",
        endingOffsetsByTimestamp='{"t":{"0":7}}',
        endingOffsets="nonsense",
    )
    assert options.start == AtTime(time_ms=5)
    assert options.start_option == "startingTimestamp"
    assert options.end == AtTime(times_ms={Partition("t", 0): 7})


def test_a_batch_refuses_a_start_at_latest_and_a_stream_accepts_it() -> None:
    json_latest = BROKER | {"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'}
    assert "latest" in problems_of(json_latest)[0]
    assert (
        "earliest" in problems_of(BROKER | {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'})[0]
    )
    parse_source(json_latest, QueryKind.EITHER)
    parse_source(json_latest, QueryKind.STREAM)


def test_the_strategy_for_timestamps_is_error_or_latest() -> None:
    assert source(startingOffsetsByTimestampStrategy="Latest").latest_if_no_record is True
    options = BROKER | {"subscribe": "t", "startingOffsetsByTimestampStrategy": "newest"}
    assert "must be error or latest" in problems_of(options)[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("minPartitions", "many"),
        ("maxRecordsPerPartition", "0"),
        ("kafkaConsumer.pollTimeoutMs", "-5"),
        ("fetchOffset.numRetries", "-1"),
        ("fetchOffset.retryIntervalMs", "x"),
        ("includeHeaders", "1"),
    ],
)
def test_invalid_option_values_are_refused(name: str, value: str) -> None:
    (problem,) = problems_of(BROKER | {"subscribe": "t", name: value})
    assert problem.startswith(name)


def test_the_error_for_an_unknown_option_names_the_nearest_one() -> None:
    (problem,) = problems_of(BROKER | {"subscribe": "t", "startingoffset": "earliest"})
    assert problem == "there is no option startingoffset; did you mean startingOffsets?"
    (problem,) = problems_of(BROKER | {"subscribe": "t", "security.protocol": "SSL"})
    assert "kafka.security.protocol" in problem


def test_options_of_the_other_direction_and_of_spark_are_ignored() -> None:
    source(topic="x", checkpointLocation="/c", kafka__linger__ms="5", maxOffsetsPerTrigger="10")
    sink(subscribe="x", startingOffsets="earliest", kafka__max__poll__records="10", topic="t")


# --- kafka.* --------------------------------------------------------------------------------------


def test_java_client_settings_are_translated() -> None:
    client = dict(
        source(kafka__fetch__max__wait__ms="77", kafka__isolation__level="read_committed").client
    )
    assert client["fetch_max_wait_ms"] == "77"
    assert client["isolation_level"] == "read_committed"
    assert dict(sink(kafka__compression__type="zstd").client)["compression_type"] == "zstd"


@pytest.mark.parametrize("name", sorted(REFUSED_IN_SOURCE))
def test_client_settings_that_the_source_controls_are_refused(name: str) -> None:
    (problem,) = problems_of(BROKER | {"subscribe": "t", f"kafka.{name}": "x"})
    assert problem == f"kafka.{name} cannot be set: {REFUSED_IN_SOURCE[name]}"


@pytest.mark.parametrize("name", sorted(REFUSED_IN_SINK))
def test_client_settings_that_the_sink_controls_are_refused(name: str) -> None:
    with pytest.raises(OptionsError, match=f"kafka.{name} cannot be set"):
        parse_sink(BROKER | {f"kafka.{name}": "x"})


def test_client_settings_without_effect_on_security_are_refused() -> None:
    for name, value, words in (
        ("security.protocol", "SASL_SSL", "'GSSAPI' is not supported; set it to one of PLAIN"),
        ("sasl.mechanism", "PLAIN", "set security_protocol=SASL_SSL"),
        ("sasl.kerberos.service.name", "kafka", "Kerberos"),
        ("sasl.oauth.token.provider", "f", "a function cannot be an option"),
        ("sasl.client.callback.handler.class", "x", "classes of Java"),
        ("ssl.engine.factory.class", "x", "classes of Java"),
        ("ssl.truststore.location", "/x", "set security_protocol=SSL"),
    ):
        (problem,) = problems_of(BROKER | {"subscribe": "t", f"kafka.{name}": value})
        assert words in problem
    source(kafka__security__protocol="PLAINTEXT")
    with pytest.raises(OptionsError, match="classes of Java"):
        sink(kafka__partitioner__class="com.example.Mine")


def test_tls_settings_have_javas_names_and_hide_secrets() -> None:
    given = {
        "kafka__security__protocol": "SSL",
        "kafka__ssl__truststore__type": "PEM",
        "kafka__ssl__truststore__location": "/ca.pem",
        "kafka__ssl__key__password": "a-secret-word",
        "kafka__ssl__provider": "SunJSSE",
    }
    options = source(**given)
    assert dict(options.client)["ssl_truststore_location"] == "/ca.pem"
    assert dict(options.client)["ssl_key_password"] == "a-secret-word"
    assert "ssl_provider" not in dict(options.client)
    assert "a-secret-word" not in repr(options) + repr(sink(**given))
    wrong = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "CSV"}
    (problem,) = problems_of(BROKER | {"subscribe": "t"} | wrong)
    assert "ssl_truststore_type" in problem


def test_s17_sasl_settings_have_javas_names_and_hide_secrets() -> None:
    line = 'x.PlainLoginModule required username="a" password="a-secret-word";'
    given = {
        "kafka__security__protocol": "SASL_SSL",
        "kafka__sasl__mechanism": "PLAIN",
        "kafka__sasl__jaas__config": line,
        "kafka__sasl__oauthbearer__clock__skew__seconds": "30",
    }
    options = source(**given)
    assert dict(options.client)["sasl_jaas_config"] == line
    assert "sasl_oauthbearer_clock_skew_seconds" not in dict(options.client)
    assert "a-secret-word" not in repr(options) + repr(sink(**given))
    base = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    wrong = {"kafka.sasl.login.refresh.window.factor": "2", "kafka.ssl.truststore.type": "CSV"}
    problems = problems_of(BROKER | {"subscribe": "t"} | base | wrong)
    assert len(problems) == 2 and "must be at most 1.0" in problems[0]
    (problem,) = problems_of(BROKER | {"subscribe": "t"} | base | {"kafka.sasl.mechanism": "X"})
    assert problem.startswith("kafka.sasl.mechanism: sasl_mechanism='X' is not supported")


def test_tuning_of_the_java_client_is_accepted_without_effect() -> None:
    assert source(kafka__receive__buffer__bytes="65536").client == source().client


def test_invalid_and_unknown_client_settings_are_refused() -> None:
    (problem,) = problems_of(BROKER | {"subscribe": "t", "kafka.fetch.max.wait.ms": "soon"})
    assert problem.startswith("kafka.fetch.max.wait.ms: ")
    (problem,) = problems_of(BROKER | {"subscribe": "t", "kafka.fetch.max.wait": "5"})
    assert "did you mean kafka.fetch.max.wait.ms?" in problem
    problems = problems_of(
        BROKER | {"subscribe": "t", "kafka.fetch.max.wait.ms": "x", "kafka.fetch.max.bytes": "y"}
    )
    assert len(problems) == 2


def test_the_option_topic_of_a_sink_is_trimmed_and_not_empty() -> None:
    assert sink(topic=" t ").topic == "t"
    assert sink().topic is None
    with pytest.raises(OptionsError, match="topic is empty"):
        sink(topic=" ")


def stream(**options: str) -> SourceOptions:
    return parse_source(BROKER | {"subscribe": "t"} | options, QueryKind.STREAM)


def test_a_stream_begins_at_latest_and_refuses_ending_options() -> None:
    assert stream().start == AtEdge(LATEST)
    assert stream(startingOffsets="earliest").start == AtEdge(EARLIEST)
    with pytest.raises(OptionsError) as caught:
        stream(endingOffsets="latest", endingTimestamp="1")
    assert [each.partition(" ")[0] for each in caught.value.problems] == [
        "endingTimestamp",
        "endingOffsets",
    ]


def test_limits_of_a_trigger_are_parsed() -> None:
    assert stream().limits == BatchLimits()
    found = stream(
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="90s",
        maxBytesPerTrigger="64m",
    )
    assert found.limits == BatchLimits(100, 64 << 20, 10, 90_000)
    for text, ms in (
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("250ms", 250),
        ("7", 7),
        ("1 min", 60_000),
    ):
        assert stream(maxTriggerDelay=text).limits.max_delay_ms == ms
    for text, size in (("1000", 1000), ("100kb", 102_400), ("1G", 1 << 30)):
        assert stream(maxBytesPerTrigger=text).limits.max_bytes == size


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("maxOffsetsPerTrigger", "0", "must be 1 or more"),
        ("maxTriggerDelay", "soon", "such as 30s"),
        ("maxBytesPerTrigger", "0m", "such as 64m"),
        ("groupId", " ", "groupId is empty"),
        ("columns", "key,valu", "must name some of key, value"),
        ("columns", " ", "must name some of"),
    ],
)
def test_invalid_stream_options_are_refused_with_the_reason(
    option: str, value: str, told: str
) -> None:
    with pytest.raises(OptionsError, match=told):
        stream(**{option: value})


def test_a_minimum_above_the_maximum_of_a_trigger_is_refused() -> None:
    with pytest.raises(OptionsError, match="minOffsetsPerTrigger=5 is above"):
        stream(maxOffsetsPerTrigger="4", minOffsetsPerTrigger="5")


def test_chosen_columns_keep_the_order_of_the_schema() -> None:
    assert stream().columns == (
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    )
    assert stream(columns="VALUE, key").columns == ("key", "value")
    assert stream(columns="headers").columns == ("headers",)
    assert stream(includeHeaders="true").columns[-1] == "headers"


# --- exactly once ---------------------------------------------------------------------------------


def test_writes_are_exactly_once_by_default() -> None:
    assert sink(topic="t").exactly_once
    assert sink(topic="t", semantics="Exactly-Once").exactly_once
    assert not sink(topic="t", semantics="at_least_once").exactly_once
    found = sink(topic="t", commitId=" orders ", commitVersion="7", commitLogTopic="log")
    assert (found.commit_id, found.commit_version, found.log_topic) == ("orders", 7, "log")
    assert sink(topic="t").log_topic == "__odradek_spark_commits"
    assert not sink(topic="t").lenient
    assert sink(topic="t", failOnDataLoss="false").lenient
    assert parse_sink(BROKER | {"topic": "t", "queryId": "q"}, streaming=True).query_id == "q"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"semantics": "twice"}, "semantics='twice' must be exactly_once or at_least_once"),
        ({"semantic": "exactly_once"}, "did you mean semantics?"),
        ({"commitVersion": "1"}, "commitVersion counts the commits of a commitId"),
        ({"commitId": "x", "commitVersion": "-1"}, "must be 0 or more"),
        ({"commitId": " "}, "commitId must have 1 to 200 characters"),
        ({"queryId": "x"}, "queryId is for streams"),
        ({"commitId": "x", "semantics": "at_least_once"}, "commitId cannot be obeyed"),
        ({"kafka.acks": "1"}, "these settings forbid them.*or set semantics=at_least_once"),
        ({"kafka.enable.idempotence": "false"}, "these settings forbid them"),
        ({"kafka.transactional.id": "x"}, "the sink names its transactions itself"),
    ],
)
def test_options_that_exactly_once_writes_cannot_obey_are_refused(
    options: dict[str, str], told: str
) -> None:
    with pytest.raises(OptionsError, match=told):
        parse_sink(BROKER | {"topic": "t"} | options)


def test_at_least_once_writes_obey_acks_and_use_no_two_phase_commit() -> None:
    found = parse_sink(BROKER | {"topic": "t", "kafka.acks": "1", "semantics": "at_least_once"})
    assert dict(found.client)["acks"] == "1"
    both = parse_sink(BROKER | {"topic": "t", "kafka.transaction.two.phase.commit.enable": "true"})
    assert "transaction_two_phase_commit_enable" not in dict(both.client)

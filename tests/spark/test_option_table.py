"""The table of options in docs/spark/connector.md: it has every option, and every row has its
test."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from pyspark_odradek import cluster
from pyspark_odradek.errors import SourceError
from pyspark_odradek.options import SINK_OPTIONS, SOURCE_OPTIONS, parse_source

HERE = Path(__file__).parent
DOCUMENT = HERE.parent.parent / "docs" / "spark" / "connector.md"
BROKER = {"kafka.bootstrap.servers": "localhost:9092"}

#: First cell of a row -> the tests of the row.
TESTS = {
    "kafka.bootstrap.servers": ["test_a_broker_that_is_not_there_is_told_within_the_time_limit"],
    "subscribe, assign": [
        "test_the_three_subscriptions",
        "test_offsets_are_read_exactly_from_start_to_end",
        "test_a_topic_or_partition_that_is_not_there_is_named",
    ],
    "subscribePattern": [
        "test_a_pattern_is_looked_for_anywhere_in_names",
        "test_new_partitions_and_new_topics_are_read_from_their_beginning",
    ],
    "startingOffsets": [
        "test_a_stream_begins_at_the_end_unless_told_otherwise",
        "test_a_batch_refuses_edges_that_read_nothing_but_a_stream_may_have_them",
        "test_c3_everything_is_read_once_across_restarts",
    ],
    "startingOffsetsByTimestamp, startingTimestamp": [
        "test_precedence_timestamp_then_timestamps_then_offsets",
        "test_times_choose_the_first_record_at_or_behind_them",
        "test_a_stream_begins_at_a_time",
    ],
    "startingOffsetsByTimestampStrategy": [
        "test_strategy_for_times",
        "test_a_time_that_no_record_has_reached",
    ],
    "endingOffsets": [
        "test_offsets_are_read_exactly_from_start_to_end",
        "test_a_stream_refuses_an_end",
    ],
    "endingOffsetsByTimestamp, endingTimestamp": [
        "test_times_choose_the_first_record_at_or_behind_them",
        "test_a_stream_begins_at_the_end_and_has_none",
    ],
    "failOnDataLoss (writing)": [
        "test_s07_an_old_checkpoint_is_found_out",
        "test_s11_a_batch_that_is_lost_in_part_is_loud",
    ],
    "failOnDataLoss (reading)": [
        "test_offsets_that_are_not_there_fail_unless_that_is_allowed",
        "test_what_retention_has_deleted_is_data_loss",
        "test_c1_gaps_that_transactions_leave_are_no_loss",
        "test_c1_a_log_that_was_cut_is_loss",
    ],
    "kafkaConsumer.pollTimeoutMs": ["test_a_broker_that_stays_away_ends_the_read_in_time"],
    "fetchOffset.numRetries": ["test_what_is_missing_is_asked_for_so_many_times_more"],
    "fetchOffset.retryIntervalMs": ["test_an_election_may_end_between_two_attempts"],
    "minPartitions": ["test_partitions_of_spark_follow_the_settings"],
    "maxRecordsPerPartition": ["test_partitions_of_spark_follow_the_settings"],
    "includeHeaders": ["test_c3_found_without_register_and_rows_are_those_of_the_kafka_format"],
    "groupIdPrefix, kafka.group.id": ["test_groups_of_spark_are_accepted_without_effect"],
    "maxOffsetsPerTrigger": [
        "test_c1_max_offsets_splits_by_backlog_and_available_now_ends",
        "test_c1_the_whole_limit_is_used_and_not_more",
    ],
    "minOffsetsPerTrigger, maxTriggerDelay": [
        "test_c1_a_batch_waits_for_its_minimum",
        "test_c1_a_batch_waits_for_its_minimum_or_its_time",
    ],
    "maxBytesPerTrigger": ["test_max_bytes_are_kept_roughly"],
    "groupId": ["test_progress_is_lag_of_a_group_and_the_last_batch_counts"],
    "columns": ["test_rows_are_those_of_a_batch_and_columns_are_fewer_if_asked"],
    "topic": ["test_the_option_topic_beats_the_column"],
    "semantics": [
        "test_at_least_once_writes_a_replay_again",
        "test_a_stream_that_is_restarted_writes_every_batch_once",
    ],
    "commitId, commitVersion": [
        "test_a_commit_id_makes_a_repeated_job_write_once",
        "test_in_foreach_batch_a_commit_id_makes_it_once",
    ],
    "queryId": ["test_s01_without_sparks_properties_the_driver_finds_out"],
    "commitLogTopic": ["test_a_log_that_cannot_serve_is_refused"],
    "kafka.*": [
        "test_java_names_become_ours",
        "test_settings_that_the_source_refuses",
        "test_settings_that_the_sink_refuses",
    ],
    "filters on topic, partition, offset, timestamp": [
        "test_c3_filters_are_handed_down_where_spark_allows_it_and_answers_stay_the_same"
    ],
    "anything else": [
        "test_unknown_options_name_the_nearest",
        "test_options_of_the_other_direction_and_of_spark_itself_are_let_pass",
    ],
}


def rows() -> list[list[str]]:
    section = DOCUMENT.read_text().partition("## Every option of the `kafka` format")[2]
    table = section.partition("| Option |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in table]


def defined_tests() -> set[str]:
    found = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith(
                "test_"
            ):
                found.add(node.name)
    return found


def test_every_row_of_the_table_has_its_tests() -> None:
    assert [cells[0].replace("`", "") for cells in rows()] == list(TESTS)
    missing = {name for names in TESTS.values() for name in names} - defined_tests()
    assert not missing


def test_every_option_has_a_row_that_says_same_different_or_ours() -> None:
    named = {name for cells in rows() for name in re.findall(r"`([^`]+)`", cells[0])}
    assert set(SOURCE_OPTIONS) | set(SINK_OPTIONS) <= named
    for cells in rows():
        assert cells[2] in ("same", "different", "ours"), cells
        assert cells[2] == "same" or cells[3], cells


def test_groups_of_spark_are_accepted_without_effect() -> None:
    plain = parse_source(BROKER | {"subscribe": "t"})
    given = parse_source(BROKER | {"subscribe": "t", "groupIdPrefix": "p", "kafka.group.id": "g"})
    assert given.group is None
    assert {key: text for key, text in given.client if key != "group_id"} == dict(plain.client)


class _NoTopics:
    """A cluster without topics, which counts its calls."""

    def __init__(self) -> None:
        self.asked = 0
        self.cluster = self
        self.topics: dict[str, Any] = {}
        self.topic_errors: dict[str, Any] = {}
        self.config = self
        self.bootstrap_servers = ["b:1"]
        self.default_api_timeout_ms = 60_000

    def want(self, topics: object) -> None: ...
    def unwant(self, topics: object) -> None: ...
    def set_all_topics(self, wanted: bool) -> None: ...

    def now_ms(self) -> float:
        return 0.0

    async def refresh_metadata(self) -> None:
        self.asked += 1


@pytest.mark.parametrize("retries", [0, 2])
async def test_what_is_missing_is_asked_for_so_many_times_more(retries: int) -> None:
    network: Any = _NoTopics()
    options = parse_source(BROKER | {"subscribe": "t", "fetchOffset.numRetries": str(retries)})
    with pytest.raises(SourceError, match="there is no topic 't'"):
        await cluster.find_partitions(network, options)
    assert network.asked == retries + 1


@pytest.mark.parametrize(("interval_ms", "slept_s"), [("10", 0.1), ("250", 0.25)])
async def test_an_election_may_end_between_two_attempts(
    monkeypatch: pytest.MonkeyPatch, interval_ms: str, slept_s: float
) -> None:
    slept = []
    own_loop, really_sleep = asyncio.get_running_loop(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        # Clients of earlier tests may wait for a broker that is gone, on the connector's own loop.
        if asyncio.get_running_loop() is own_loop:
            slept.append(seconds)
        else:
            await really_sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    options = parse_source(BROKER | {"subscribe": "t", "fetchOffset.retryIntervalMs": interval_ms})
    network: Any = _NoTopics()
    with pytest.raises(SourceError):
        await cluster.find_partitions(network, options)
    assert slept == [slept_s, slept_s * 2, slept_s * 4]

"""The table of options in docs/spark/connector.md has every option, and every row has its test."""

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

#: The first cell of a row -> the names of its tests.
TESTS = {
    "kafka.bootstrap.servers": [
        "test_a_read_fails_within_the_time_limit_if_no_broker_is_reachable"
    ],
    "subscribe, assign": [
        "test_subscriptions_are_topics_partitions_or_a_pattern",
        "test_offsets_are_read_exactly_from_start_to_end",
        "test_a_read_of_an_unknown_topic_or_partition_names_it",
    ],
    "subscribePattern": [
        "test_a_pattern_matches_anywhere_in_topic_names",
        "test_new_partitions_and_topics_are_read_from_their_beginning",
    ],
    "startingOffsets": [
        "test_a_stream_begins_at_the_latest_offsets",
        "test_a_batch_refuses_a_start_at_latest_and_a_stream_accepts_it",
        "test_c3_every_record_is_read_once_across_restarts",
    ],
    "startingOffsetsByTimestamp, startingTimestamp": [
        "test_a_timestamp_option_overrides_timestamps_and_offsets",
        "test_timestamps_select_the_first_record_at_or_after_them",
        "test_a_stream_begins_at_a_timestamp",
    ],
    "startingOffsetsByTimestampStrategy": [
        "test_the_strategy_for_timestamps_is_error_or_latest",
        "test_a_starting_time_after_all_records_is_refused_by_default",
    ],
    "endingOffsets": [
        "test_offsets_are_read_exactly_from_start_to_end",
        "test_a_stream_refuses_ending_offsets",
        "test_s21_a_second_query_warns_of_what_it_leaves_out",
    ],
    "endingOffsetsByTimestamp, endingTimestamp": [
        "test_timestamps_select_the_first_record_at_or_after_them",
        "test_a_stream_begins_at_latest_and_refuses_ending_options",
    ],
    "failOnDataLoss (writing)": [
        "test_s07_an_outdated_checkpoint_is_refused",
        "test_s11_a_partly_lost_batch_fails_the_query",
    ],
    "failOnDataLoss (reading)": [
        "test_an_end_beyond_the_log_fails_unless_data_loss_is_allowed",
        "test_records_deleted_by_retention_are_data_loss",
        "test_c1_offset_gaps_of_transactions_are_no_data_loss",
        "test_c1_a_topic_recreated_with_a_longer_log_is_data_loss",
    ],
    "kafkaConsumer.pollTimeoutMs": ["test_a_read_fails_in_time_if_its_broker_does_not_return"],
    "fetchOffset.numRetries": ["test_a_missing_topic_is_requested_again_num_retries_times"],
    "fetchOffset.retryIntervalMs": ["test_the_retry_interval_doubles_from_retry_interval_ms"],
    "minPartitions": ["test_the_number_of_spark_partitions_follows_the_options"],
    "maxRecordsPerPartition": ["test_the_number_of_spark_partitions_follows_the_options"],
    "includeHeaders": ["test_c3_rows_are_read_as_by_the_kafka_format_without_registration"],
    "groupIdPrefix, kafka.group.id": ["test_groups_of_spark_are_accepted_without_effect"],
    "maxOffsetsPerTrigger": [
        "test_c1_max_offsets_is_split_by_backlog_and_available_now_ends",
        "test_c1_the_shares_of_partitions_add_up_to_the_limit",
    ],
    "minOffsetsPerTrigger, maxTriggerDelay": [
        "test_c1_a_batch_waits_for_its_minimum",
        "test_c1_a_batch_waits_for_its_minimum_or_its_maximum_delay",
    ],
    "maxBytesPerTrigger": ["test_max_bytes_per_trigger_limits_a_batch_approximately"],
    "groupId": ["test_progress_is_committed_for_a_group_up_to_the_last_batch"],
    "columns": ["test_a_stream_has_the_columns_of_a_batch_or_the_chosen_ones"],
    "topic": ["test_the_option_topic_overrides_the_column_topic"],
    "semantics": [
        "test_at_least_once_writes_a_replayed_batch_again",
        "test_a_restarted_stream_writes_every_batch_once",
    ],
    "commitId, commitVersion": [
        "test_a_commit_id_makes_a_repeated_job_write_once",
        "test_a_commit_id_makes_a_write_in_foreach_batch_exactly_once",
    ],
    "queryId": ["test_s01_a_query_id_identifies_a_query_without_sparks_properties"],
    "commitLogTopic": ["test_an_unsuitable_decision_log_is_refused"],
    "kafka.*": [
        "test_java_client_settings_are_translated",
        "test_client_settings_that_the_source_controls_are_refused",
        "test_client_settings_that_the_sink_controls_are_refused",
    ],
    "anything else": [
        "test_the_error_for_an_unknown_option_names_the_nearest_one",
        "test_options_of_the_other_direction_and_of_spark_are_ignored",
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


def test_every_option_has_a_row_with_same_different_or_ours() -> None:
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
    """A fake cluster without topics, which counts the calls that it gets."""

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
async def test_a_missing_topic_is_requested_again_num_retries_times(retries: int) -> None:
    network: Any = _NoTopics()
    options = parse_source(BROKER | {"subscribe": "t", "fetchOffset.numRetries": str(retries)})
    with pytest.raises(SourceError, match="there is no topic 't'"):
        await cluster.find_partitions(network, options)
    assert network.asked == retries + 1


@pytest.mark.parametrize(("interval_ms", "slept_s"), [("10", 0.1), ("250", 0.25)])
async def test_the_retry_interval_doubles_from_retry_interval_ms(
    monkeypatch: pytest.MonkeyPatch, interval_ms: str, slept_s: float
) -> None:
    slept = []
    own_loop, really_sleep = asyncio.get_running_loop(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        # Clients of earlier tests may still wait for a stopped broker, on the connector's own loop.
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

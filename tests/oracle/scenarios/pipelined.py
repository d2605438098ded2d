"""A request that changes something, and right behind it on the same connection one that needs the
change. The broker has both before it answers the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.oracle.group_steps import group, heartbeat, join_body, stable
from tests.oracle.scenarios.configs import change_configs, describe_configs
from tests.oracle.scenarios.fetch import delete_records, list_offset
from tests.oracle.scenarios.groups_consumer import (
    CONSUMER_GROUP,
    consumer_described,
    consumer_heartbeat,
)
from tests.oracle.scenarios.groups_share import (
    all_share_offsets,
    alter_share_offsets,
    delete_share_offsets,
)
from tests.oracle.scenarios.groups_streams import (
    STREAMS_START,
    streams_described,
    streams_heartbeat,
)
from tests.oracle.scenarios.identity import (
    alter_credentials,
    credential,
    describe_credentials,
    no_credential,
)
from tests.oracle.scenarios.offsets import (
    commit_offsets,
    delete_groups,
    delete_offsets,
    fetch_offsets,
)
from tests.oracle.scenarios.quotas import alter_quotas, describe_quotas
from tests.oracle.scenarios.share_fetch import FILLED, share_acknowledge, share_fetch
from tests.oracle.scenarios.share_state import (
    STATES_START,
    delete_state,
    initialize_state,
    read_state,
    write_state,
)
from tests.oracle.scenarios.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    metadata,
    new_topic,
    partitions_of,
)
from tests.oracle.scenarios.transactions import (
    add_offsets,
    add_partitions,
    commit_in_transaction,
    end_transaction,
    init_producer_id,
)
from tests.oracle.script import (
    APIS_BY_NAME,
    Ask,
    Batch,
    Receive,
    Scenario,
    Send,
    Step,
    coordinator,
    fetch_body,
    produce_body,
    produced,
    producer,
    topic,
)

_TRANSACTION: list[Step] = [*topic(), *group(), *producer()]
_WRITTEN = Batch(
    producer_id="$pid", producer_epoch="$pid_epoch", base_sequence=0, transactional=True
)
#: The newest versions that name topics; a new topic's id is not known yet.
_NAMED = {"Produce": 12, "Fetch": 12, "OffsetFetch": 9, "OffsetCommit": 9, "Metadata": 12}


def _pipelined(name: str, before: Sequence[Step], *asks: Ask) -> Scenario:
    """Send all requests, then read their answers."""
    api = asks[0].api
    versions = {**_NAMED, "InitProducerId": 5, "AddPartitionsToTxn": 3, "TxnOffsetCommit": 4}
    versions |= {"EndTxn": 4, "AddOffsetsToTxn": 3}
    sent = [
        Send(ask if ask.version is not None else replace(ask, version=versions.get(ask.api)))
        for ask in asks
    ]
    newest = versions.get(api, APIS_BY_NAME[api].versions.last)
    return Scenario(
        f"pipelined-{name}", api, [*before, *sent, *(Receive() for _ in sent)], str(newest)
    )


def _soon(ask: Ask, path: str, *codes: str, ignore: Sequence[str] = ()) -> Ask:
    """A request whose answer depends in Kafka on the time since the change."""
    return replace(ask, either={path: codes}, ignore=ignore)


_UNKNOWN_YET = ("NONE", "UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER")
_PENDING = ("NONE", "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED")


def _produce(name: str = "@t", partition: int = 0, **more: Any) -> Ask:
    return Ask("Produce", produce_body(Batch(["a"]), name, partition, topic_id=bytes(16)), **more)


def _fetch(**more: Any) -> Ask:
    return Ask("Fetch", fetch_body(topic_id=bytes(16), **more))


#: Whether these requests see a change of topics, settings or users depends on the time in Kafka.
_PRODUCED = "responses.0.partition_responses.0"
_LISTED = "topics.0.partitions.0"


def _produced_soon(partition: int = 0) -> Ask:
    fields = ("base_offset", "log_start_offset", "current_leader")
    ignore = ("node_endpoints", *(f"{_PRODUCED}.{field}" for field in fields))
    codes = (*_UNKNOWN_YET, "MESSAGE_TOO_LARGE")
    return _soon(_produce("@t", partition), f"{_PRODUCED}.error_code", *codes, ignore=ignore)


def _listed_soon(partition: int = 0) -> Ask:
    offsets = (f"{_LISTED}.offset", f"{_LISTED}.leader_epoch")
    ask = list_offset(-1, partition=partition)
    return _soon(ask, f"{_LISTED}.error_code", *_UNKNOWN_YET, ignore=offsets)


_METADATA_SOON = _soon(
    metadata("@t"),
    "topics.0.error_code",
    *_UNKNOWN_YET,
    ignore=("topics.0.partitions", "topics.0.topic_id", *metadata("@t").ignore),
)
_CONFIGS_SOON = _soon(
    describe_configs(["retention.ms"]),
    "results.0.error_code",
    *_UNKNOWN_YET,
    ignore=("results.0.configs", "results.0.error_message"),
)
_CREDENTIALS_SOON = _soon(
    describe_credentials("@u"),
    "results.0.error_code",
    *("NONE", "RESOURCE_NOT_FOUND"),
    ignore=("results.0.credential_infos", "results.0.error_message"),
)
_ADDED = "results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code"
_CREATE, _DELETE = create_topics(new_topic()), delete_topics("@t")
_GROW = create_partitions(partitions_of())

_TOPICS = [
    _pipelined("create-topics-and-produce", [], _CREATE, _produced_soon()),
    _pipelined("create-topics-and-metadata", [], _CREATE, _METADATA_SOON),
    _pipelined("create-topics-and-list-offsets", [], _CREATE, _listed_soon()),
    _pipelined(
        "create-topics-and-fetch",
        [],
        _CREATE,
        replace(_fetch(), ignore=("responses.0.partitions",)),
    ),
    _pipelined("create-topics-and-describe-configs", [], _CREATE, _CONFIGS_SOON),
    _pipelined("create-topics-and-delete-them", [], _CREATE, _DELETE),
    _pipelined("create-topics-twice", [], _CREATE, _CREATE),
    _pipelined("delete-topics-and-produce", topic(), _DELETE, _produced_soon()),
    _pipelined("delete-topics-and-metadata", topic(), _DELETE, _METADATA_SOON),
    _pipelined("delete-topics-and-create-them", topic(), _DELETE, _CREATE),
    _pipelined("delete-topics-and-list-offsets", topic(), _DELETE, _listed_soon()),
    _pipelined("create-partitions-and-produce", topic(), _GROW, _produced_soon(1)),
    _pipelined("create-partitions-and-list-offsets", topic(), _GROW, _listed_soon(1)),
    _pipelined("create-partitions-and-metadata", topic(), _GROW, _METADATA_SOON),
    _pipelined(
        "alter-configs-and-describe-them",
        topic(),
        change_configs(("retention.ms", 0, "77")),
        _CONFIGS_SOON,
    ),
    _pipelined(
        "alter-configs-and-produce",
        topic(),
        change_configs(("max.message.bytes", 0, "10")),
        _produced_soon(),
    ),
    _pipelined(
        "alter-quotas-and-describe-them",
        [],
        alter_quotas(((("user", "@u"),), {"request_percentage": 77.0})),
        replace(describe_quotas(("user", 0, "@u")), ignore=("entries",)),
    ),
    _pipelined(
        "alter-credentials-and-describe-them",
        [],
        alter_credentials(credential("@u")),
        _CREDENTIALS_SOON,
        alter_credentials(deletions=[no_credential("@u")]),
        _CREDENTIALS_SOON,
    ),
]

_RECORDS = [
    _pipelined("produce-and-fetch", topic(), _produce(), _fetch()),
    _pipelined("produce-and-list-offsets", topic(), _produce(), list_offset(-1)),
    _pipelined("produce-twice", topic(), _produce(), _produce()),
    _pipelined(
        "produce-and-delete-records", topic(), _produce(), delete_records(1), list_offset(-2)
    ),
    _pipelined(
        "delete-records-and-list-offsets",
        [*topic(), produced(Batch(["a", "b"]))],
        delete_records(1),
        list_offset(-2),
    ),
    _pipelined(
        "delete-records-and-fetch",
        [*topic(), produced(Batch(["a"])), produced(Batch(["b"]))],
        delete_records(1),
        _fetch(offset=0),
        _fetch(offset=1),
    ),
]

_LEAVE = Ask("LeaveGroup", {"group_id": "@g", "members": [{"member_id": "$m"}]}, version=5)
_DESCRIBE = Ask("DescribeGroups", {"groups": ["@g"]}, version=6)
_GROUPS = [
    _pipelined(
        "commit-and-fetch-offsets",
        [*topic(), *group()],
        commit_offsets(("@t", [(0, 5)])),
        fetch_offsets(None),
    ),
    _pipelined(
        "commit-and-delete-offsets",
        [*topic(), *group()],
        commit_offsets(("@t", [(0, 5)])),
        delete_offsets(("@t", (0,))),
        fetch_offsets(None),
    ),
    _pipelined(
        "commit-and-delete-groups",
        [*topic(), *group()],
        commit_offsets(("@t", [(0, 5)])),
        delete_groups("@g"),
        _DESCRIBE,
        fetch_offsets(None),
    ),
    _pipelined("leave-and-heartbeat", stable(), _LEAVE, replace(heartbeat(), version=4)),
    _pipelined("leave-and-describe", stable(), _LEAVE, _DESCRIBE),
    _pipelined("leave-and-delete", stable(), _LEAVE, delete_groups("@g")),
    _pipelined(
        "join-and-describe",
        group(),
        Ask("JoinGroup", join_body(), version=3, ignore=("member_id", "leader", "members")),
        _DESCRIBE,
    ),
    _pipelined(
        "consumer-joins-and-describe", CONSUMER_GROUP, consumer_heartbeat(), consumer_described()
    ),
    _pipelined(
        "consumer-joins-and-leaves",
        CONSUMER_GROUP,
        consumer_heartbeat(),
        consumer_heartbeat(epoch=-1),
        consumer_described(),
    ),
    _pipelined(
        "consumer-joins-and-commits",
        CONSUMER_GROUP,
        consumer_heartbeat(),
        commit_offsets(("@t", [(0, 5)]), member_id="@m", generation=2),
        fetch_offsets(None),
    ),
    _pipelined(
        "consumer-leaves-and-delete",
        [*CONSUMER_GROUP, replace(consumer_heartbeat(), quiet=True)],
        consumer_heartbeat(epoch=-1),
        delete_groups("@g"),
    ),
    _pipelined(
        "streams-joins-and-describe", STREAMS_START, streams_heartbeat(), streams_described()
    ),
]

_SHARE = [
    _pipelined(
        "share-fetch-and-acknowledge",
        FILLED,
        share_fetch(0),
        share_acknowledge(1, (0, 4, [1])),
        share_acknowledge(2, (5, 7, [2])),
    ),
    _pipelined(
        "share-offsets-altered-and-described",
        [*topic(), *group(), produced(Batch(["a", "b"]))],
        alter_share_offsets(("@t", {0: 1})),
        all_share_offsets(),
    ),
    _pipelined(
        "share-offsets-deleted-and-described",
        [
            *topic(),
            *group(),
            produced(Batch(["a", "b"])),
            replace(alter_share_offsets(("@t", {0: 1})), quiet=True),
        ],
        delete_share_offsets("@t"),
        all_share_offsets(),
    ),
    _pipelined(
        "share-state-written-and-read",
        STATES_START,
        initialize_state(1),
        write_state((0, 3, 0, 1), partition=1, start_offset=0),
        read_state(1),
        delete_state(1),
        read_state(1),
    ),
]

_TRANSACTIONS = [
    _pipelined(
        "init-producer-id-five-times",
        [coordinator("@id", 1), init_producer_id(quiet=True, version=4)],
        *[init_producer_id()] * 5,
    ),
    _pipelined(
        "init-producer-id-of-a-new-id",
        [coordinator("@id", 1)],
        *[init_producer_id()] * 3,
    ),
    _pipelined(
        "transaction-of-records",
        _TRANSACTION,
        add_partitions(),
        Ask("Produce", produce_body(_WRITTEN, transactional_id="@id"), version=11),
        end_transaction(True),
    ),
    _pipelined(
        "add-partitions-and-end",
        _TRANSACTION,
        add_partitions(),
        end_transaction(False),
        _soon(add_partitions(), _ADDED, *_PENDING),
    ),
    _pipelined(
        "add-partitions-and-init-producer-id",
        _TRANSACTION,
        add_partitions(),
        init_producer_id(),
        _soon(add_partitions(), _ADDED, *_PENDING),
    ),
    _pipelined(
        "transaction-of-offsets",
        _TRANSACTION,
        add_offsets(),
        commit_in_transaction(),
        end_transaction(True),
        replace(fetch_offsets(None), ignore=("groups.0.topics",)),
    ),
    _pipelined(
        "end-and-init-producer-id",
        [*_TRANSACTION, add_partitions(version=3, quiet=True)],
        end_transaction(True),
        _soon(
            init_producer_id(),
            "error_code",
            *_PENDING,
            ignore=("producer_id", "producer_epoch"),
        ),
    ),
    _pipelined(
        "end-and-add-partitions",
        [*_TRANSACTION, add_partitions(version=3, quiet=True)],
        end_transaction(True),
        _soon(add_partitions(), _ADDED, *_PENDING),
    ),
    _pipelined(
        "add-partitions-and-describe",
        _TRANSACTION,
        add_partitions(),
        Ask(
            "DescribeTransactions",
            {"transactional_ids": ["@id"]},
            ignore=("transaction_states.0.transaction_start_time_ms",),
        ),
    ),
]

SCENARIOS = [*_TOPICS, *_RECORDS, *_GROUPS, *_SHARE, *_TRANSACTIONS]

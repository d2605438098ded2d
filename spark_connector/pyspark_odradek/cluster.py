"""Requests to the cluster: the partitions, their offsets, and their records.

The functions are coroutines; the decisions are in `offsets.py` and `fetching.py`. Every wait has a
limit, and no topic is created.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.group.offset_requests import OFFSET_COMMIT_NEWEST
from odradek_client.consumer.list_offsets import (
    FoundOffsets,
    list_offsets_requests,
    read_list_offsets,
)
from odradek_client.errors import OdradekError, Retriable, error_for
from odradek_client.network.client import NetworkClient
from odradek_client.network.cluster import TOPIC_REFUSALS, PartitionInfo
from odradek_client.structs import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.fetch import (
    FOLLOWERS_SINCE,
    TOPIC_IDS_SINCE,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_odradek import offsets, topic_identity
from pyspark_odradek.errors import OptionsError, SourceError
from pyspark_odradek.offsets import LogBounds
from pyspark_odradek.options import SourceOptions, Subscription
from pyspark_odradek.planning import OffsetRange, Partition
from pyspark_odradek.progress import Survey

_UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
# A retry waits at least this time, because Spark's default of 10 ms is shorter than an election.
_RETRY_MS_MIN = 100
_RETRY_MS_MAX = 1_000
_DOUBLINGS_MAX = 10
#: The size of the fetch from which the bytes per offset are estimated, for `maxBytesPerTrigger`.
_PROBE_BYTES = 65_536
_PROBE_TIMEOUT_MS = 1_000.0
_PROBES_AT_ONCE = 16
_COMMIT_ATTEMPTS = 20


@dataclass(frozen=True)
class BatchPlan:
    """The partitions that a batch reads. `topic_ids`: the topic ids, if the brokers have them;
    `warnings`: texts for the user."""

    ranges: list[OffsetRange]
    topic_ids: dict[str, bytes]
    warnings: list[str]


async def plan(network: NetworkClient, options: SourceOptions) -> BatchPlan:
    """The present range of offsets of every partition.

    Raises SourceError, OptionsError.
    """
    partitions = await find_partitions(network, options)
    problems: list[str] = []
    offsets.check_named(options.start, partitions, options.start_option, problems)
    offsets.check_named(options.end, partitions, options.end_option, problems)
    if problems:
        raise OptionsError(problems)

    async def ask(times: dict[Partition, int]) -> dict[Partition, int | None]:
        return await list_offsets(network, times, options)

    starts, ends, start_found, end_found = await asyncio.gather(
        ask(dict.fromkeys(partitions, offsets.EARLIEST)),
        ask(dict.fromkeys(partitions, offsets.LATEST)),
        ask(offsets.times_to_ask(options.start, partitions)),
        ask(offsets.times_to_ask(options.end, partitions)),
    )
    logs = {each: LogBounds(starts[each] or 0, ends[each] or 0) for each in partitions}
    # A record that has arrived after the request for the ends is not part of the plan.
    for found in (start_found, end_found):
        for each, offset in found.items():
            if offset is not None and offset > logs[each].end:
                found[each] = None
    ranges, warnings = offsets.resolve(
        offsets.Resolution(
            options.start,
            options.end,
            logs,
            start_found,
            end_found,
            options.latest_if_no_record,
            options.fail_on_data_loss,
        )
    )
    topics = {each.topic for each in partitions}
    return BatchPlan(ranges, {each: network.cluster.topic_id(each) for each in topics}, warnings)


async def find_partitions(
    network: NetworkClient, options: SourceOptions, *, missing_ok: bool = False
) -> list[Partition]:
    """The partitions of the subscription, sorted by topic and number.

    If topics or partitions are still missing after 1 + `fetchOffset.numRetries` answers, they are
    left out with `missing_ok`; otherwise SourceError names the missing topics and partitions.
    Transient errors are retried.
    """
    subscription = options.subscription
    patience = Patience(network, options)
    while True:
        await refresh(network, subscription, patience.left_ms)
        missing, passing = _missing(network, subscription)
        if not missing and not passing:
            return _partitions(network, subscription)
        if not await (patience.another_try() if missing else patience.pause()):
            break
    if missing_ok and not passing:
        return _partitions(network, subscription)
    network.cluster.unwant(_topics(subscription))
    servers = ", ".join(network.config.bootstrap_servers)
    raise SourceError(f"odradek: {'; '.join(missing + passing)} (asked {servers})")


class Patience:
    """The limits of the driver's retries.

    Transient errors (an election, a lost broker) are retried for `kafka.default.api.timeout.ms`;
    definite answers of the cluster are retried `fetchOffset.numRetries` times.
    """

    def __init__(self, network: NetworkClient, options: SourceOptions) -> None:
        self._network = network
        self._tries_left = options.num_retries
        self._pauses = 0
        self._first_pause_ms = max(options.retry_interval_ms, _RETRY_MS_MIN)
        self._until_ms = network.now_ms() + network.config.default_api_timeout_ms

    @property
    def left_ms(self) -> float:
        """The remaining time in ms, at least 1."""
        return max(self._until_ms - self._network.now_ms(), 1)

    async def another_try(self) -> bool:
        """Count another attempt, and wait before it. False if no attempt or no time is left."""
        if self._tries_left <= 0:
            return False
        self._tries_left -= 1
        return await self.pause()

    async def pause(self) -> bool:
        """Wait, longer at each call. False, without waiting, if the remaining time is too short."""
        pause_ms = min(self._first_pause_ms * 2**self._pauses, _RETRY_MS_MAX)
        pause_ms = max(pause_ms, self._first_pause_ms)
        if pause_ms >= self.left_ms:
            return False
        self._pauses = min(self._pauses + 1, _DOUBLINGS_MAX)
        await asyncio.sleep(pause_ms / 1000)
        return True


async def refresh(
    network: NetworkClient, subscription: Subscription, timeout_ms: float | None = None
) -> None:
    """Get new metadata of the subscription. Raises SourceError if no broker answers in time."""
    network.cluster.want(_topics(subscription))
    network.cluster.set_all_topics(bool(subscription.pattern))
    if timeout_ms is None:
        timeout_ms = network.config.default_api_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await network.refresh_metadata()
    except TimeoutError:
        servers = ", ".join(network.config.bootstrap_servers)
        raise SourceError(
            f"odradek: no broker of {servers} answered within "
            f"{network.config.default_api_timeout_ms} ms; check kafka.bootstrap.servers, that a broker "
            "runs there, and that the addresses it advertises can be reached from here"
        ) from None


def _topics(subscription: Subscription) -> set[str]:
    return set(subscription.topics) | {each.topic for each in subscription.partitions}


def _missing(network: NetworkClient, subscription: Subscription) -> tuple[list[str], list[str]]:
    """(sentences about missing topics and partitions, sentences about topics with a transient
    error). Raises errors that a retry does not resolve."""
    cluster = network.cluster
    missing, passing = [], []
    for topic in sorted(_topics(subscription)):
        code = cluster.topic_errors.get(topic)
        if code in TOPIC_REFUSALS:
            cluster.unwant([topic])
            raise SourceError(f"odradek: {error_for(code, about=f'topic {topic!r}')}")
        if topic in cluster.topics:
            continue
        if code is None or code in _UNKNOWN_TOPIC or not code.retriable:
            missing.append(f"there is no topic {topic!r}")
        else:
            passing.append(f"{error_for(code, about=f'topic {topic!r}')}")
    for partition in subscription.partitions:
        known = cluster.partitions_of(partition.topic)
        if known is not None and partition.number not in known:
            missing.append(
                f"there is no {partition}; {partition.topic!r} has {len(known)} partitions"
            )
    return missing, passing


def _partitions(network: NetworkClient, subscription: Subscription) -> list[Partition]:
    if subscription.partitions:
        there = network.cluster.partitions_of
        return sorted(
            each for each in subscription.partitions if each.number in (there(each.topic) or ())
        )
    topics = list(subscription.topics)
    if subscription.pattern:
        pattern = re.compile(subscription.pattern)
        topics = [
            name
            for name, info in network.cluster.topics.items()
            if not info.is_internal and pattern.search(name)
        ]
        network.cluster.set_all_topics(False)
        network.cluster.want(topics)
    found = []
    for topic in topics:
        found += [Partition(topic, number) for number in network.cluster.partitions_of(topic) or ()]
    return sorted(found)


def is_read_committed(network: NetworkClient) -> bool:
    """True if the settings of the client have `isolation.level=read_committed`."""
    config = network.config
    assert isinstance(config, ConsumerConfig)
    return config.isolation_level == "read_committed"


async def list_offsets(
    network: NetworkClient,
    times: Mapping[Partition, int],
    options: SourceOptions,
    *,
    read_committed: bool | None = None,
) -> dict[Partition, int | None]:
    """The first offset at or after each time; None if all records are older. EARLIEST and LATEST
    may be given as times.

    LATEST is the last stable offset with `read_committed`, and otherwise the high watermark. If
    `read_committed` is None, the settings decide. SourceError names a partition that does not
    exist, or for which there is no answer in time (`Patience`).
    """
    wanted = {TopicPartition(*partition): time for partition, time in times.items()}
    found: dict[Partition, int | None] = {}
    failure: object = "it has no leader"
    patience = Patience(network, options)
    if read_committed is None:
        read_committed = is_read_committed(network)
    while True:
        answers, failure = await _ask_offsets(network, wanted, failure, read_committed)
        for each, answer in answers.items():
            found[Partition(*each)] = None if answer is None else answer
            del wanted[each]
        if not wanted:
            return found
        gone = [each for each in wanted if network.cluster.partition(*each) is None]
        if not await (patience.another_try() if gone else patience.pause()):
            break
        try:
            await refresh(network, options.subscription, patience.left_ms)
        except SourceError:
            # The message has both errors: that of the offsets request, and that of the refresh.
            failure = f"{failure}, and then no broker returned its leader"
            break
    first = (gone or list(wanted))[0]
    raise SourceError(
        f"odradek: the offsets of {Partition(*first)}"
        f"{f' and {len(wanted) - 1} more' if len(wanted) > 1 else ''} cannot be obtained: "
        + (
            "the cluster says that it is not there"
            if gone
            else f"{failure}, for {network.config.default_api_timeout_ms} ms; "
            "kafka.default.api.timeout.ms sets how long to try"
        )
    )


async def _ask_offsets(
    network: NetworkClient,
    wanted: Mapping[TopicPartition, int],
    failure: object,
    read_committed: bool,
) -> tuple[dict[TopicPartition, int | None], object]:
    """Send one request to each broker. Returns (the offsets found, the last error)."""
    requests, _ = list_offsets_requests(wanted, network.cluster, read_committed=read_committed)
    for request in requests.values():
        request.timeout_ms = network.config.request_timeout_ms
    answers = await asyncio.gather(
        *(network.send(node_id, request) for node_id, request in requests.items()),
        return_exceptions=True,
    )
    into = FoundOffsets()
    for request, answer in zip(requests.values(), answers, strict=True):
        if isinstance(answer, Retriable):
            failure = answer
        elif isinstance(answer, OdradekError):
            raise SourceError(f"odradek: {answer}") from answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            try:
                read_list_offsets(request, answer, into)
            except OdradekError as error:
                raise SourceError(f"odradek: {error}") from error
    if into.retry:
        failure = "its leader has changed"
    found = {each: None if answer is None else answer.offset for each, answer in into.found.items()}
    return found, failure


# --- streams --------------------------------------------------------------------------------------


async def survey(
    network: NetworkClient,
    options: SourceOptions,
    known: Mapping[Partition, int],
    topic_ids: dict[str, str],
) -> Survey:
    """The present state of the subscribed partitions. `known`: the next offset to read of each
    partition that is already being read; `topic_ids`: the last known identities of the topics; this
    function updates the dict.

    Raises SourceError if the leader of a partition does not answer in time (`Patience`).
    """
    partitions = await find_partitions(network, options, missing_ok=not options.fail_on_data_loss)
    recreated = set()
    for topic in {each.topic for each in partitions}:
        found = identity_of(network, topic)
        if topic_identity.is_another(topic_ids.get(topic, ""), found):
            recreated.add(topic)
        topic_ids[topic] = found
    anew = frozenset(each for each in partitions if each.topic in recreated and each in known)
    ends, first = await asyncio.gather(
        list_offsets(network, dict.fromkeys(partitions, offsets.LATEST), options),
        first_offsets(
            network, options, [each for each in partitions if each not in known or each in anew]
        ),
    )
    there = {each: end or 0 for each, end in ends.items()}
    behind = [each for each, end in there.items() if each not in anew and end < known.get(each, 0)]
    return Survey(there | await _read_past_stable(network, options, behind, known), first, anew)


async def _read_past_stable(
    network: NetworkClient,
    options: SourceOptions,
    behind: Iterable[Partition],
    known: Mapping[Partition, int],
) -> dict[Partition, int]:
    """The next offsets to read (`known`) of the partitions in `behind` that have lost no records.

    A stream that has read uncommitted records, and is restarted as read_committed, is ahead of the
    last stable offset while transactions are open. In this case no records are lost, and the stream
    waits for the end of the transactions.
    """
    if not is_read_committed(network):
        return {}
    ends = await list_offsets(
        network, dict.fromkeys(behind, offsets.LATEST), options, read_committed=False
    )
    return {each: known[each] for each, end in ends.items() if (end or 0) >= known[each]}


async def first_offsets(
    network: NetworkClient, options: SourceOptions, partitions: Iterable[Partition]
) -> dict[Partition, int]:
    """The log start offsets of partitions."""
    found = await list_offsets(network, dict.fromkeys(partitions, offsets.EARLIEST), options)
    return {each: start or 0 for each, start in found.items()}


def identity_of(network: NetworkClient, topic: str) -> str:
    """The identity of a topic, from the known metadata."""
    return topic_identity.identity(network.cluster.topic_id(topic), network.cluster.cluster_id)


async def ensure_topic_ids(network: NetworkClient, topics: Collection[str]) -> dict[str, bytes]:
    """The ids of topics, from the known metadata if possible. Raises SourceError if no broker
    answers in time."""
    if any(topic not in network.cluster.topics for topic in topics):
        await refresh(network, Subscription(topics=tuple(topics)))
    return {topic: network.cluster.topic_id(topic) for topic in topics}


async def bytes_per_offset(
    network: NetworkClient, positions: Mapping[Partition, int]
) -> dict[Partition, float]:
    """The bytes per offset in each log from these positions on, measured in the batches of a small
    fetch.

    Partitions for which the broker has no records immediately are left out.
    """
    turns = asyncio.Semaphore(_PROBES_AT_ONCE)

    async def probe(partition: Partition, position: int) -> tuple[Partition, float] | None:
        async with turns:
            try:
                answer = await fetch(
                    network,
                    partition,
                    network.cluster.topic_id(partition.topic),
                    position,
                    _PROBE_TIMEOUT_MS,
                    max_bytes=_PROBE_BYTES,
                )
            except OdradekError:
                return None
        size = following = 0
        for _, header in iter_batches(answer.records or b""):
            size += header.size_bytes
            following = header.next_offset
        return (partition, size / (following - position)) if following > position else None

    probes = await asyncio.gather(*(probe(*each) for each in positions.items()))
    return dict(filter(None, probes))


async def commit_progress(
    network: NetworkClient, group: str, progress: Mapping[Partition, int]
) -> None:
    """Commit offsets for a group, without being a member of it. Raises OdradekError."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, offset in progress.items():
        topics.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.number, committed_offset=offset, committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(name=each, partitions=parts) for each, parts in topics.items()
        ],
    )
    for attempt in range(_COMMIT_ATTEMPTS):
        if attempt:
            await asyncio.sleep(_RETRY_MS_MIN / 1000)
        try:
            await _commit(network, request)
        except Retriable as error:
            # The coordinator, or the topic of committed offsets, may not be ready yet.
            network.forget_coordinator(group)
            failure = error
        else:
            return
    raise failure


async def _commit(network: NetworkClient, request: OffsetCommitRequest) -> None:
    node_id = await network.find_coordinator(request.group_id)
    response = await network.send(node_id, request, max_version=OFFSET_COMMIT_NEWEST)
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code:
                raise error_for(answer.error_code, about=f"offsets of group {request.group_id!r}")


# --- fetching -------------------------------------------------------------------------------------


async def fetch(
    network: NetworkClient,
    partition: Partition,
    topic_id: bytes,
    offset: int,
    timeout_ms: float,
    *,
    wait: bool = True,
    max_bytes: int | None = None,
) -> PartitionData:
    """Fetch once from the partition's leader. Raises Retriable and other OdradekErrors.

    With a topic id, the fetch fails if the planned topic was deleted and created again. Without
    `wait` the broker answers immediately, even if there is no record from `offset` on.
    """
    info = await _leader(network, partition, timeout_ms)
    assert info.leader is not None
    config = network.config
    assert isinstance(config, ConsumerConfig)
    partition_max_bytes = max_bytes or config.max_partition_fetch_bytes
    request = FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms if wait else 0,
        min_bytes=max(config.fetch_min_bytes, 1) if wait else 0,
        max_bytes=max(config.fetch_max_bytes, partition_max_bytes),
        isolation_level=int(is_read_committed(network)),
        topics=[
            FetchTopic(
                topic=partition.topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition.number,
                        current_leader_epoch=info.leader_epoch,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
        ],
    )
    newest = (TOPIC_IDS_SINCE if topic_id == ZERO_UUID else FOLLOWERS_SINCE) - 1
    response: FetchResponse = await network.send(
        info.leader,
        request,
        channel="fetch",
        max_version=newest,
        timeout_ms=min(config.request_timeout_ms, timeout_ms),
    )
    if response.error_code:
        raise error_for(response.error_code, about=f"fetch of {partition}")
    for topic in response.responses:
        for answer in topic.partitions:
            if answer.partition_index == partition.number:
                return answer
    raise Retriable(f"the broker's answer does not mention {partition}")


def error_of(answer: PartitionData, partition: Partition) -> OdradekError:
    """The exception for an error code about a partition."""
    return error_for(answer.error_code, about=f"fetch of {partition}")


async def _leader(network: NetworkClient, partition: Partition, timeout_ms: float) -> PartitionInfo:
    info = network.cluster.partition(*partition)
    if info is None or info.leader is None:
        network.cluster.want([partition.topic])
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await network.refresh_metadata()
        except TimeoutError:
            raise Retriable("no broker answers") from None
        info = network.cluster.partition(*partition)
    if info is None or info.leader is None:
        code = network.cluster.topic_errors.get(partition.topic)
        if code:
            raise error_for(code, about=f"topic {partition.topic!r}")
        raise Retriable(f"{partition} has no leader")
    return info

"""Requests of other brokers about the stored states of share partitions (keys 83 to 87).

Each of the five APIs names share partitions of one group, and is answered with an error for each
partition (H-110). If a request names a share partition twice, both entries are carried out, and the
answer has the result of the last one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from odradek_broker.coordinator.share.coordinator import ShareCoordinator
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.share_state import ShareKey, ShareState, StateResult
from odradek_broker.slices import asked, each_once, in_sorted_order, let_go, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple

#: Kafka's texts for the errors of a coordinator.
_COORDINATOR_ERRORS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (
        "The coordinator is loading and hence can't process requests."
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
}


class ShareStateParts(MetadataParts, Protocol):
    """The authorizer, the cluster metadata, and the stored state of share partitions."""

    @property
    def share_state(self) -> ShareCoordinator: ...


class _Partition(Protocol):
    @property
    def partition(self) -> int: ...


P = TypeVar("P", bound=_Partition)
T = TypeVar("T")
_Results = list[tuple[bytes, list[tuple[int, StateResult]]]]


class Answer(NamedTuple, Generic[T]):
    """The answer of one API. `doing`: the name of the action in error messages; `topic` and
    `partition`: the structs of the answer; `state`: the fields of a partition that has a state.
    With `needs_partitions`, the answer is empty if a topic has no partitions.
    """

    doing: str
    topic: Callable[..., T]
    partition: Callable[..., Any]
    state: Callable[[ShareState], Awaitable[dict[str, Any]]] | None = None
    needs_partitions: bool = True


async def ask_each(
    node: ShareStateParts,
    context: RequestContext,
    group_id: str,
    topics: Sequence[tuple[bytes, Sequence[P]]],
    ask: Callable[[ShareKey, P], Deferred[StateResult]],
    answer: Answer[T],
) -> list[T]:
    """The results of all share partitions that a request names, when all results are known. As in
    Kafka, the answer is empty if the request has no group id or no topics."""

    async def shown(results: list[tuple[int, StateResult]]) -> list[Any]:
        made = [
            answer.partition(
                partition=index,
                error_code=result.error,
                error_message=result.message,
                **(await answer.state(result.state) if answer.state and result.state else {}),
            )
            async for index, result in paced(results)
        ]
        await let_go(results)
        return made

    found = await _ask_each(node, context, group_id, topics, ask, answer)
    return [
        answer.topic(topic_id=topic_id, partitions=await shown(results))
        async for topic_id, results in paced(found)
    ]


async def _ask_each(
    node: ShareStateParts,
    context: RequestContext,
    group_id: str,
    topics: Sequence[tuple[bytes, Sequence[P]]],
    ask: Callable[[ShareKey, P], Deferred[StateResult]],
    answer: Answer[Any],
) -> _Results:
    if not node.authorizer.allows(context, Operation.CLUSTER_ACTION, CLUSTER):
        refused = StateResult(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
        )
        return await _refused(topics, refused)
    without_partitions = [topic_id for topic_id, partitions in topics if not partitions]
    if not group_id or (answer.needs_partitions and without_partitions):
        return []
    # After this error the sender sends FindCoordinator, which creates the topic.
    no_topic = Deferred.of(StateResult(ErrorCode.NOT_COORDINATOR))
    has_topic = node.metadata.partition_count(SHARE_STATE_TOPIC) > 0
    wanted = [
        (ShareKey(group_id, topic_id, each.partition), each)
        async for topic_id, partitions in paced(topics)
        async for each in paced(partitions)
    ]
    answers = await asked(wanted, lambda pair: ask(*pair) if has_topic else no_topic, changing=True)
    found: dict[bytes, dict[int, StateResult]] = {}
    results = iter(answers)
    async for key, _ in paced(wanted):
        result = _explained(next(results), answer.doing)
        found.setdefault(key.topic_id, {})[key.partition] = result
    ordered: _Results = []
    async for topic_id, by_index in paced(found.items()):
        indexes = await in_sorted_order(by_index)
        ordered.append((topic_id, [(each, by_index[each]) async for each in paced(indexes)]))
        await let_go(by_index)
    await let_go(answers, wanted)
    return ordered


async def _refused(topics: Iterable[tuple[bytes, Sequence[P]]], result: StateResult) -> _Results:
    refused: _Results = []
    async for topic_id, partitions in paced(topics):
        indexes = await each_once(each.partition for each in partitions)
        refused.append((topic_id, [(index, result) async for index in paced(indexes)]))
    return refused


def _explained(result: StateResult, doing: str) -> StateResult:
    """The result. An error without a message gets a text that names the failed action."""
    if result.error is ErrorCode.NONE or result.message is not None:
        return result
    text = _COORDINATOR_ERRORS.get(result.error, result.error.name)
    return result._replace(message=f"Unable to {doing}: {text}")

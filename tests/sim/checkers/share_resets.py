"""Observes requests that reset share partitions of a group, or delete their states, for
`ShareDeliveries`.

Until such a request is answered, it is open whether a delivery belongs to the state before or after
the reset. When the request is answered, the new state must be as if no record had ever been
delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.sim.checkers.share_deliveries import Place, ShareDeliveries
from tests.sim.checkers.share_messages import observe
from tests.sim.checkers.share_states import stored_states

from odradek_broker.server.server import Server
from odradek_broker.share_state import ShareKey
from odradek_protocol.constants import NO_OFFSET
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from odradek_protocol.schemas.delete_groups import DeleteGroupsResponse
from odradek_protocol.schemas.delete_share_group_offsets import DeleteShareGroupOffsetsResponse

#: Share partition -> the start offset to which a request resets it. The offset is 0 if the request
#: deletes the state, because the group then begins with the first record.
Starts = Mapping[Place, int]

_ASKED: dict[ApiKey, Callable[[ShareResets, Server, Any], Starts]] = {
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda self, server, request: {
        Place(server.node.metadata.topic_id(topic.topic_name), each.partition_index): (
            each.start_offset
        )
        for topic in request.topics
        if server.node.metadata.partition_count(topic.topic_name)
        for each in topic.partitions
    },
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda self, server, request: {
        place: 0 for topic in request.topics for place in _places(server, topic.topic_name)
    },
    ApiKey.DELETE_GROUPS: lambda self, server, request: dict.fromkeys(self.known(server), 0),
}


class ShareResets:
    """Observes resets of one group. After each start of the broker, call `begin` before the broker
    gets a request.

    `topics`: the topics for whose partitions the group may have states.
    """

    def __init__(
        self,
        group_id: str,
        topics: tuple[str, ...],
        deliveries: ShareDeliveries,
        now_ms: Callable[[], float],
        violated: Callable[[str], None],
    ) -> None:
        self._group_id = group_id
        self._topics = topics
        self._deliveries = deliveries
        self._now_ms = now_ms
        self._violated = violated
        self._server: Server | None = None
        #: For each share partition: the number of unanswered requests that name this partition.
        self._asked: Counter[Place] = Counter()
        self._starts: dict[Place, int] = {}
        self._changed: set[Place] = set()

    def begin(self, server: Server) -> None:
        """Observe a broker that was just started.

        Requests that the broker left unanswered when it ended may have been carried out.
        """
        self._server = server
        for place in list(self._asked.elements()):
            self._deliveries.begun_anew(place, self._starts[place], self._now_ms(), sure=False)
        self._asked.clear()
        for key in _ASKED:
            observe(server, key, partial(self._observed, server, key))

    def known(self, server: Server) -> set[Place]:
        """All share partitions of which the group may have a state."""
        stored = {Place(*key[1:]) for key in stored_states(server.node, self._group_id)}
        places = {place for topic in self._topics for place in _places(server, topic)}
        return stored | places | set(self._deliveries.records)

    def take_changed(self) -> set[ShareKey]:
        """The share partitions that may have been reset since the last call."""
        changed = self._changed | set(+self._asked)
        self._changed = set()
        return {ShareKey(self._group_id, *place) for place in changed}

    def _observed(
        self, server: Server, key: ApiKey, handle: Callable[..., Any]
    ) -> Callable[..., Any]:
        def observed(node: Any, context: Any, request: Any) -> Any:
            named = getattr(request, "group_id", self._group_id)
            if named != self._group_id or server is not self._server:
                return handle(node, context, request)
            starts = _ASKED[key](self, server, request)
            for place, start in starts.items():
                self._deliveries.reset_asked(place)
                self._asked[place] += 1
                self._starts[place] = start
            at_once = True

            def answered(answer: Any) -> None:
                if server is self._server:
                    for place, start in starts.items():
                        self._answered(server, answer, place, start, at_once=at_once)

            reply = handle(node, context, request)
            reply.then(answered) if hasattr(reply, "then") else answered(reply)
            at_once = False
            return reply

        return observed

    def _answered(
        self, server: Server, answer: Any, place: Place, start_offset: int, *, at_once: bool
    ) -> None:
        self._asked[place] -= 1
        self._changed.add(place)
        code = _code_of(answer, place, self._group_id)
        if code == ErrorCode.NONE:
            if not self._deliveries.is_touched(place):
                altered = isinstance(answer, AlterShareGroupOffsetsResponse)
                self._check_stored(server, place, start_offset if altered else NO_OFFSET)
            self._deliveries.begun_anew(place, start_offset, self._now_ms())
        elif at_once:
            self._deliveries.reset_refused(place)
        else:
            self._deliveries.begun_anew(place, start_offset, self._now_ms(), sure=False)

    def _check_stored(self, server: Server, place: Place, start_offset: int) -> None:
        """Check that nothing of the earlier state is stored any more."""
        key = ShareKey(self._group_id, *place)
        state = stored_states(server.node, self._group_id).get(key)
        if state is None and start_offset == NO_OFFSET:
            return
        if state is None or state.start_offset != start_offset or state.batches:
            self._violated(f"{place} was begun anew at offset {start_offset}, and has {state}")


def _places(server: Server, topic: str) -> list[Place]:
    metadata = server.node.metadata
    count = metadata.partition_count(topic)
    return [Place(metadata.topic_id(topic), index) for index in range(count)]


def _code_of(answer: Any, place: Place, group_id: str) -> int:
    """The error code for a share partition in a response."""
    if isinstance(answer, DeleteGroupsResponse):
        return next(each.error_code for each in answer.results if each.group_id == group_id)
    if answer.error_code:
        return int(answer.error_code)
    codes: dict[Place, int] = {}
    for topic in answer.responses:
        if isinstance(answer, DeleteShareGroupOffsetsResponse):
            codes[place._replace(topic_id=topic.topic_id)] = topic.error_code
        else:
            for each in topic.partitions:
                codes[Place(topic.topic_id, each.partition_index)] = each.error_code
    return codes.get(place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

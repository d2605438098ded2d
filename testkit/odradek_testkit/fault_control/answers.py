"""The names in a request or an answer, and the error answer of every API.

An error answer has one code for each part of the request, or one for the whole request. If the
answer has no field for a code, the connection is closed instead: for DescribeLogDirs before version
3, and for Produce with acks=0, which has no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odradek_broker.request import CloseConnection
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import Api, ApiKey
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.message import ArrayOf, FieldSpec, Message, Struct, Versions
from odradek_protocol.schemas.describe_topic_partitions import DescribeTopicPartitionsResponse
from odradek_protocol.schemas.fetch import FetchResponse, PartitionData
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.metadata import MetadataResponse
from odradek_protocol.schemas.share_acknowledge import ShareAcknowledgeRequest
from odradek_protocol.schemas.share_fetch import ShareFetchRequest
from odradek_testkit.fault_control.rules import Named

TopicName = Callable[[bytes], str | None]

#: Fields that hold one or several group ids, in the messages of all APIs.
_GROUPS = ("group_id", "group_ids", "groups_names", "groups")
_TRANSACTIONAL_IDS = (
    "transactional_id",
    "transactional_ids",
    "v3_and_below_transactional_id",
    "transactions",
)
_TOPICS = ("topics", "topic_data", "topic_names", "v3_and_below_topics", "responses")
_PARTITIONS = ("partitions", "partition_data", "partition_indexes")
_INDEX = ("index", "partition_index", "partition")
_KEY_TYPE_GROUP = 0
_KEY_TYPE_TRANSACTION = 1


def topic_of(element: Any, topic_name: TopicName) -> str | None:
    """The topic of a part of a message, found by the topic's name or id."""
    if isinstance(element, str):
        return element
    name: str | None = getattr(element, "name", None) or getattr(element, "topic", None)
    if name:
        return name
    topic_id = getattr(element, "topic_id", None)
    return topic_name(topic_id) if topic_id else None


def partition_of(element: Any) -> int | None:
    """The index of a part of a message about one partition."""
    if isinstance(element, int):
        return element
    if isinstance(element, str):
        return None
    for name in _INDEX:
        if (index := getattr(element, name, None)) is not None:
            return int(index)
    return None


def named_in(message: Message, topic_name: TopicName) -> Named:
    """The names in a message. `topic_name` returns the name of a topic id, None if the id is
    unknown."""
    groups = frozenset(_texts(message, _GROUPS, "group_id"))
    ids = frozenset(_texts(message, _TRANSACTIONAL_IDS, "transactional_id"))
    if isinstance(message, FindCoordinatorRequest):
        keys = frozenset((*message.coordinator_keys, message.key)) - {""}
        groups = keys if message.key_type == _KEY_TYPE_GROUP else frozenset()
        ids = keys if message.key_type == _KEY_TYPE_TRANSACTION else frozenset()
    return Named(
        frozenset(_partitions(message, topic_name)),
        groups,
        ids,
        frozenset(_acknowledged(message, topic_name)),
    )


def _texts(message: Any, names: tuple[str, ...], inner: str) -> Iterator[str]:
    for name in names:
        held = getattr(message, name, None)
        for each in held if isinstance(held, list) else [held]:
            text = each if isinstance(each, str) else getattr(each, inner, None)
            if text:
                yield text


def _partitions(message: Any, topic_name: TopicName) -> Iterator[tuple[str, int]]:
    for part in (
        message,
        *_structs(getattr(message, "groups", None)),
        *_structs(getattr(message, "transactions", None)),
    ):
        for name in _TOPICS:
            for element in _listed(getattr(part, name, None)):
                topic = topic_of(element, topic_name)
                if topic is not None:
                    for index in list(_indexes(element)) or [-1]:
                        yield topic, index


def _acknowledged(message: Message, topic_name: TopicName) -> Iterator[tuple[str, int]]:
    if isinstance(message, ShareFetchRequest | ShareAcknowledgeRequest):
        for topic in message.topics:
            name = topic_name(topic.topic_id)
            for partition in topic.partitions:
                if name is not None and partition.acknowledgement_batches:
                    yield name, partition.partition_index


def _indexes(element: Any) -> Iterator[int]:
    for name in _PARTITIONS:
        for part in _listed(getattr(element, name, None)):
            if (index := partition_of(part)) is not None:
                yield index


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _structs(value: Any) -> list[Any]:
    return [each for each in _listed(value) if not isinstance(each, str)]


#: True if a fault applies to this topic and partition; None for a topic or a partition that the
#: request does not name.
Chooses = Callable[[str | None, int | None], bool]

#: APIs whose request does not name all topics and partitions of the answer: a fetch in a session
#: names only changes, and a request for metadata or descriptions may be for all topics. The answer
#: is made first, and errors are then put into it.
ANSWERED_FIRST = frozenset({ApiKey.FETCH, ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS})


class _Part(NamedTuple):
    """A list in a request, and the list in the answer that has a row for each element. `asked` is
    the name of the request's list, `answered` the name of the answer's list.

    `names`: pairs (field of the answer's row, field of the request's element). The first field gets
    the value of the second; if the second is "", it gets the element itself.
    """

    asked: str
    answered: str
    names: tuple[tuple[str, str], ...]
    inner: _Part | None = None
    versions: Versions = Versions.parse("0+")
    code: str = "error_code"
    #: True if the elements are topics, so that a fault may apply to only some of them.
    of_topics: bool = False
    #: True if the answer has no rows for these elements, but only rows for the elements of `inner`.
    flat: bool = False


def _since(first: int) -> Versions:
    return Versions.parse(f"{first}+")


def _before(first: int) -> Versions:
    return Versions.parse(f"0-{first - 1}")


def _topics(inner: _Part | None, asked: str = "topics", answered: str = "topics") -> _Part:
    return _Part(asked, answered, (("name", "name"),), inner, of_topics=True)


_WITH_ID = (("name", "name"), ("topic_id", "topic_id"))
_INDEXES = _Part("partitions", "partitions", (("partition_index", "partition_index"),))
_PLAIN_INDEXES = _Part("partition_indexes", "partitions", (("partition_index", ""),))
_GROUP_IDS = _Part("group_ids", "groups", (("group_id", ""),))
#: The requests about stored states of share partitions.
_STATES = _Part(
    "topics",
    "results",
    (("topic_id", "topic_id"),),
    _Part("partitions", "partitions", (("partition", "partition"),)),
    of_topics=True,
)
_RESOURCES = (("resource_type", "resource_type"), ("resource_name", "resource_name"))

#: The parts of each API whose answer has several codes. All other APIs have one code for the whole
#: answer.
_PARTS: dict[ApiKey, tuple[_Part, ...]] = {
    ApiKey.PRODUCE: (
        _topics(
            _Part("partition_data", "partition_responses", (("index", "index"),)),
            "topic_data",
            "responses",
        )._replace(names=_WITH_ID),
    ),
    ApiKey.LIST_OFFSETS: (_topics(_INDEXES),),
    ApiKey.OFFSET_COMMIT: (_topics(_INDEXES)._replace(names=_WITH_ID),),
    ApiKey.TXN_OFFSET_COMMIT: (_topics(_INDEXES),),
    ApiKey.OFFSET_FETCH: (
        _Part("groups", "groups", (("group_id", "group_id"),), versions=_since(8)),
        _topics(_PLAIN_INDEXES)._replace(versions=_before(2)),
    ),
    ApiKey.FIND_COORDINATOR: (
        _Part("coordinator_keys", "coordinators", (("key", ""),), versions=_since(4)),
    ),
    ApiKey.DESCRIBE_GROUPS: (_Part("groups", "groups", (("group_id", ""),)),),
    ApiKey.CREATE_TOPICS: (_topics(None),),
    ApiKey.DELETE_TOPICS: (
        _topics(None, "topics", "responses")._replace(names=_WITH_ID, versions=_since(6)),
        _topics(None, "topic_names", "responses")._replace(
            names=(("name", ""),), versions=_before(6)
        ),
    ),
    ApiKey.DELETE_RECORDS: (_topics(_INDEXES),),
    ApiKey.APPEND_MIRROR_RECORDS: (_topics(_INDEXES),),
    ApiKey.PROMOTE_MIRROR_TOPICS: (
        _topics(None, "topics", "topics")._replace(names=(("name", ""),)),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        _Part(
            "topics",
            "topics",
            (("topic", "topic"),),
            _Part("partitions", "partitions", (("partition", "partition"),)),
            of_topics=True,
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _topics(
            _Part(
                "partitions",
                "results_by_partition",
                (("partition_index", ""),),
                code="partition_error_code",
            ),
            "v3_and_below_topics",
            "results_by_topic_v3_and_below",
        )._replace(versions=_before(4)),
    ),
    ApiKey.WRITE_TXN_MARKERS: (
        _Part("markers", "markers", (("producer_id", "producer_id"),), _topics(_PLAIN_INDEXES)),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        _Part(
            "dirs",
            "results",
            (),
            _Part(
                "topics",
                "results",
                (("topic_name", "name"),),
                _PLAIN_INDEXES._replace(asked="partitions"),
                of_topics=True,
            ),
            flat=True,
        ),
    ),
    ApiKey.DESCRIBE_CONFIGS: (_Part("resources", "results", _RESOURCES),),
    ApiKey.ALTER_CONFIGS: (_Part("resources", "responses", _RESOURCES),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_Part("resources", "responses", _RESOURCES),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_Part("entries", "entries", (("entity", "entity"),)),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (_Part("upsertions", "results", (("user", "name"),)),),
    ApiKey.CREATE_ACLS: (_Part("creations", "results", ()),),
    ApiKey.DELETE_ACLS: (_Part("filters", "filter_results", ()),),
    ApiKey.CREATE_PARTITIONS: (_topics(None, "topics", "results"),),
    ApiKey.DELETE_GROUPS: (_Part("groups_names", "results", (("group_id", ""),)),),
    ApiKey.OFFSET_DELETE: (),
    ApiKey.DESCRIBE_PRODUCERS: (_topics(_PLAIN_INDEXES),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _Part("transactional_ids", "transaction_states", (("transactional_id", ""),)),
    ),
    ApiKey.ELECT_LEADERS: (
        _Part(
            "topic_partitions",
            "replica_election_results",
            (("topic", "topic"),),
            _Part("partitions", "partition_result", (("partition_id", ""),)),
            versions=_before(1),
            of_topics=True,
        ),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_GROUP_IDS,),
    ApiKey.SHARE_GROUP_DESCRIBE: (_GROUP_IDS,),
    ApiKey.STREAMS_GROUP_DESCRIBE: (_GROUP_IDS,),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (_Part("groups", "groups", (("group_id", "group_id"),)),),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (_STATES,),
    ApiKey.READ_SHARE_GROUP_STATE: (_STATES,),
    ApiKey.WRITE_SHARE_GROUP_STATE: (_STATES,),
    ApiKey.DELETE_SHARE_GROUP_STATE: (_STATES,),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (_STATES,),
}


class ErrorAnswer(NamedTuple):
    """The answer to a request that was refused in part or as a whole.

    `answer`: the message with the errors. `parts`: the name of the answer's list with the errors;
    None if the answer has one code. `rest`: true if a part of the request was not refused.
    """

    answer: Message
    parts: str | None
    rest: bool


def refuse(
    api: Api,
    version: int,
    request: Message,
    code: ErrorCode,
    text: str,
    chooses: Chooses,
    topic_name: TopicName,
) -> ErrorAnswer:
    """The error answer to the topics or partitions of a request that `chooses` selects.

    The selected topics or partitions are removed from the request. Raises CloseConnection if the
    answer has no field for a code.
    """
    if api.key is ApiKey.PRODUCE and getattr(request, "acks", None) == 0:
        raise CloseConnection(text)
    answer = api.response()
    for part in _PARTS.get(api.key, ()):
        if version in part.versions:
            maker = _Maker(version, code, text, chooses, topic_name)
            rows, kept = maker.rows(part, request, type(answer))
            setattr(answer, part.answered, rows)
            setattr(request, part.asked, kept)
            return ErrorAnswer(answer, part.answered, bool(kept))
    if not _set(answer, version, "error_code", code):
        raise CloseConnection(text)
    _set(answer, version, "error_message", text)
    return ErrorAnswer(answer, None, False)


class _Maker:
    def __init__(
        self, version: int, code: ErrorCode, text: str, chooses: Chooses, topic_name: TopicName
    ) -> None:
        self._version = version
        self._code = code
        self._text = text
        self._chooses = chooses
        self._topic_name = topic_name

    def rows(
        self, part: _Part, asked: Any, answer: type[Struct], about: tuple[str | None] | None = None
    ) -> tuple[list[Struct], list[Any]]:
        """(the answer's rows with errors, the request's elements that are not refused).

        `about`: a tuple with the topic of the elements, or with None if the topic's name is
        unknown; None instead of a tuple for elements that belong to no topic.
        """
        row_type = _element_of(answer, part.answered)
        rows: list[Struct] = []
        kept: list[Any] = []
        for element in getattr(asked, part.asked) or ():
            if part.of_topics:
                about = (topic_of(element, self._topic_name),)
            if part.inner is not None:
                inner_answer = answer if part.flat else row_type
                inner, inner_kept = self.rows(part.inner, element, inner_answer, about)
                if inner_kept:
                    setattr(element, part.inner.asked, inner_kept)
                    kept.append(element)
                if part.flat:
                    rows += inner
                    continue
                if not inner:
                    continue
                row = self._row(part, row_type, element)
                setattr(row, part.inner.answered, inner)
            elif about is not None and not self._chooses(about[0], partition_of(element)):
                kept.append(element)
                continue
            else:
                row = self._row(part, row_type, element)
                _set(row, self._version, part.code, self._code)
                _set(row, self._version, "error_message", self._text)
            rows.append(row)
        return rows, kept

    def _row(self, part: _Part, row_type: type[Struct], element: Any) -> Struct:
        row = row_type()
        for target, source in part.names:
            _set(row, self._version, target, getattr(element, source) if source else element)
        return row


def _field(cls: type[Struct], name: str) -> FieldSpec | None:
    return next((spec for spec in cls.fields if spec.name == name), None)


def _element_of(cls: type[Struct], name: str) -> type[Struct]:
    spec = _field(cls, name)
    assert spec is not None and isinstance(spec.type, ArrayOf)
    assert isinstance(spec.type.element, type) and issubclass(spec.type.element, Struct)
    return spec.type.element


def _set(row: Struct, version: int, name: str, value: Any) -> bool:
    """Set a field; False if this version does not have the field."""
    spec = _field(type(row), name)
    if spec is None or version not in spec.versions:
        return False
    setattr(row, name, value)
    return True


def spoil(answer: Message, code: ErrorCode, chooses: Chooses, topic_name: TopicName) -> None:
    """Put an error into the topics or partitions that `chooses` selects in an answer.

    The answer is to Fetch, Metadata or DescribeTopicPartitions.
    """
    if isinstance(answer, FetchResponse):
        for fetched in answer.responses:
            name = topic_of(fetched, topic_name)
            fetched.partitions = [
                PartitionData(
                    partition_index=each.partition_index,
                    error_code=code,
                    high_watermark=-1,
                    records=b"",
                )
                if chooses(name, each.partition_index)
                else each
                for each in fetched.partitions
            ]
    elif isinstance(answer, MetadataResponse | DescribeTopicPartitionsResponse):
        for topic in answer.topics:
            if chooses(topic_of(topic, topic_name), None):
                topic.error_code, topic.partitions = code, []

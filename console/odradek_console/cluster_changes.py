"""The changes of topics and transactions that pages can order: a topic created or deleted, a
transaction aborted."""

from __future__ import annotations

from odradek_client.admin import NewTopic
from odradek_client.admin.history import Subject
from odradek_client.structs import TopicPartition
from odradek_console.answers import HttpProblem, Json
from odradek_console.changes import PageChange, text_of, whole_of
from odradek_console.histories import history_of
from odradek_console.sessions import ConsoleSession
from odradek_protocol.primitives import uuid_text
from odradek_records.lag import end_offsets

_PARTITIONS_MAX = 10_000
_SETTINGS_MAX = 100
_NAME_MAX = 249
#: The maximum number of a transaction's partitions that a plan names.
_SHOWN_MAX = 20


def _new_topic(sent: Json) -> NewTopic:
    settings = sent.get("settings", {})
    if (
        not isinstance(settings, dict)
        or len(settings) > _SETTINGS_MAX
        or not all(isinstance(each, str) for each in settings.values())
    ):
        most = f"at most {_SETTINGS_MAX} texts by their names"
        raise HttpProblem(400, f"The field settings must be an object of {most}")
    partitions = whole_of(sent, "partitions", most=_PARTITIONS_MAX)
    replicas = whole_of(sent, "replicas", most=2**15 - 1)
    return NewTopic(
        text_of(sent, "topic", most=_NAME_MAX),
        partitions=-1 if partitions is None else partitions,
        replication_factor=-1 if replicas is None else replicas,
        configs=settings,
    )


async def _plan_creation(session: ConsoleSession, sent: Json) -> Json:
    topic = _new_topic(sent)
    made = (await (await session.admin()).create_topics(topic, validate_only=True))[topic.name]
    return {
        "topic": topic.name,
        "partitions": made.partitions if made.partitions >= 0 else None,
        "replicas": made.replication_factor if made.replication_factor >= 0 else None,
        "settings": dict(topic.configs),
    }


async def _act_creation(session: ConsoleSession, sent: Json, _plan: Json) -> Json:
    topic = _new_topic(sent)
    await (await session.admin()).create_topics(topic)
    return {"text": f"Created topic {topic.name}"}


async def _plan_topic_deletion(session: ConsoleSession, sent: Json) -> Json:
    name = text_of(sent, "topic", most=_NAME_MAX)
    admin = await session.admin()
    found = (await admin.describe_topics(name))[name]
    if found.is_internal:
        raise HttpProblem(422, "Internal topics cannot be deleted here", name)
    # The confirmation repeats the number that was seen, since producers may go on writing.
    offsets = whole_of(sent, "offsets")
    if offsets is None:
        places = [
            TopicPartition(name, each.partition) for each in found.partitions[:_PARTITIONS_MAX]
        ]
        starts = await admin.list_offsets(dict.fromkeys(places, "earliest"))
        ends = await end_offsets(admin, starts)
        offsets = sum(
            max(ends[place] - start.offset, 0)
            for place, start in starts.items()
            if start is not None and place in ends
        )
    return {
        "topic": name,
        "topic_id": uuid_text(found.topic_id),
        "partitions": len(found.partitions),
        "offsets": offsets,
        "send": {"topic": name, "offsets": offsets},
    }


async def _act_topic_deletion(session: ConsoleSession, _sent: Json, planned: Json) -> Json:
    await (await session.admin()).delete_topics(planned["topic"])
    return {"text": f"Deleted topic {planned['topic']}"}


async def _plan_abort(session: ConsoleSession, sent: Json) -> Json:
    name = text_of(sent, "id")
    found = (await (await session.admin()).describe_transactions(name))[name]
    if found.state != "Ongoing":
        raise HttpProblem(409, "The transaction cannot be aborted", f"Its state is {found.state}.")
    told = await history_of(session, Subject.TRANSACTIONAL_ID, name)
    return {
        "id": name,
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "start_ms": found.start_ms,
        "has_timeout": found.has_timeout,
        "client_gone": any("gone" in state["details"] for state in told["states"]),
        "partitions": len(found.partitions),
        "first": sorted(f"{tp.topic}-{tp.partition}" for tp in found.partitions)[:_SHOWN_MAX],
    }


async def _act_abort(session: ConsoleSession, _sent: Json, planned: Json) -> Json:
    await (await session.admin()).abort_transaction(planned["id"])
    return {"text": f"Aborted the transaction of {planned['id']}"}


CHANGES = {
    "/change/topic-creation": PageChange(_plan_creation, _act_creation),
    "/change/topic-deletion": PageChange(_plan_topic_deletion, _act_topic_deletion),
    "/change/abort": PageChange(_plan_abort, _act_abort),
}

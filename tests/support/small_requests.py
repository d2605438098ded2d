"""Small requests of every API: made from the declarations with at most one element in each array,
and those that ask about everything a broker has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crowded_broker import WIDE, name_of
from large_requests import CountedBroker
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import ArrayOf, Message
from odradek_protocol.primitives import WireType
from odradek_protocol.schemas.create_acls import AclCreation, CreateAclsRequest
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.delete_groups import DeleteGroupsRequest
from odradek_protocol.schemas.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from odradek_protocol.schemas.describe_history import (
    MIRROR,
    PARTITION,
    PRODUCER_ID,
    DescribeHistoryRequest,
)
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.list_transactions import ListTransactionsRequest

#: How arrays and nullable fields are filled: with nothing, with null, or with one element.
FORMS = ("empty", "null", "one")


def small_requests(
    key: ApiKey, version: int, topic_ids: dict[str, bytes], numbers: tuple[int, ...]
) -> Iterator[Message]:
    """Small requests of an API. `topic_ids`: the ids of topics by name; each name is once in all
    texts, and its id in all ids. `numbers`: each is once in all numbers, which are types of
    resources, sections, filters and so on."""
    for form in FORMS:
        for number in numbers:
            for name, topic_id in topic_ids.items():
                made: Message = _Filler(version, name, topic_id, number, form).filled(
                    APIS[key].request
                )
                yield made


class _Filler:
    def __init__(self, version: int, name: str, topic_id: bytes, number: int, form: str) -> None:
        self._version = version
        self._name = name
        self._topic_id = topic_id
        self._number = number
        self._form = form

    def filled(self, cls: Any) -> Any:
        made = cls()
        for spec in cls.fields:
            if self._version not in spec.versions:
                continue
            if self._version in spec.nullable and self._form != "one":
                value = None
            elif isinstance(spec.type, ArrayOf):
                value = [] if self._form == "empty" else [self._value(spec.type.element)]
            else:
                value = self._value(spec.type)
            setattr(made, spec.name, value)
        return made

    def _value(self, kind: Any) -> Any:
        if not isinstance(kind, WireType):
            return self.filled(kind)
        if kind.name == "string":
            return self._name
        if kind.name == "uuid":
            return self._topic_id
        if kind.name in ("bytes", "records"):
            return b""
        if kind.name == "bool":
            return self._number % 2 == 0
        if kind.name == "float64":
            return float(self._number)
        return max(self._number, 0) if kind.name == "uint16" else self._number


def requests_about_everything(broker: CountedBroker) -> Iterator[Message]:
    """Requests whose work grows with what the broker has, and that need more than equal fields. The
    last ones delete."""
    yield CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    )
    yield CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=AclResourceType.TOPIC,
                resource_name="new",
                resource_pattern_type=PatternType.PREFIXED,
                principal="User:nobody",
                host="*",
                operation=AclOperation.READ,
                permission_type=AclPermission.ALLOW,
            )
        ]
    )
    for kind in ("user", "client-id"):
        for match_type, match in ((0, name_of(0)), (1, None), (2, None)):
            yield DescribeClientQuotasRequest(
                components=[ComponentData(entity_type=kind, match_type=match_type, match=match)]
            )
    yield ListTransactionsRequest(transactional_id_pattern=".*")
    for subject_type, subject in (
        (MIRROR, ""),
        (PARTITION, f"{WIDE}-0"),
        (PRODUCER_ID, "1000000"),
        (PRODUCER_ID, "0"),
    ):
        yield DescribeHistoryRequest(subject_type=subject_type, subject=subject)
    transaction = broker.world.node.transactions.transaction(WIDE)
    assert transaction is not None
    yield EndTxnRequest(
        transactional_id=WIDE,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=True,
    )
    for group in (WIDE, f"share-{WIDE}", f"classic-{name_of(0)}"):
        yield DeleteGroupsRequest(groups_names=[group])

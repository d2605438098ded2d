"""Orders, which are faults as JSON objects: `{"fault": "fail", "api": "Produce", "code":
"NOT_LEADER_OR_FOLLOWER"}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.settings import INT32_MAX, did_you_mean, nearest
from odradek_testkit.fault_control.rules import FaultEffect, FaultRule

#: The limit of a delay is ten minutes, because no client waits longer.
MS_MAX = 600_000
TIMES_MAX = 1_000_000
NAME_CHARS_MAX = 1_000

_LEADER_APIS = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.DELETE_RECORDS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    }
)
_GROUP_APIS = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)
_TRANSACTION_APIS = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
    }
)
_ACKNOWLEDGING_APIS = frozenset({ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})
_CODES = {code.value for code in ErrorCode}
_API_BY_NAME = {api.name.lower(): key for key, api in APIS.items()}


class BadOrder(ValueError):
    """An invalid order; the text says why."""


class ExpireSession(NamedTuple):
    """End sessions in a group: of the members whose member id or client id is `member`, or of all
    members if `member` is None."""

    group: str
    member: str | None


class AbortTransaction(NamedTuple):
    """Abort a transaction as if its timeout had passed."""

    transactional_id: str


class ExpireLock(NamedTuple):
    """End the locks of a share group's records. If `topic` or `partition` is None, the order
    applies to all topics or to all partitions.
    """

    group: str
    topic: str | None
    partition: int | None


Order = FaultRule | ExpireSession | AbortTransaction | ExpireLock


class _Fields:
    """The fields of one order, each taken once."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._left = dict(order)
        self.fault = self.text("fault") or ""

    def text(self, name: str) -> str | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS_MAX:
            raise BadOrder(f"{name} must be a text of 1 to {NAME_CHARS_MAX} characters")
        return value

    def needed(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise BadOrder(f"{self.fault} needs {name}")
        return value

    def number(self, name: str, least: int, most: int) -> int | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            raise BadOrder(f"{name} must be a whole number between {least} and {most}")
        return value

    def times(self, default: int | None) -> int | None:
        """The number of times; None, written as null, for no limit."""
        if "times" not in self._left:
            return default
        return self.number("times", 1, TIMES_MAX)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._left.pop(name, default)
        if not isinstance(value, bool):
            raise BadOrder(f"{name} must be true or false")
        return value

    def apis(self) -> frozenset[ApiKey] | None:
        """The APIs; None for "*"."""
        value = self._left.pop("api", None)
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            raise BadOrder(f'{self.fault} needs api: the name of an API, several of them, or "*"')
        if "*" in names:
            return None
        unknown = [name for name in names if name.lower() not in _API_BY_NAME]
        if unknown:
            names = {api.name.lower(): api.name for api in APIS.values()}
            hint = did_you_mean(unknown[0].lower(), names, shown=lambda near: repr(names[near]))
            raise BadOrder(
                f"this broker has no API {unknown[0]!r}{hint or f'; it has {_api_names()}'}"
            )
        return frozenset(_API_BY_NAME[name.lower()] for name in names)

    def code(self) -> ErrorCode:
        value = self._left.pop("code", None)
        if isinstance(value, str) and value.upper() in ErrorCode.__members__:
            value = ErrorCode[value.upper()].value
        if type(value) is not int or value == 0 or value not in _CODES:
            near = _near_code(value)
            raise BadOrder(
                f"there is no error code {value!r}; did you mean {near!r}?"
                if near
                else f"{self.fault} needs code: the name or number of one of Kafka's error codes,"
                ' such as "NOT_ENOUGH_REPLICAS" or 19'
            )
        return ErrorCode(value)

    def end(self) -> None:
        """Raise BadOrder if fields are left."""
        if self._left:
            raise BadOrder(f"{self.fault} takes no {min(self._left)}")


def _near_code(name: object) -> str | None:
    """The error code that the user probably meant: one that begins with this name, or is
    similar.
    """
    if not isinstance(name, str) or not name:
        return None
    names = [each.name for each in ErrorCode if each.value != 0]
    longer = [each for each in names if each.startswith(name.upper())]
    return longer[0] if longer else nearest(name.upper(), names)


def _api_names() -> str:
    return ", ".join(api.name for api in APIS.values())


def _rule(fields: _Fields, now_ms: int, action: FaultEffect, **values: Any) -> FaultRule:
    """A rule from the fields that all rules have. By default a rule for requests applies once, a
    rule for the disk until it is cleared."""
    for_ms = fields.number("for_ms", 1, MS_MAX)
    until_ms = None if for_ms is None else now_ms + for_ms
    skip = fields.number("skip", 0, TIMES_MAX) or 0
    left = fields.times(None if action.of_disk else 1)
    if not action.of_disk:
        values = {"client_id": fields.text("client_id"), **values}
    return FaultRule(action, left=left, skip=skip, until_ms=until_ms, **values)


def _topic_and_partition(fields: _Fields) -> tuple[str | None, int | None]:
    partition = fields.number("partition", 0, INT32_MAX)
    topic = fields.text("topic")
    if partition is not None and topic is None:
        raise BadOrder("partition goes with topic")
    return topic, partition


def _matched(fields: _Fields) -> dict[str, Any]:
    topic, partition = _topic_and_partition(fields)
    return {
        "apis": fields.apis(),
        "topic": topic,
        "partition": partition,
        "group": fields.text("group"),
        "transactional_id": fields.text("transactional_id"),
    }


def _ms(fields: _Fields) -> int:
    value = fields.number("ms", 1, MS_MAX)
    if value is None:
        raise BadOrder(f"{fields.fault} needs ms, the milliseconds")
    return value


def _any_rule(fields: _Fields, now_ms: int) -> Order:
    action = FaultEffect(fields.fault)
    return _rule(fields, now_ms, action, **_FIELDS[action](fields))


#: The fields of an order for each action, in addition to those that all rules have.
_FIELDS: dict[FaultEffect, Callable[[_Fields], dict[str, Any]]] = {
    FaultEffect.FAIL: lambda fields: {"code": fields.code(), **_matched(fields)},
    FaultEffect.DELAY: lambda fields: {"delay_ms": _ms(fields), **_matched(fields)},
    FaultEffect.DROP_REPLY: _matched,
    FaultEffect.CUT: lambda fields: {"handled": fields.flag("handled"), **_matched(fields)},
    FaultEffect.SLOW_DISK: lambda fields: {"delay_ms": _ms(fields)},
    FaultEffect.FULL_DISK: lambda fields: {},
}


def _lose_leader(fields: _Fields, now_ms: int) -> Order:
    return _rule(
        fields,
        now_ms,
        FaultEffect.FAIL,
        apis=_LEADER_APIS,
        code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        topic=fields.needed("topic"),
        partition=fields.number("partition", 0, INT32_MAX),
    )


def _move_coordinator(fields: _Fields, now_ms: int) -> Order:
    group, name = fields.text("group"), fields.text("transactional_id")
    if (group is None) == (name is None):
        raise BadOrder("move_coordinator needs either group or transactional_id")
    return _rule(
        fields,
        now_ms,
        FaultEffect.FAIL,
        apis=_TRANSACTION_APIS if group is None else _GROUP_APIS,
        code=ErrorCode.NOT_COORDINATOR,
        group=group,
        transactional_id=name,
    )


def _expire_session(fields: _Fields, now_ms: int) -> Order:
    return ExpireSession(fields.needed("group"), fields.text("member"))


def _abort_transaction(fields: _Fields, now_ms: int) -> Order:
    return AbortTransaction(fields.needed("transactional_id"))


def _expire_lock(fields: _Fields, now_ms: int) -> Order:
    return ExpireLock(fields.needed("group"), *_topic_and_partition(fields))


def _lose_acknowledgement(fields: _Fields, now_ms: int) -> Order:
    group = fields.needed("group")
    topic, partition = _topic_and_partition(fields)
    return _rule(
        fields,
        now_ms,
        FaultEffect.CUT,
        apis=_ACKNOWLEDGING_APIS,
        acknowledging=True,
        handled=fields.flag("handled", True),
        group=group,
        topic=topic,
        partition=partition,
    )


_FAULTS: dict[str, Callable[[_Fields, int], Order]] = {
    **{action.value: _any_rule for action in FaultEffect},
    "lose_leader": _lose_leader,
    "move_coordinator": _move_coordinator,
    "expire_session": _expire_session,
    "abort_transaction": _abort_transaction,
    "expire_lock": _expire_lock,
    "lose_acknowledgement": _lose_acknowledgement,
}


def parse_order(order: object, now_ms: int) -> Order:
    """The fault that a JSON object orders. `now_ms`: the time of the monotonic clock. Raises
    BadOrder."""
    if not isinstance(order, dict):
        raise BadOrder("an order is a JSON object")
    fields = _Fields(order)
    make = _FAULTS.get(fields.fault)
    if make is None:
        raise BadOrder(f"there is no fault {fields.fault!r}; there are {', '.join(_FAULTS)}")
    parsed = make(fields, now_ms)
    fields.end()
    if isinstance(parsed, FaultRule):
        parsed.order = order
    return parsed

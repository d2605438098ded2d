"""Client instances: the clients that push metrics, and the checks of their requests.

An instance is removed when its connection is closed, or some time after its last request, and the
client's next request creates it again. The client does not notice the removal, because the
subscription id depends only on the instance's id and the subscriptions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from odradek_broker.telemetry.subscriptions import (
    ClientAttributes,
    MetricsSubscriptions,
    WantedMetrics,
)
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import ZERO_UUID

#: The maximum number of client instances. Beyond this limit, the instance whose last request is
#: oldest is removed.
INSTANCES_MAX = 16_384
#: The maximum number of client instances of one connection. There is a limit so that no connection
#: can displace the instances of all other connections.
INSTANCES_PER_CONNECTION_MAX = 64
#: The minimum time for which an instance is kept after its last request.
KEPT_MS_MIN = 60_000
#: The number of push intervals for which an instance is kept after its last request.
_KEPT_INTERVALS = 3
#: Ids that no client may have.
RESERVED_IDS = frozenset({ZERO_UUID, bytes(15) + b"\1"})

_E = ErrorCode
#: Errors after which a client may request its subscription immediately.
_ASK_AGAIN = frozenset({_E.UNKNOWN_SUBSCRIPTION_ID, _E.UNSUPPORTED_COMPRESSION_TYPE})
_CODECS = frozenset(map(int, Codec))


@dataclass(slots=True)
class ClientInstance:
    """A client instance. `subscriptions_version`: the version of the subscriptions from which
    `wanted` was computed.

    `last_get_ms`, `last_push_ms`: the times of the last accepted request for the subscription and
    the last accepted push; None if there was none. `last_error`: the error of the last request.
    `terminating`: the flag Terminating in the last push.
    """

    instance_id: bytes
    attributes: ClientAttributes
    connection_id: int
    wanted: WantedMetrics
    subscription_id: int
    subscriptions_version: int
    expires_ms: int = 0
    last_get_ms: int | None = None
    last_push_ms: int | None = None
    last_error: ErrorCode = _E.NONE
    terminating: bool = False

    def may_get(self, now_ms: int) -> bool:
        """True if the push interval has passed since the last accepted request or push. If True,
        this request is noted as accepted."""
        times = [at_ms for at_ms in (self.last_get_ms, self.last_push_ms) if at_ms is not None]
        if times and now_ms - max(times) < self.wanted.interval_ms:
            return False
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """True for the first push, for a push after a new request for the subscription, and for a
        push at least one interval after the last push. If True, this push is noted as accepted."""
        get_ms, push_ms = self.last_get_ms, self.last_push_ms
        asked_since = push_ms is None or (get_ms is not None and get_ms > push_ms)
        if not asked_since and now_ms - (push_ms or 0) < self.wanted.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


class Pushed(NamedTuple):
    """The parts of a push that are checked before its metrics are read. `size_bytes`: the size of
    the compressed metrics."""

    subscription_id: int
    compression_type: int
    terminating: bool
    size_bytes: int


@dataclass
class PushCounts:
    """Counters of requests, the same as in Kafka."""

    unknown_subscription: int = 0
    throttled: int = 0


class ClientInstances:
    """All client instances. `gone` is called with each instance after its removal."""

    def __init__(
        self, subscriptions: MetricsSubscriptions, gone: Callable[[ClientInstance], None]
    ) -> None:
        self._subscriptions = subscriptions
        self._gone = gone
        #: The instances by id, in the order of their last requests, oldest first.
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self._of_connection: dict[int, dict[bytes, None]] = {}
        self.counts = PushCounts()

    def __len__(self) -> int:
        return len(self._instances)

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(self._instances.values())

    def get(self, instance_id: bytes) -> ClientInstance | None:
        return self._instances.get(instance_id)

    def check_get(self, instance: ClientInstance, now_ms: int) -> ErrorCode:
        """The error code for a request for the subscription; NONE if it is accepted."""
        if not instance.may_get(now_ms) and instance.last_error not in _ASK_AGAIN:
            self.counts.throttled += 1
            return _E.THROTTLING_QUOTA_EXCEEDED
        instance.last_error = _E.NONE
        return _E.NONE

    def check_push(
        self, instance: ClientInstance, push: Pushed, bytes_max: int, now_ms: int
    ) -> ErrorCode:
        """The error code for a push, found before its metrics are read; NONE if it is accepted."""
        error = self._push_error(instance, push, bytes_max, now_ms)
        instance.last_error, instance.terminating = error, push.terminating
        return error

    def _push_error(
        self, instance: ClientInstance, push: Pushed, bytes_max: int, now_ms: int
    ) -> ErrorCode:
        if instance.terminating:
            return _E.INVALID_REQUEST
        if not instance.may_push(now_ms) and not push.terminating:
            self.counts.throttled += 1
            return _E.THROTTLING_QUOTA_EXCEEDED
        if push.subscription_id != instance.subscription_id:
            self.counts.unknown_subscription += 1
            return _E.UNKNOWN_SUBSCRIPTION_ID
        if push.compression_type not in _CODECS:
            return _E.UNSUPPORTED_COMPRESSION_TYPE
        return _E.TELEMETRY_TOO_LARGE if push.size_bytes > bytes_max else _E.NONE

    async def of(
        self,
        instance_id: bytes,
        attributes: Callable[[], ClientAttributes],
        connection_id: int,
        now_ms: int,
    ) -> ClientInstance:
        """The instance with this id, created if it is unknown, and updated to the present
        subscriptions."""
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = await self._new(instance_id, attributes(), connection_id)
        elif instance.subscriptions_version != self._subscriptions.version:
            instance = await self._new(instance_id, instance.attributes, connection_id)
        self._move(instance, connection_id)
        kept_ms = max(KEPT_MS_MIN, _KEPT_INTERVALS * instance.wanted.interval_ms)
        instance.expires_ms = now_ms + kept_ms
        return instance

    async def _new(
        self, instance_id: bytes, attributes: ClientAttributes, connection_id: int
    ) -> ClientInstance:
        version = self._subscriptions.version
        before = self._instances.get(instance_id)
        wanted = await self._subscriptions.of(attributes)
        made = self._instances.get(instance_id)
        if made is not None and made is not before and made.subscriptions_version >= version:
            # Another request of the client has made it during a pause.
            return made
        instance = ClientInstance(
            instance_id,
            attributes,
            connection_id if made is None else made.connection_id,
            wanted,
            wanted.subscription_id(instance_id),
            version,
        )
        self._instances[instance_id] = instance
        return instance

    def _move(self, instance: ClientInstance, connection_id: int) -> None:
        """Called when an instance has sent a request on this connection."""
        instance_id = instance.instance_id
        self._instances.move_to_end(instance_id)
        if instance.connection_id != connection_id:
            self._leave_connection(instance)
            instance.connection_id = connection_id
        ids = self._of_connection.setdefault(connection_id, {})
        ids.pop(instance_id, None)
        ids[instance_id] = None
        if len(ids) > INSTANCES_PER_CONNECTION_MAX:
            self._remove(self._instances[next(iter(ids))])
        if len(self._instances) > INSTANCES_MAX:
            self._remove(next(iter(self._instances.values())))

    def connection_closed(self, connection_id: int) -> None:
        for instance_id in list(self._of_connection.get(connection_id, ())):
            self._remove(self._instances[instance_id])

    def expire(self, now_ms: int) -> None:
        """Remove the instances that have sent no request for too long."""
        late = [each for each in self._instances.values() if each.expires_ms <= now_ms]
        for instance in late:
            self._remove(instance)

    def _remove(self, instance: ClientInstance) -> None:
        del self._instances[instance.instance_id]
        self._leave_connection(instance)
        self._gone(instance)

    def _leave_connection(self, instance: ClientInstance) -> None:
        ids = self._of_connection.get(instance.connection_id, {})
        ids.pop(instance.instance_id, None)
        if not ids:
            self._of_connection.pop(instance.connection_id, None)

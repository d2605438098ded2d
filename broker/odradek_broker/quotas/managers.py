"""The quotas of this broker's clients: one manager for each rate that quotas may limit.

The attribute of a manager without quotas is None, so that a broker without quotas makes only one
comparison for each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from math import inf

from odradek_broker.platform.seams import Clock
from odradek_broker.quotas.client_quotas import ClientQuotas, QuotaEntity, QuotaKey
from odradek_broker.quotas.rates import SampledRate, TokenBucket, Windows
from odradek_broker.request import RequestContext


class QuotaType(StrEnum):
    """The limited quantities, with the names of Kafka's metrics."""

    PRODUCE = "Produce"
    FETCH = "Fetch"
    REQUEST = "Request"
    CONTROLLER_MUTATION = "ControllerMutation"


class RateQuota:
    """Quotas of a rate. A client may exceed its quota, and then has to wait (KIP-13, KIP-124).

    `throttle_max_ms`: the longest wait.
    """

    def __init__(
        self, kind: QuotaType, windows: Windows, clock: Clock, throttle_max_ms: float = inf
    ) -> None:
        self.kind = kind
        self.quotas = ClientQuotas(lambda: SampledRate(windows))
        self._windows = windows
        self._clock = clock
        self._throttle_max_ms = throttle_max_ms

    def record(self, context: RequestContext, amount: float) -> int:
        """Count the usage of a client; returns the throttle time of its request, in
        milliseconds."""
        applied = self.quotas.applied(context.user, context.client_id or "")
        now_ms = self._clock.monotonic_ms()
        usage = self.quotas.usage(applied, now_ms)
        usage.record(amount, now_ms)
        throttle_ms = int(min(usage.throttle_ms(applied.limit, now_ms), self._throttle_max_ms))
        context.throttle(self.kind, throttle_ms)
        return throttle_ms

    def record_only(self, context: RequestContext, amount: float) -> None:
        """Count the usage of a client without throttling this request; the client's next request
        may be throttled. A negative amount undoes an earlier amount.
        """
        applied = self.quotas.applied(context.user, context.client_id or "")
        now_ms = self._clock.monotonic_ms()
        self.quotas.usage(applied, now_ms).record(amount, now_ms)

    def most_at_once(self, context: RequestContext) -> float:
        """The amount that a client without earlier usage may use without being throttled."""
        applied = self.quotas.applied(context.user, context.client_id or "")
        return applied.limit * self._windows.whole_s

    def usages(self) -> Iterator[tuple[str, str, float]]:
        """(user, client id, present rate per second) of the clients that have a quota."""
        now_ms = self._clock.monotonic_ms()
        for user, client_id, usage in self.quotas.usages():
            yield user, client_id, usage.per_second(now_ms)

    def throttled(self) -> Iterator[bool]:
        """For each counted usage, true if the usage exceeds its quota at present."""
        return self.quotas.throttled(self._clock.monotonic_ms())


class MutationQuota:
    """The quotas of clients for mutations: partitions created or deleted (KIP-599)."""

    kind = QuotaType.CONTROLLER_MUTATION

    def __init__(self, windows: Windows, clock: Clock) -> None:
        self.quotas = ClientQuotas(lambda: TokenBucket(windows))
        self._clock = clock

    def take(self, context: RequestContext, mutations: int, *, strict: bool) -> bool:
        """Take mutations from the quota; see `QuotaManagers.mutations`."""
        applied = self.quotas.applied(context.user, context.client_id or "")
        now_ms = self._clock.monotonic_ms()
        bucket = self.quotas.usage(applied, now_ms)
        if strict:
            throttle_ms = bucket.throttle_ms(applied.limit, now_ms)
            if not throttle_ms:
                bucket.take(mutations, applied.limit, now_ms)
        else:
            bucket.take(mutations, applied.limit, now_ms)
            throttle_ms = bucket.throttle_ms(applied.limit, now_ms)
        context.throttle(self.kind, throttle_ms)
        return not (strict and throttle_ms)


#: Takes this number of mutations (partitions created or deleted) from the quota of a client; false
#: if they must not be made.
TakeQuota = Callable[[int], bool]


#: The `strict_since` of requests in which no version has the error of an exhausted quota.
NEVER_STRICT = 2**15


def unlimited(_: int) -> bool:
    """Allow every mutation: the `TakeQuota` of a client that has no mutation quota."""
    return True


class QuotaManagers:
    """The managers of all quotas. A manager without a quota is None.

    `windows`: the windows over which rates are measured. `mutation_windows`: the windows of the
    quota for mutations.
    """

    def __init__(self, clock: Clock, windows: Windows, mutation_windows: Windows) -> None:
        self._all: dict[QuotaKey, RateQuota | MutationQuota] = {
            QuotaKey.PRODUCER_BYTE_RATE: RateQuota(QuotaType.PRODUCE, windows, clock),
            QuotaKey.CONSUMER_BYTE_RATE: RateQuota(QuotaType.FETCH, windows, clock),
            QuotaKey.REQUEST_PERCENTAGE: RateQuota(
                QuotaType.REQUEST, windows, clock, throttle_max_ms=windows.size_ms
            ),
            QuotaKey.CONTROLLER_MUTATION_RATE: MutationQuota(mutation_windows, clock),
        }
        self.produce: RateQuota | None = None
        self.fetch: RateQuota | None = None
        self.request: RateQuota | None = None
        self.controller_mutation: MutationQuota | None = None

    def update(self, entity: QuotaEntity, key: str, limit: float | None) -> None:
        """Set a quota of users or client ids; None removes it."""
        manager = self._all[QuotaKey(key)]
        manager.quotas.update(entity, limit)
        in_use = manager if manager.quotas else None
        setattr(self, _ATTRIBUTES[manager.kind], in_use)

    def mutations(self, context: RequestContext, strict_since: int) -> TakeQuota:
        """The quota of a client's mutations; when the quota is exhausted, mutations are refused,
        and the client is throttled (KIP-599).

        Request versions below `strict_since` do not have the error for a refused mutation, so in
        these versions mutations are always allowed, and the client is only throttled.
        """
        manager = self.controller_mutation
        if manager is None:
            return unlimited
        strict = context.api_version >= strict_since
        return lambda mutations: manager.take(context, mutations, strict=strict)

    def in_use(self) -> Iterator[RateQuota]:
        for manager in (self.produce, self.fetch, self.request):
            if manager is not None:
                yield manager


_ATTRIBUTES = {
    QuotaType.PRODUCE: "produce",
    QuotaType.FETCH: "fetch",
    QuotaType.REQUEST: "request",
    QuotaType.CONTROLLER_MUTATION: "controller_mutation",
}

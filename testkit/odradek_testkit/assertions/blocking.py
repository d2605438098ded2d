"""Assertions about topics and groups for tests without an event loop: every call blocks until it
has a result."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from odradek_client.blocking_calls import loop_thread
from odradek_client.errors import IllegalState
from odradek_client.structs import ConsumerRecord
from odradek_testkit.assertions.asynchronous import WITHIN_S, AsyncAssertions
from odradek_testkit.assertions.reading import Matching, Positions

P = ParamSpec("P")
R = TypeVar("R")


def _blocks(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """A blocking version of a method of `AsyncAssertions`."""

    @functools.wraps(method)
    def blocking(self: Assertions, /, *args: P.args, **kwargs: P.kwargs) -> R:
        _refuse_on_loop(method.__name__)
        work = functools.partial(method, self.aio, *args, **kwargs)
        return loop_thread().run(work, SimpleQueue())

    return blocking


def _refuse_on_loop(call: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise IllegalState(
        f"{call}() would block the event loop that it is called on, and with it the code under test;"
        f" in async code use `await ....aio.{call}()`"
    )


class Assertions:
    """Assertions about the brokers at `bootstrap`. `AsyncAssertions` describes each of them.

    `client_settings`: the settings of the connection, such as `security_protocol`. Any thread may
    call the methods.
    """

    def __init__(self, bootstrap: str, **client_settings: Any) -> None:
        #: These assertions as coroutines, for async tests.
        self.aio = AsyncAssertions(bootstrap, **client_settings)

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses."""
        return self.aio.bootstrap

    @overload
    def assert_produced(
        self,
        topic: str,
        matching: Matching | None = None,
        *,
        count: None = None,
        within_s: float = WITHIN_S,
        since: Positions | None = None,
    ) -> ConsumerRecord: ...
    @overload
    def assert_produced(
        self,
        topic: str,
        matching: Matching | None = None,
        *,
        count: int,
        within_s: float = WITHIN_S,
        since: Positions | None = None,
    ) -> list[ConsumerRecord]: ...
    def assert_produced(self, topic: str, matching: Matching | None = None, **options: Any) -> Any:
        """Wait for a matching record and return the first one. With `count`, wait for exactly
        `count` matching records and return them. Raises AssertionError if there are fewer after
        `within_s`, or if there are more."""
        return _produced(self, topic, matching, **options)

    assert_nothing_produced = _blocks(AsyncAssertions.assert_nothing_produced)
    assert_no_duplicates = _blocks(AsyncAssertions.assert_no_duplicates)
    assert_lag_zero = _blocks(AsyncAssertions.assert_lag_zero)
    assert_committed = _blocks(AsyncAssertions.assert_committed)
    assert_topic_equals = _blocks(AsyncAssertions.assert_topic_equals)
    snapshot = _blocks(AsyncAssertions.snapshot)
    positions = _blocks(AsyncAssertions.positions)


_produced: Callable[..., Any] = _blocks(AsyncAssertions.assert_produced)

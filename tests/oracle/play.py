"""Plays scenarios against any broker, and returns its answers as plain values."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from tests.oracle.plain import Normaliser, at_paths, from_plain, only_mine, saved_value, to_plain
from tests.oracle.script import (
    APIS_BY_NAME,
    Ask,
    Assigned,
    Batch,
    Close,
    Padded,
    Receive,
    Scenario,
    Send,
    Step,
    Subscribed,
    Wait,
)

from odradek_protocol import codec, frames
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import Api
from odradek_protocol.message import Message
from odradek_protocol.records.batch import read_header, update_crc
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.stored.assignment import (
    ConsumerAssignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import (
    ConsumerSubscription,
    OwnedPartitions,
    encode_subscription,
)

#: The time limit in s for one answer, and for the repetitions of one step.
ANSWER_DEADLINE_S = 30.0
UNTIL_DEADLINE_S = 30.0
_PAUSE_S = 0.02
_AT_ONCE = 24
_RETRIED = frozenset({3, 5, 6, 14, 15, 16, 51, 27, 79})
_SAVED = re.compile(r"\$(\w+)(?:([+-])(\d+))?")
CLOSED = "<closed>"

Answers = list[dict[str, Any]]


class BrokenScenario(Exception):
    """A quiet step did not succeed, or an answer did not come in time."""


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.due: deque[tuple[Ask, Api, int]] = deque()

    async def answer(self, api: Api, version: int) -> Message | None:
        """Read the next answer; None if the broker has closed the connection."""
        try:
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                size = int.from_bytes(await self.reader.readexactly(4), "big")
                frame = await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        if api.name == "ApiVersions" and frame[4:6] == b"\0\x23":
            version = 0
        return frames.decode_response(api, version, frame)


class ScenarioRun:
    """A scenario played in one version."""

    def __init__(self, address: tuple[str, int], scenario: Scenario, version: int, salt: str):
        self._address, self._scenario, self._version = address, scenario, version
        self._prefix = f"{re.sub('[^A-Za-z0-9]+', '-', scenario.name)}-v{version}-{salt}."
        self._normaliser = Normaliser(self._prefix, int(time.time() * 1000))
        self._saved: dict[str, Any] = {}
        self._connections: dict[str, Connection] = {}
        self._correlation_id = 0
        self._answers: Answers = []

    async def play(self) -> Answers:
        try:
            for step in self._scenario.steps:
                await self._step(step)
        finally:
            for connection in self._connections.values():
                connection.writer.close()
        return self._answers

    async def _step(self, step: Step) -> None:
        match step:
            case Ask():
                await self._ask(step)
            case Send(ask):
                connection = await self._connection(ask.on)
                self._send(connection, ask)
            case Receive(on):
                connection = await self._connection(on)
                ask, api, version = connection.due.popleft()
                self._record(ask, version, await connection.answer(api, version))
            case Close(on):
                self._connections.pop(on).writer.close()
            case Wait(ms):
                await asyncio.sleep(ms / 1000)

    async def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            streams = await asyncio.open_connection(*self._address, limit=1 << 26)
            self._connections[name] = Connection(*streams)
        return self._connections[name]

    async def _ask(self, ask: Ask) -> None:
        end = time.monotonic() + UNTIL_DEADLINE_S
        while True:
            connection = await self._connection(ask.on)
            self._send(connection, ask)
            if not ask.answered:
                connection.due.pop()
                return
            _, api, version = connection.due.pop()
            message = await connection.answer(api, version)
            if self._is_final(ask, message):
                break
            if time.monotonic() > end:
                raise BrokenScenario(f"{self._name}: {ask.api} still answers {message}")
            await asyncio.sleep(_PAUSE_S)
        self._record(ask, version, message)

    @property
    def _name(self) -> str:
        return f"{self._scenario.name}-v{self._version}"

    def _is_final(self, ask: Ask, message: Message | None) -> bool:
        if message is None:
            if ask.quiet or ask.until or ask.while_in:
                raise BrokenScenario(f"{self._name}: the connection was closed at {ask.api}")
            return True
        if ask.until:
            shown = to_plain(message)
            for path, wanted in ask.until.items():
                found = [
                    container[key] for container, key in at_paths(shown, path) if key in container
                ]
                if found != [wanted]:
                    return False
        if ask.while_in:
            shown = to_plain(message)
            for path, values in ask.while_in.items():
                if any(each[key] in values for each, key in at_paths(shown, path) if key in each):
                    return False
        if not ask.quiet:
            return True
        codes = set(_error_codes(to_plain(message)))
        if codes - {"NONE"} and not {ErrorCode[c] for c in codes - {"NONE"}} <= _RETRIED:
            raise BrokenScenario(f"{self._name}: {ask.api} answers {message}")
        return codes <= {"NONE"}

    def _send(self, connection: Connection, ask: Ask) -> None:
        api = APIS_BY_NAME[ask.api]
        version = self._scenario.version_of(ask, self._version)
        request = from_plain(api.request, ask.body, version, self.resolve)
        self._correlation_id += 1
        frame = b"".join(
            bytes(part)
            for part in frames.encode_request(
                request, version, self._correlation_id, self.resolve(ask.client_id)
            )
        )
        if ask.edit is not None:
            body = sum(map(len, codec.encode(request, version)))
            cut = len(frame) - body
            changed = frame[4:cut] + ask.edit(frame[cut:])
            frame = len(changed).to_bytes(4, "big") + changed
        if ask.edit_frame is not None:
            frame = ask.edit_frame(frame)
        connection.writer.write(frame)
        connection.due.append((ask, api, version))

    def _record(self, ask: Ask, version: int, message: Message | None) -> None:
        if message is None:
            # The next step that names this connection opens a new one.
            self._connections.pop(ask.on).writer.close()
        else:
            failed = getattr(message, "error_code", 0)
            for name, path in ask.save.items():
                if not (failed and name in self._saved):
                    self._saved[name] = saved_value(message, path)
            if ask.save:
                # Saved values get their placeholders first, so that the numbers follow the order of
                # the steps.
                self._normaliser.answer(to_plain(message))
        if ask.quiet:
            return
        shown: Any = CLOSED
        if message is not None:
            shown = to_plain(message)
            shown = only_mine(shown, self._prefix) if ask.mine else shown
            shown = self._normaliser.answer(shown)
            for path, values in ask.either.items():
                for container, key in at_paths(shown, path):
                    if container.get(key) in values:
                        container[key] = " or ".join(str(value) for value in values)
            for path in ask.ignore:
                for container, key in list(at_paths(shown, path)):
                    container.pop(key, None)
        where = {"on": ask.on} if ask.on != "a" else {}
        self._answers.append({"api": f"{ask.api} v{version}", **where, "answer": shown})

    def resolve(self, value: Any) -> Any:
        if isinstance(value, str):
            if value.startswith("@"):
                return self._prefix + value[1:]
            found = _SAVED.fullmatch(value)
            if found is None:
                return value
            saved = self._saved[found[1]]
            return saved if found[2] is None else saved + int(found[2] + found[3])
        if isinstance(value, Subscribed):
            subscription = ConsumerSubscription(topics=[self.resolve(t) for t in value.topics])
            subscription.owned_partitions = [
                OwnedPartitions(topic=self.resolve(name), partitions=list(partitions))
                for name, partitions in (value.owned or {}).items()
            ]
            version = 0 if value.owned is None else 1
            data = encode_subscription(subscription, version)
            claimed = version if value.claims is None else value.claims
            return claimed.to_bytes(2, "big", signed=True) + data[2 : len(data) - value.cut]
        if isinstance(value, Assigned):
            assigned = [
                PartitionsOfTopic(topic=self.resolve(name), partitions=list(partitions))
                for name, partitions in value.partitions.items()
            ]
            assignment = ConsumerAssignment(assigned_partitions=assigned, user_data=value.user_data)
            return encode_assignment(assignment, 1)
        if isinstance(value, Padded):
            name = (self._prefix + value.name.removeprefix("@")).ljust(value.length, "x")
            self._normaliser.call(name, f"{value.name}<{value.length} long>")
            return name
        return self._batch(value) if isinstance(value, Batch) else value

    def _batch(self, spec: Batch) -> bytes:
        now_ms = int(time.time() * 1000)
        first_ms = now_ms if spec.timestamp_ms == "now" else int(spec.timestamp_ms)
        builder = BatchBuilder(Codec[spec.codec])
        keys = spec.keys or [None] * len(spec.values)
        for index, (key, value) in enumerate(zip(keys, spec.values, strict=True)):
            builder.append(first_ms + index, _bytes(key), _bytes(value))
        batch = bytearray(
            builder.build(
                producer_id=self.resolve(spec.producer_id),
                producer_epoch=self.resolve(spec.producer_epoch),
                base_sequence=spec.base_sequence,
                transactional=spec.transactional,
            )
        )
        if spec.header:
            header = read_header(batch)
            for name, number in spec.header.items():
                setattr(header, name, number)
            batch[:61] = header.pack()
            if "crc" not in spec.header:
                update_crc(batch, 0)
        return bytes(batch if spec.edit is None else spec.edit(batch))


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")


def _error_codes(value: Any) -> list[str]:
    if isinstance(value, list):
        return [code for item in value for code in _error_codes(item)]
    if not isinstance(value, dict):
        return []
    own = [str(v) for k, v in value.items() if k.endswith("error_code")]
    return own + [code for item in value.values() for code in _error_codes(item)]


#: The number of names that is enough to use every partition of both coordinators' topics.
_COORDINATED = 400


async def warm_up(host: str, port: int, salt: str) -> None:
    """Let a new broker create its coordinators' topics, and use up producer id 0."""
    await ScenarioRun((host, port), ready_broker_scenario(), 4, salt).play()


async def play_once(host: str, port: int, scenario: Scenario, salt: str) -> Answers | str:
    """Play a random scenario once. Returns the answers.

    Returns the error as text if a step has no answer, or if a step needs a value that no earlier
    step saved.
    """
    try:
        return await ScenarioRun((host, port), scenario, 4, salt).play()
    except (BrokenScenario, TimeoutError, OSError, LookupError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def ready_broker_scenario() -> Scenario:
    names = [f"@{number}" for number in range(_COORDINATED)]
    body = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    groups = [{"group_id": name, "topics": []} for name in names]
    return Scenario(
        "warm-up",
        "InitProducerId",
        [
            Ask("InitProducerId", body, version=4, quiet=True),
            Ask("FindCoordinator", {"key": "@1", "key_type": 0}, version=3, quiet=True),
            Ask("FindCoordinator", {"key": "@1", "key_type": 1}, version=3, quiet=True),
            Ask("OffsetFetch", {"groups": groups}, version=8, quiet=True),
            Ask(
                "DescribeTransactions",
                {"transactional_ids": names},
                until={
                    f"transaction_states.{at}.error_code": "TRANSACTIONAL_ID_NOT_FOUND"
                    for at in range(_COORDINATED)
                },
            ),
        ],
        versions="4",
    )


async def play(
    host: str, port: int, runs: Sequence[tuple[Scenario, int]], salt: str
) -> dict[tuple[str, int], Answers | str]:
    """Play all runs. Returns the answers by (scenario, version); for a broken run, the error as
    text.

    `salt` makes names distinct when scenarios are played again on the same broker.
    """
    turn = asyncio.Semaphore(_AT_ONCE)
    found: dict[tuple[str, int], Answers | str] = {}

    async def one(scenario: Scenario, version: int) -> None:
        async with turn:
            try:
                answers: Answers | str = await ScenarioRun(
                    (host, port), scenario, version, salt
                ).play()
            except (BrokenScenario, TimeoutError, OSError) as error:
                answers = f"{type(error).__name__}: {error}"
            found[scenario.name, version] = answers

    await warm_up(host, port, salt)
    async with asyncio.TaskGroup() as tasks:
        for scenario, version in runs:
            if not scenario.alone:
                tasks.create_task(one(scenario, version))
    for scenario, version in runs:
        if scenario.alone:
            await one(scenario, version)
    return found

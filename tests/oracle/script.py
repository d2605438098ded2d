"""The elements of a scenario, which is plain data without code.

In the values of a request:

- text that begins with `@` is a name that only this run uses (`@orders`), for topics, groups and
  ids;
- text that begins with `$` is a value that an earlier step has saved (`$pid`; `$pid+1` adds one);
- a `Batch` stands for a record batch, `Subscribed` for a consumer's metadata, `Assigned` for its
  assignment, `Padded` for a long name;
- a field that does not exist in the version in play is left out.

Answers are compared as plain values: fields with their default are left out; error codes are names;
ids, times and addresses are replaced by placeholders, the same placeholder for the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odradek_protocol.keys import APIS, Api

Body = Mapping[str, Any]
#: A time far in the past, the same in every run; the topics have no retention time.
THEN_MS = 1_700_000_000_000
#: An id that no topic has.
NO_SUCH_ID = b"\1" * 16

APIS_BY_NAME: Mapping[str, Api] = {api.name: api for api in APIS.values()}
#: The versions of preparing requests whose newest version is not suitable. Kafka with its shipped
#: settings does not serve InitProducerId 6. Fetch 12 is the last version with topic names; the
#: others are the last versions for transactions v1.
_STEADY_VERSIONS = {"InitProducerId": 5, "Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}
_STEADY_VERSIONS |= {"AddPartitionsToTxn": 3, "Fetch": 12}


@dataclass(frozen=True)
class Batch:
    """A record batch with one record for each value, 1 ms apart.

    `header` overwrites fields of the header; then the checksum is computed again, unless `header`
    has `crc`. `edit` may change the bytes in any other way.
    """

    values: Sequence[str | None] = ("a",)
    keys: Sequence[str | None] | None = None
    timestamp_ms: int | str = THEN_MS
    codec: str = "NONE"
    producer_id: int | str = -1
    producer_epoch: int | str = -1
    base_sequence: int = -1
    transactional: bool = False
    header: Mapping[str, int] = field(default_factory=dict)
    edit: Callable[[bytearray], bytes | bytearray] | None = None


@dataclass(frozen=True)
class Subscribed:
    """The metadata, for one protocol in JoinGroup, of a consumer that subscribes to these
    topics. `owned`: topic -> the partitions that the consumer owns; None for the oldest version of
    the metadata, which does not have this field. `claims`: another version than that of the bytes;
    `cut`: the number of bytes that are missing at the end."""

    topics: Sequence[str] = ("@t",)
    owned: Mapping[str, Sequence[int]] | None = None
    claims: int | None = None
    cut: int = 0


@dataclass(frozen=True)
class Assigned:
    """The assignment of a consumer in SyncGroup: topic -> partitions. `user_data`: the data of a
    custom assignor."""

    partitions: Mapping[str, Sequence[int]]
    user_data: bytes | None = None


@dataclass(frozen=True)
class Padded:
    """A name of this run, padded with `x` to `length` characters."""

    name: str
    length: int


@dataclass(frozen=True)
class Ask:
    """Send a request and wait for its answer.

    - `version`: the version, if the scenario is about another API.
    - `on`: the name of the connection; a new name opens a connection.
    - `save`: name -> path in the answer (`topics.0.topic_id`) of the value to save.
    - `until`: path -> value. The request is repeated until the answer has the value; only that
      answer is compared.
    - `while_in`: path -> values. The request is repeated while the answer has one of the values.
    - `either`: path -> values (as shown in recordings) of which Kafka gives sometimes one,
      sometimes another.
    - `ignore`: paths that are not compared.
    - `mine`: elements of lists that have names of other runs are left out.
    - `edit`: changes the encoded body. `edit_frame`: changes the whole frame, with its length in
      front.
    - `answered`: False if the request has no answer.
    - `quiet`: a preparing step: it is repeated while the answer has a retriable error code, must
      succeed, and its answer is not recorded.
    """

    api: str
    body: Body = field(default_factory=dict)
    on: str = "a"
    version: int | None = None
    save: Mapping[str, str] = field(default_factory=dict)
    until: Mapping[str, Any] = field(default_factory=dict)
    while_in: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    either: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    ignore: Sequence[str] = ()
    mine: bool = False
    edit: Callable[[bytes], bytes] | None = None
    edit_frame: Callable[[bytes], bytes] | None = None
    answered: bool = True
    quiet: bool = False
    client_id: str | None = "oracle"


@dataclass(frozen=True)
class Send:
    """Send a request and do not wait: the next `Receive` on the connection reads its answer."""

    ask: Ask


@dataclass(frozen=True)
class Receive:
    """Wait for the answer to the oldest request on the connection that has none yet."""

    on: str = "a"


@dataclass(frozen=True)
class Close:
    on: str = "a"


@dataclass(frozen=True)
class Wait:
    """Let time pass. Needed where no answer shows when the next step can begin."""

    ms: int


Step = Ask | Send | Receive | Close | Wait


@dataclass(frozen=True)
class Scenario:
    """A list of steps, played in each of `versions` of `api` (by default in all that we know).

    `alone`: play it after all others, while no other scenario is played.
    """

    name: str
    api: str
    steps: Sequence[Step]
    versions: str = ""
    alone: bool = False

    def runs(self) -> list[int]:
        """The versions in which the scenario is played."""
        from odradek_protocol.message import Versions

        known = APIS_BY_NAME[self.api].versions
        return list(Versions.parse(self.versions) if self.versions else known)

    def version_of(self, step: Ask, run_version: int) -> int:
        """The version of a step's request, when the scenario is played in `run_version`."""
        if step.version is not None:
            return step.version
        if step.api == self.api:
            return run_version
        return _STEADY_VERSIONS.get(step.api, APIS_BY_NAME[step.api].versions.last)


#: (name, API) or (name, API, versions) -> the steps.
Rows = Mapping[tuple[str, str] | tuple[str, str, str], Sequence[Step]]


def scenarios_of(rows: Rows) -> list[Scenario]:
    """The scenarios of a table."""
    return [Scenario(key[0], key[1], steps, *key[2:]) for key, steps in rows.items()]


# --- Common first steps of scenarios --------------------------------------------------------------


def topic(
    name: str = "@t", partitions: int = 1, on: str = "a", configs: Mapping[str, str] | None = None
) -> list[Step]:
    """Preparing step: create a topic without a retention time, and save its id as `$<name>`
    (without @)."""
    given = {"retention.ms": "-1", **(configs or {})}
    return [
        Ask(
            "CreateTopics",
            {
                "timeout_ms": 10_000,
                "topics": [
                    {
                        "name": name,
                        "num_partitions": partitions,
                        "replication_factor": 1,
                        "configs": [{"name": k, "value": v} for k, v in given.items()],
                    }
                ],
            },
            on=on,
            version=7,
            quiet=True,
            save={name.lstrip("@"): "topics.0.topic_id"},
        ),
        Ask(
            "ListOffsets",
            {
                "replica_id": -1,
                "topics": [
                    {
                        "name": name,
                        "partitions": [
                            {"partition_index": p, "timestamp": -1} for p in range(partitions)
                        ],
                    }
                ],
            },
            on=on,
            version=6,
            quiet=True,
        ),
    ]


def produce_body(
    records: Any,
    name: str = "@t",
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    topic_id: Any = None,
) -> dict[str, Any]:
    """The body of a Produce request for one partition."""
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [
            {
                "name": name,
                "topic_id": "$" + name.lstrip("@") if topic_id is None else topic_id,
                "partition_data": [{"index": partition, "records": records}],
            }
        ],
    }


def produced(records: Any, name: str = "@t", partition: int = 0, on: str = "a") -> Step:
    """Preparing step: produce these records."""
    return Ask("Produce", produce_body(records, name, partition), on=on, quiet=True)


def fetch_body(
    name: str = "@t",
    offset: int = 0,
    partition: int = 0,
    isolation_level: int = 0,
    topic_id: Any = None,
    **more: Any,
) -> dict[str, Any]:
    """The body of a Fetch request for one partition, without a session."""
    return {
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": isolation_level,
        "session_epoch": -1,
        "topics": [
            {
                "topic": name,
                "topic_id": "$" + name.lstrip("@") if topic_id is None else topic_id,
                "partitions": [
                    {
                        "partition": partition,
                        "fetch_offset": offset,
                        "partition_max_bytes": 1 << 20,
                        **more,
                    }
                ],
            }
        ],
    }


def coordinator(key: str, key_type: int = 0, on: str = "a") -> Step:
    """Wait until the coordinator of a group (type 0) or of a transactional id (type 1) is found."""
    return Ask("FindCoordinator", {"key": key, "key_type": key_type}, on=on, version=3, quiet=True)


def producer(
    transactional_id: str | None = "@id", save: str = "pid", on: str = "a", **more: Any
) -> list[Step]:
    """Preparing step: get a producer id and epoch, saved as `$<save>` and `$<save>_epoch`."""
    body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **more}
    steps: list[Step] = [] if transactional_id is None else [coordinator(transactional_id, 1, on)]
    paths = {save: "producer_id", f"{save}_epoch": "producer_epoch"}
    return [*steps, Ask("InitProducerId", body, on=on, quiet=True, version=4, save=paths)]

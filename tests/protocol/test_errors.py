"""Error codes have Kafka's numbers, names and retriability."""

from __future__ import annotations

from typing import Any

import kafka.errors

from many_cases import looped
from odradek_protocol.errors import ErrorCode

_KAFKA_PYTHON: dict[int, Any] = {
    cls.errno: cls  # type: ignore[attr-defined]
    for cls in vars(kafka.errors).values()
    if isinstance(cls, type)
    and issubclass(cls, kafka.errors.BrokerResponseError)
    and getattr(cls, "errno", None) is not None
    and getattr(cls, "message", None)
}

#: The codes that a client may retry after it has requested metadata, and those that it may simply
#: retry (Java client 4.x).
RETRIABLE_WITH_METADATA = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
RETRIABLE = {2, 7, 14, 15, 16, 19, 20, 41, 51, 70, 71, 75, 78, 88, 89, 106, 122, 123, 133}


def test_error_codes_are_consecutive_numbers() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


@looped("code", ErrorCode, ids=lambda code: code.name)
def test_error_codes_are_retriable_as_in_kafka(code: ErrorCode) -> None:
    assert code.refreshes_metadata == (code in RETRIABLE_WITH_METADATA)
    assert code.retriable == (code in RETRIABLE | RETRIABLE_WITH_METADATA)


def test_error_codes_have_kafkas_names() -> None:
    """kafka-python spells some names differently (see below); all others must be the same."""
    theirs = {
        errno: cls.message for errno, cls in _KAFKA_PYTHON.items() if errno in list(ErrorCode)
    }
    assert len(theirs) > 80
    different = {
        errno: message for errno, message in theirs.items() if ErrorCode(errno).name != message
    }
    assert different == {
        -1: "UNKNOWN",
        0: "NO_ERROR",
        6: "NOT_LEADER_FOR_PARTITION",
        10: "MESSAGE_SIZE_TOO_LARGE",
        17: "INVALID_TOPIC",
        39: "INVALID_REPLICATION_ASSIGNMENT",
    }


def test_an_unknown_error_code_is_read_as_unknown_server_error() -> None:
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for code in (134, 9999, -2, -32768):
        assert ErrorCode.of(code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not ErrorCode.of(9999).retriable


def test_an_error_code_is_encoded_as_a_number() -> None:
    assert int(ErrorCode.NOT_COORDINATOR) == 16
    assert ErrorCode.NOT_COORDINATOR.to_bytes(2, "big") == b"\0\x10"
    assert ErrorCode(0) is ErrorCode.NONE
    assert not ErrorCode.NONE

"""The tree of exceptions: every error code has a class and a message."""

from __future__ import annotations

import pytest

from many_cases import looped
from odradek_client import errors
from odradek_client.errors import OdradekError, error_for
from odradek_protocol.errors import ErrorCode


@looped("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_every_error_code_has_an_exception_of_the_same_retriability(code: ErrorCode) -> None:
    error = error_for(code, "details", about="topic 'x'")
    assert error.code is code
    assert error.retriable == code.retriable
    assert isinstance(error, errors.Retriable) == code.retriable
    assert str(error).startswith("topic 'x': ")
    assert "details" in str(error) and code.name in str(error)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'x' already exists."),
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (ErrorCode.INVALID_CONFIG, "The broker says: retention.ms is 'x'"),
    ],
)
def test_an_error_message_repeats_no_words_of_the_broker(code: ErrorCode, message: str) -> None:
    text = str(error_for(code, message))
    assert text.count("exist") + text.count("does not h") + text.count("The broker says") == 1


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Topic 'x' already exists.", "Topic 'x' already exists (INVALID_PARTITIONS)"),
        ("The topic x has 3.", "The topic x has 3 (INVALID_PARTITIONS)"),
        ("x is the broker's own.", "x is the broker's own (INVALID_PARTITIONS)"),
        ("Topic has 3.", "topic 'x': Topic has 3 (INVALID_PARTITIONS)"),
        ("No 'y', ax.", "topic 'x': No 'y', ax (INVALID_PARTITIONS)"),
    ],
)
def test_a_topic_that_the_broker_names_is_named_once(message: str, told: str) -> None:
    assert str(error_for(ErrorCode.INVALID_PARTITIONS, message, about="topic 'x'")) == told


def test_broker_messages_that_repeat_the_meaning_of_the_code_are_left_out() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert str(error_for(unknown, "The topic 'x' does not exist.")) == str(error_for(unknown))
    assert "The broker says: it went" in str(error_for(unknown, "it went"))
    disabled = ErrorCode.SECURITY_DISABLED
    assert str(error_for(disabled, "No Authorizer is configured.")) == str(error_for(disabled))


def test_an_unknown_code_is_not_retried_and_keeps_its_number() -> None:
    error = error_for(31999)
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not error.retriable and "31999" in str(error)


def test_error_code_none_has_no_exception() -> None:
    with pytest.raises(ValueError, match="no error"):
        error_for(ErrorCode.NONE)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.PRODUCER_FENCED, errors.Fatal),
        (ErrorCode.INVALID_PRODUCER_EPOCH, errors.Abortable),
        (ErrorCode.TRANSACTION_ABORTABLE, errors.Abortable),
        (ErrorCode.TOPIC_ALREADY_EXISTS, errors.Refused),
        (ErrorCode.REQUEST_TIMED_OUT, TimeoutError),
    ],
)
def test_error_codes_have_their_exception_class(code: ErrorCode, kind: type[Exception]) -> None:
    assert isinstance(error_for(code), kind)


def test_the_docstring_shows_the_whole_exception_tree() -> None:
    shown = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, OdradekError):
            assert name in shown, f"{name} is missing from the tree in the docstring"


def test_exceptions_are_in_the_public_package() -> None:
    import odradek
    from odradek.errors import BufferFull, ConfigError

    assert odradek.errors.BufferFull is BufferFull is errors.BufferFull
    assert odradek.ConfigError is ConfigError

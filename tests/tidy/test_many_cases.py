"""A looped test tries every case, and hides no failure."""

from __future__ import annotations

import pytest

from many_cases import looped


def test_all_cases_are_tried_and_failed_ones_are_named() -> None:
    tried = []

    @looped("number, text", [(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    def check(number: int, text: str) -> None:
        tried.append((number, text))
        if number == 3:
            with pytest.raises(KeyError):
                pass
        assert number != 2

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases failed: 2-b, 3-c") as failed:
        check()
    assert tried == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert [error.__notes__ for error in failed.value.exceptions] == [
        ["in the case 2-b"],
        ["in the case 3-c"],
    ]


def test_a_looped_test_without_a_case_fails() -> None:
    @looped("number", [])
    def check(number: int) -> None:
        raise AssertionError

    with pytest.raises(AssertionError, match="there is no case"):
        check()


_SEEN: list[tuple[int, int]] = []


@pytest.fixture
def seen() -> list[tuple[int, int]]:
    return _SEEN


@looped("number", range(4), by=lambda number: "odd" if number % 2 else "even")
async def test_looped_groups_are_separate_tests_with_fixtures(
    number: int, seen: list[tuple[int, int]]
) -> None:
    seen.append((number, number % 2))


def test_each_case_of_the_groups_was_tried_once(seen: list[tuple[int, int]]) -> None:
    assert seen == [(0, 0), (2, 0), (1, 1), (3, 1)]

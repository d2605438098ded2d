"""The fuzzer's targets without coverage guidance: earlier findings, seeds, and a short run of
mutations.

The mutations are the same on every run. `python -m tests.adversity.fuzz` searches for more.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from tests.adversity.fuzz.limits import check_exactly
from tests.adversity.fuzz.mutations import mutations
from tests.adversity.fuzz.target import TARGETS, Broken, Target, TooMuchMemory, found, load

import budget

_SEEDS_MAX = budget.examples(60)
_MUTATIONS = budget.examples(60)


def _check(target: Target, data: bytes, where: str) -> None:
    try:
        check_exactly(target, data)
    except Exception as problem:
        problem.add_note(where)
        raise


@pytest.fixture
def memory_counted() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    """A target, imported before memory is counted, because counting makes imports slow."""
    return load(request.param)


@pytest.mark.parametrize(
    ("target", "path"),
    [pytest.param(name, path, id=path.stem) for name in TARGETS for path in found(name)],
    indirect=["target"],
)
def test_earlier_findings_are_answered_or_refused(
    target: Target, path: Path, memory_counted: None
) -> None:
    _check(target, path.read_bytes(), str(path))


@pytest.mark.parametrize("target", TARGETS, indirect=True)
@pytest.mark.budgeted
def test_seeds_and_mutations_are_answered_or_refused(target: Target, memory_counted: None) -> None:
    seeds = [seed[: target.input_bytes_max] for seed in target.seeds()]
    seeds = seeds[:: max(1, len(seeds) // _SEEDS_MAX)]
    for data in chain(seeds, mutations(seeds, _MUTATIONS, 1, target.input_bytes_max)):
        _check(target, data, data.hex())


def test_a_target_that_uses_too_much_memory_is_found(memory_counted: None) -> None:
    def hold(data: bytes) -> None:
        assert len(bytes(100 * len(data))) == 100 * len(data)

    greedy = Target(hold, lambda: [b""], memory_bytes=10_000)
    check_exactly(greedy, bytes(90))
    with pytest.raises(TooMuchMemory):
        check_exactly(greedy, bytes(200))
    assert issubclass(TooMuchMemory, Broken)


def test_mutations_are_the_same_on_every_run_and_short_enough() -> None:
    seeds = [b"seed", bytes(50), b""]
    made = list(mutations(seeds, 500, 7, 40))
    assert made == list(mutations(seeds, 500, 7, 40))
    assert made != list(mutations(seeds, 500, 8, 40))
    assert len(set(made)) > 300
    assert max(map(len, made)) == 40

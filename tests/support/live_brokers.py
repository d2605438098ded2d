"""A broker for tests that only send requests: our own broker as a process, or the broker that
`--bootstrap` names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from odradek.broker import SubprocessBroker

OPTION = "--bootstrap"


class LiveBroker(Protocol):
    """A running broker that a test must neither stop nor configure."""

    @property
    def bootstrap(self) -> str:
        """ "HOST:PORT", or several of them separated by commas."""


@dataclass(frozen=True)
class Elsewhere:
    """A broker or cluster that was started outside of the tests."""

    bootstrap: str


def elsewhere(config: pytest.Config) -> Elsewhere | None:
    """The broker that `--bootstrap` names; None without that option."""
    named: str | None = config.getoption(OPTION)
    return Elsewhere(named) if named else None


@contextmanager
def live_broker(
    config: pytest.Config, settings: Mapping[str, object], data_dir: Path | None = None
) -> Iterator[LiveBroker]:
    """Our broker with these settings; or the broker that `--bootstrap` names, with its own
    settings."""
    named = elsewhere(config)
    if named is not None:
        yield named
        return
    with SubprocessBroker(data_dir=data_dir, settings=settings) as running:
        yield running

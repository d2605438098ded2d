"""A broker that tests only talk to: our own as a process, or the one that `--bootstrap` names."""

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
    """Runs somewhere; a test neither stops nor sets it."""

    @property
    def bootstrap(self) -> str:
        """ "HOST:PORT", or several with commas."""


@dataclass(frozen=True)
class Elsewhere:
    """A broker, or a cluster, that somebody else has started."""

    bootstrap: str


def elsewhere(config: pytest.Config) -> Elsewhere | None:
    """What `--bootstrap` names."""
    named: str | None = config.getoption(OPTION)
    return Elsewhere(named) if named else None


@contextmanager
def live_broker(
    config: pytest.Config, settings: Mapping[str, object], data_dir: Path | None = None
) -> Iterator[LiveBroker]:
    """Ours with these settings, unless `--bootstrap` names another, which keeps its own."""
    named = elsewhere(config)
    if named is not None:
        yield named
        return
    with SubprocessBroker(data_dir=data_dir, settings=settings) as running:
        yield running

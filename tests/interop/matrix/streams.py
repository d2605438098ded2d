"""An application of Kafka Streams with exactly-once processing, whose broker is killed and whose
state directory is deleted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.interop.matrix.row import Check, Place

from streams_applications import Application, all_run

_LINES = 300
_BEHIND_THE_RESTART_S = 2.0


def _tried(name: str, act: Callable[[], object]) -> Check:
    try:
        act()
    except (AssertionError, pytest.fail.Exception) as failure:
        return Check(name, str(failure)[-2000:] or "failed")
    return Check(name)


def run(_: Path, place: Place) -> Iterator[Check]:
    """Do a word count and two joins, in a group of each protocol; every result must be there
    once."""
    for protocol in ("classic", "streams"):
        name = f"{place.name}-{protocol}"
        settings = {"group.protocol": protocol}
        application = Application(place.address, name, place.folder, settings=settings)
        application.send(_LINES)
        with application.instance(1) as instance:
            yield _tried(f"{protocol}: it runs", partial(all_run, [instance]))
            yield _tried(f"{protocol}: each result once", application.check)
            application.send(_LINES)
            place.restart()
            # The broker is killed while the instance has work to do.
            application.send(_LINES)
            time.sleep(_BEHIND_THE_RESTART_S)
            place.restart()
            yield _tried(f"{protocol}: the broker is killed twice", application.check)
            yield _tried(f"{protocol}: it closes", instance.close)
        shutil.rmtree(application.folder(1) / "state")
        application.send(_LINES)
        with application.instance(1) as instance:
            yield _tried(
                f"{protocol}: it runs without its state directory", partial(all_run, [instance])
            )
            application.send(_LINES)
            yield _tried(f"{protocol}: the counts go on where they were", application.check)
            yield _tried(f"{protocol}: it closes again", instance.close)

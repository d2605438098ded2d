"""A batch that the exactly-once mirror copies enters only the files that its walk in
`docs/understand/design.md` names."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

import odradek_mirror
from mirrored import DEADLINE_S, fill, make_topic, mirror
from odradek.broker import SubprocessBroker
from walks import named

_FOLDER = odradek_mirror.__path__[0] + "/"
#: The maximum number of files of the mirror that take part.
FILES_MAX = 12
WALK = "A mirror batch, exactly once"


async def test_a_batch_enters_the_documented_files_only(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    address = odradek_broker.bootstrap
    await make_topic(address, unique_topic, 1)
    await fill(address, unique_topic, 1, 5)
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(_FOLDER):
            entered.add(path.removeprefix(_FOLDER))

    async with mirror(address, address, unique_topic, prefix="copy-of-") as made:
        copier = made.make()

        async def copy_all() -> None:
            async with asyncio.timeout(DEADLINE_S):
                while made.counts.positions != made.counts.ends or not made.counts.records:
                    await copier.step(100)

        await copier.start()
        await copier.add(await made.planned())
        await copy_all()
        await fill(address, unique_topic, 1, 5, first=100)
        made.counts.records = 0
        sys.setprofile(note)
        try:
            await copy_all()
        finally:
            sys.setprofile(None)
        await copier.close()
    assert entered - named(WALK) == set()
    assert len(entered) <= FILES_MAX
    assert {"exactly_once.py", "batches.py", "transactional_writer.py"} < entered

"""The program of docs/use/share-groups.md, run against a scripted broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from share_broker import ShareBroker
from share_leader import ACKNOWLEDGED, ARCHIVED
from snippets import snippets

PAGE = Path(__file__).parents[2] / "docs" / "use" / "share-groups.md"
PATIENCE_S = 60


async def test_the_work_queue_does_what_the_page_says() -> None:
    (program,) = [
        each for each in snippets(PAGE.read_text("utf-8"), PAGE.name) if each.language == "python"
    ]
    async with ShareBroker("jobs", partitions=1) as broker:
        code = program.code.replace("127.0.0.1:9092", broker.address)
        task = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE_S):
            printed, said = await task.communicate()
        assert task.returncode == 0, said.decode()
        assert printed.decode() == "['1 at attempt 1', '2 at attempt 2', 'rejected']\n"
        assert broker.states() == [ACKNOWLEDGED, ACKNOWLEDGED, ARCHIVED]

"""The recorded results of Kafka, and a way to get those of any broker."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from tests.oracle.batches.ask import Asker
from tests.oracle.batches.cases import CASES

from raw_client import RawClient

FILE = Path(__file__).with_name("answers.json")


async def ask_all(host: str, port: int) -> dict[str, dict[str, Any]]:
    """The results of all cases by title. The broker must not have the topics of the cases yet."""
    client = RawClient(*await asyncio.open_connection(host, port))
    try:
        asker = Asker(client, lambda: time.time_ns() // 1_000_000)
        await asker.create_topics()
        return {case.title: await asker.ask(case) for case in CASES}
    finally:
        client.close()


def load() -> dict[str, dict[str, Any]]:
    found = json.loads(FILE.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def save(answers: dict[str, dict[str, Any]]) -> None:
    """Write the results, one case per line."""
    lines = [f"{json.dumps(title)}: {json.dumps(said)}" for title, said in answers.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")

"""Batches of 30 MB, mirrored to targets that accept and to targets that refuse requests of this
size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic
from odradek_client.structs import TopicPartition

_LARGE_BYTES = 30_000_000
_LIMIT = "socket.request.max.bytes"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SubprocessBroker]:
    with SubprocessBroker(data_dir=tmp_path_factory.mktemp("source")) as broker:
        yield broker


def _mirror(source: SubprocessBroker, target: SubprocessBroker, *words: str) -> tuple[int, str]:
    """Run `odradek mirror`; returns (exit code, output)."""
    command = [sys.executable, "-m", "odradek", "mirror", *words]
    command += ["--from", source.bootstrap, "--to", target.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.full
async def test_a_batch_of_30_mb_is_mirrored(source: SubprocessBroker, tmp_path: Path) -> None:
    setting = {"max.message.bytes": str(2 * _LARGE_BYTES)}
    async with Admin(bootstrap_servers=source.bootstrap) as admin:
        await admin.create_topics(NewTopic("large", 2, configs=setting))
    async with Producer(
        bootstrap_servers=source.bootstrap,
        max_request_size=2 * _LARGE_BYTES,
        buffer_memory=4 * _LARGE_BYTES,
    ) as producer:
        for value in (b"first", b"x" * _LARGE_BYTES, b"last"):
            for partition in range(2):
                await producer.send_and_wait("large", value, partition=partition)
    with SubprocessBroker(data_dir=tmp_path / "target") as target:
        status, told = _mirror(source, target)
        assert status == 0, told
        status, told = _mirror(source, target, "check")
        assert status == 0, told
    with SubprocessBroker(data_dir=tmp_path / "small", settings={_LIMIT: "2000000"}) as target:
        status, told = _mirror(source, target)
        assert status == 1
        for partition in range(2):
            sentence = f"large-{partition}: the batch at or after offset 1 has 30000"
            assert sentence in told
        assert f"the target takes requests of at most 2000000: raise {_LIMIT}" in told
        tps = [TopicPartition("large", number) for number in range(2)]
        async with Admin(bootstrap_servers=target.bootstrap) as admin:
            ends = await admin.list_offsets(dict.fromkeys(tps, "latest"))
        assert [found and found.offset for found in ends.values()] == [1, 1]

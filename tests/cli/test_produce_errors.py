"""Messages of `odradek produce` for a failure of its input or of the cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek_cli.common import RecordCounter
from odradek_cli.records.produce import InputError, InputJob, LineFormat, _produce_file, _Run
from odradek_client.errors import (
    BufferTimeout,
    DeliveryTimeout,
    MetadataTimeout,
    OdradekError,
    RequestTimedOut,
)


class FailingProducer:
    """A producer for which every topic exists and every record fails."""

    def __init__(self, error: OdradekError) -> None:
        self._error = error
        self.network = SimpleNamespace(cluster=SimpleNamespace(brokers={1: None}), send=self.send)

    async def partitions_for(self, topic: str) -> list[int]:
        return [0]

    async def send(self, *arguments: Any, **more: Any) -> Any:
        raise self._error


async def produce(source: Path, producer: Any) -> None:
    plain = LineFormat(None, None, [], empty_is_null=False, json=False, keep_partition=False)
    job = InputJob([source], b"\n", plain, None, RecordCounter("producing", None))
    await _produce_file(producer, _Run("t"), source, job)


@pytest.mark.parametrize("kind", [BufferTimeout, DeliveryTimeout, MetadataTimeout, RequestTimedOut])
async def test_client_timeouts_are_not_reported_as_input_errors(
    tmp_path: Path, kind: type[OdradekError]
) -> None:
    """Time-outs of the client are OSErrors, as Python's own are."""
    source = tmp_path / "lines"
    source.write_bytes(b"one\n")
    error = kind("the broker does not keep up")
    assert isinstance(error, OSError)
    with pytest.raises(kind) as raised:
        await produce(source, FailingProducer(error))
    assert raised.value is error


async def test_input_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int, count: int) -> bytes:
        raise OSError(5, "Input/output error")

    source = tmp_path / "lines"
    source.write_bytes(b"one\n")
    monkeypatch.setattr("odradek_cli.records.produce.os.read", broken)
    with pytest.raises(InputError, match=r"lines cannot be read: Input/output error"):
        await produce(source, FailingProducer(BufferTimeout("never asked")))

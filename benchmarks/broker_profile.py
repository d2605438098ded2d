"""Where the broker's time goes: cProfile of a broker under one load from confluent-kafka.

    python -m benchmarks.broker_profile
        [produce-16k|produce-1m|produce-idempotent|single|consume|transactions]
        [--durability page-cache|fsync] [--lines 40]

The profiler makes calls several times as slow as they are, so this is for comparing shares; what a
request costs is in `python -m benchmarks.broker`.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import multiprocessing
import os
import pstats
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.broker import Load, consume_raw, create_topic, latencies_ms, produce
from benchmarks.support import Target, parser, say
from benchmarks.transactions import ConfluentRun
from confluent_kafka import Producer

LOADS = {
    "produce-16k": Load(1000, 16_384, False, 200_000),
    "produce-1m": Load(1000, 1_000_000, False, 400_000),
    "produce-idempotent": Load(1000, 16_384, True, 200_000),
    "produce-100b": Load(100, 16_384, False, 800_000),
    "consume": Load(1000, 16_384, False, 200_000),
}
SINGLE_RECORDS = 3_000
TRANSACTIONS = 2_000


def _serve(pipe: Connection, data_dir: str, durability: str, result: str) -> None:
    from odradek_broker.config.broker import parse_config
    from odradek_broker.platform.log_lines import configure_logging
    from odradek_broker.server.host import run
    from odradek_broker.server.server import serve

    configure_logging(level="warning")
    config, _ = parse_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": data_dir,
            "log.durability": durability,
        }
    )

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        profile = cProfile.Profile()

        def told() -> None:
            """First word: begin; second: end."""
            if pipe.recv() == "begin":
                profile.enable()
                pipe.send("begun")
            else:
                profile.disable()
                loop.remove_reader(pipe.fileno())
                profile.dump_stats(result)
                task.cancel()

        loop.add_reader(pipe.fileno(), told)
        with contextlib.suppress(asyncio.CancelledError):
            await serve(
                config, lambda host, port: pipe.send(f"{host}:{port}"), handle_signals=False
            )

    run(main())


@contextlib.contextmanager
def profiled_broker(durability: str, result: str) -> Iterator[tuple[Target, Connection]]:
    """A broker that profiles itself between "begin" and "end" on the pipe."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as directory:
        process = context.Process(
            target=_serve, args=(theirs, directory, durability, result), daemon=True
        )
        process.start()
        theirs.close()
        try:
            if not ours.poll(30):
                raise SystemExit("the broker did not start")
            assert process.pid is not None
            yield Target("profiled", ours.recv(), process.pid), ours
            ours.send("end")
        finally:
            process.join(30)
            if process.is_alive():
                process.terminate()


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "load", nargs="?", default="produce-16k", choices=[*LOADS, "single", "transactions"]
    )
    options.add_argument("--durability", default="page-cache", choices=["page-cache", "fsync"])
    options.add_argument("--lines", type=int, default=40)
    arguments = options.parse_args()
    if arguments.json:
        options.error("a profile has no JSON form")
    handle, result = tempfile.mkstemp(suffix=".prof")
    os.close(handle)
    try:
        with profiled_broker(arguments.durability, result) as (target, pipe):
            say(f"{arguments.load}, {arguments.durability}")
            topic = create_topic(target.bootstrap)
            if arguments.load == "consume":
                produce(target, topic, LOADS["consume"])
            pipe.send("begin")
            pipe.recv()
            if arguments.load == "single":
                producer = Producer(
                    {"bootstrap.servers": target.bootstrap, "linger.ms": 0, "log_level": 0}
                )
                latencies_ms(producer, topic, SINGLE_RECORDS)
            elif arguments.load == "transactions":
                ConfluentRun(target.bootstrap).transactional(topic, TRANSACTIONS, 1)
            elif arguments.load == "consume":
                consume_raw(target, topic, LOADS["consume"].records)
            else:
                produce(target, topic, LOADS[arguments.load])
        pstats.Stats(result).sort_stats("tottime").print_stats(arguments.lines)
    finally:
        Path(result).unlink()


if __name__ == "__main__":
    main()

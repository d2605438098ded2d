"""The main function of the host process of virtual clusters. The process warms up, and then serves
until standard input is closed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, cast

from odradek_broker.platform.log_lines import configure_logging
from odradek_broker.server.dispatch import import_handler
from odradek_broker.server.host import run
from odradek_broker.server.server import serve
from odradek_protocol.codec import decoder, encoder
from odradek_protocol.keys import APIS
from odradek_testkit.fault_control.control import FaultControl
from odradek_testkit.virtual_clusters.host import ClusterHost, HostedCluster
from odradek_testkit.virtual_clusters.http import ClusterServer
from odradek_testkit.virtual_clusters.settings import shown


def main() -> None:
    """Serve until standard input is closed."""
    # Ctrl+C is meant for the program that started this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = json.loads(_first_line() or "{}")
    root = Path(tempfile.mkdtemp(prefix="odradek-clusters-"))
    try:
        configure_logging("auto", "error")
        run(_warm_up(root / "first"))
        shutil.rmtree(root / "first")
        gc.enable()
        asyncio.run(_serve(root, first.get("settings", {}), first.get("after", 0)))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _first_line() -> bytes:
    """The first line of standard input, read without a buffer, because the event loop waits for
    later input."""
    line = b""
    while not line.endswith(b"\n"):
        found = os.read(0, 64 * 1024)
        if not found:
            break
        line += found
    return line


async def _warm_up(folder: Path) -> None:
    """Run a broker once, so that forks begin with all modules imported and all codecs generated."""
    task = asyncio.current_task()
    assert task is not None
    for key in APIS:
        import_handler(key)

    def ready(_host: str, _port: int) -> None:
        task.cancel()

    try:
        await serve(
            HostedCluster(0, folder, {}).config(),
            ready,
            handle_signals=False,
            under_test=FaultControl(),
        )
    except asyncio.CancelledError:
        task.uncancel()


async def _serve(root: Path, settings: dict[str, str], after: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(0, lambda: None if os.read(0, 4096) else ended.set())
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    host = ClusterHost(root, settings, after)
    server = ClusterServer(host)
    print(json.dumps({"http": shown(*server.start())}), flush=True)
    host.start_ahead()
    generating = asyncio.create_task(_generate_codecs(host))
    await ended.wait()
    generating.cancel()
    await server.close()
    await host.close()


async def _generate_codecs(host: ClusterHost) -> None:
    """Generate the codecs of all requests, newest versions first, so that later forks have them.
    Otherwise the first requests to a broker take ten times as long, because each codec is generated
    at its first use."""
    versions = [(version, api) for api in APIS.values() for version in api.versions]
    for version, api in sorted(versions, key=lambda each: each[1].versions.last - each[0]):
        decoder(cast(Any, api.request), version)
        encoder(cast(Any, api.response), version)
        # Let orders run first.
        await asyncio.sleep(0)
    gc.collect()
    gc.freeze()
    host.renew_spares()

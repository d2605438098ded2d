"""The cancellation of background tasks."""

from __future__ import annotations

import asyncio


async def cancel(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel the tasks, and wait until all have ended. Their exceptions are ignored."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)

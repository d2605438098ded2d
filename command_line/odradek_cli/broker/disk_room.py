"""The free space on the brokers' disks, for a command that waits because a broker cannot write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_client.words import counted

if TYPE_CHECKING:
    from odradek_client.admin import Admin

#: A disk with less space left counts as full: a batch of records may need as much.
_ROOM_BYTES = 1024 * 1024


async def full_disks(admin: Admin) -> str:
    """The data directories without room, for a message; empty if all have room or no broker
    answers."""
    from odradek_client.errors import OdradekError

    try:
        found = await admin.describe_log_dirs(raise_errors=False)
    except OdradekError:
        return ""
    return ", ".join(
        f"{each.path} of broker {node_id} has {counted(each.usable_bytes, 'byte')} left"
        for node_id, directories in found.items()
        for each in directories
        if each.usable_bytes is not None and each.usable_bytes < _ROOM_BYTES
    )

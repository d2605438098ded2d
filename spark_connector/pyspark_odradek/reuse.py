"""Batch reads that are planned once and used by several queries (S-21).

Spark plans the read of a loaded DataFrame at its first query, and keeps the plan for all later
queries. Only the tasks can notice that the topics have changed since then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pyspark import TaskContext

from odradek_client.errors import OdradekError
from odradek_client.network.client import NetworkClient
from pyspark_odradek import blocking, cluster
from pyspark_odradek.errors import DataLoss, OptionsError, SourceError
from pyspark_odradek.options import SourceOptions
from pyspark_odradek.planning import Partition
from pyspark_odradek.task_properties import BATCH_PROPERTY, EXECUTION_PROPERTY, QUERY_PROPERTY

log = logging.getLogger("odradek.spark")

_CHECK_TIMEOUT_S = 5.0
#: A process remembers the queries of at most this number of plans.
_PLANS_MAX = 256
_SHOWN = 5


@dataclass(frozen=True)
class PlannedOffsets:
    """The end of each partition's range, and the topic ids, at the time of a plan."""

    ends: Mapping[Partition, int]
    topic_ids: Mapping[str, bytes]
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    time: str = field(
        default_factory=lambda: f"{datetime.now(UTC).replace(tzinfo=None):%Y-%m-%d %H:%M:%S} UTC"
    )

    @property
    def remedy(self) -> str:
        """The advice about records that were deleted since the plan was made."""
        return (
            f"The DataFrame was planned at {self.time}, at its first query, and is not planned "
            "again: call load() again to read what there is now"
        )


@dataclass
class _Use:
    """The queries with one plan. `first`: the first one that had a task in this executor;
    `left_out`: what the query `checked` does not read."""

    first: str
    checked: str = ""
    left_out: str = ""


_uses: OrderedDict[str, _Use] = OrderedDict()


def check(snapshot: PlannedOffsets, options: SourceOptions) -> None:
    """Report records that were written since the first query with this plan. Each task calls this
    function before it reads.

    A later query causes a warning, and a later batch of a stream DataLoss, unless `failOnDataLoss`
    is off.
    """
    context = TaskContext.get()
    if context is None:
        return
    batch = context.getLocalProperty(BATCH_PROPERTY)
    if batch is not None:
        query = f"{context.getLocalProperty(QUERY_PROPERTY)} {batch}"
    else:
        query = context.getLocalProperty(EXECUTION_PROPERTY) or f"stage {context.stageId()}"
    use = _use_of(snapshot, query)
    if query == use.first:
        return
    known = use.left_out
    if query != use.checked:
        network = blocking.network(options.client)
        try:
            use.left_out = blocking.shared().thread.run(
                _left_out(network, options, snapshot), _CHECK_TIMEOUT_S
            )
        except (OdradekError, OptionsError, SourceError, TimeoutError) as error:
            log.debug("odradek: it is not known whether records were left out: %s", error)
            return
        use.checked = query
    if not use.left_out:
        return
    text = (
        f"odradek: a DataFrame that was planned at {snapshot.time}, at its first query, leaves out what "
        f"was written since: {use.left_out}. Spark plans it once for each load(): "
    )
    if batch is not None and options.fail_on_data_loss:
        raise DataLoss(
            f"{text}load() it in foreachBatch, for every batch of the stream. If the rows of that time "
            "are meant, name its endingOffsets or set its failOnDataLoss to false"
        )
    if use.left_out != known:
        log.warning("%scall load() again to read everything", text)


def _use_of(snapshot: PlannedOffsets, query: str) -> _Use:
    use = _uses.get(snapshot.name)
    if use is None:
        use = _uses[snapshot.name] = _Use(_first_query(snapshot.name, query))
    _uses.move_to_end(snapshot.name)
    if len(_uses) > _PLANS_MAX:
        _uses.popitem(last=False)
    return use


def _first_query(plan: str, query: str) -> str:
    """The first query with a plan. The workers of an executor share the folder in which Spark keeps
    its blocks, and a symbolic link, whose target is the query, is written in one step."""
    blocks = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not blocks:
        return query
    folder = Path(blocks, "odradek-plans")
    place = folder / plan
    try:
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            place.symlink_to(query)
            links = sorted(folder.iterdir(), key=lambda each: each.lstat().st_mtime)
            for old in links[:-_PLANS_MAX]:
                old.unlink(missing_ok=True)
        return str(place.readlink())
    except OSError:
        # Another worker has removed old links, or there are no links here: only this process
        # remembers the query.
        return query


async def _left_out(
    network: NetworkClient, options: SourceOptions, snapshot: PlannedOffsets
) -> str:
    """The records that a new plan would have and this plan has not, in words; "" if there are
    none."""
    present = await cluster.plan(network, options)
    anew = [
        topic
        for topic, topic_id in sorted(present.topic_ids.items())
        if snapshot.topic_ids.get(topic, topic_id) != topic_id
    ]
    found = [f"topic {each!r}, which was created again" for each in anew]
    for partition, start, end in present.ranges:
        planned = snapshot.ends.get(partition, start)
        if end > planned and partition.topic not in anew:
            found.append(f"offsets from {planned} to {end - 1} of {partition}")
    more = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f" and {more} more" if more > 0 else "")

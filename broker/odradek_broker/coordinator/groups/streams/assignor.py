"""The assignor of streams groups, Kafka's `sticky` (rule J-40).

The assignor is a pure function: it computes new targets from the tasks of a topology and the
present targets. Every task stays with its member, as far as the load allows, and any other task is
assigned to the least loaded member of the least loaded process.

Among equally good choices Kafka takes the first in the order of Java's collections. `hash_order`
and `_Queue` reproduce this order, so that the same sequence of assignments leads to the same
targets as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from odradek_broker.coordinator.groups.partitions import Tasks, each_partition, partitions_of
from odradek_broker.coordinator.groups.streams.tasks import Task, TaskSet
from odradek_broker.coordinator.groups.streams.topology import ConfiguredSubtopology
from odradek_broker.coordinator.shards import java_hash
from odradek_broker.slices import in_pieces, in_sorted_order, paced
from odradek_protocol.lazy_dataclass import dataclass

T = TypeVar("T")

_HASH_BITS = 0xFFFF_FFFF
_CAPACITY_MIN = 16


@dataclass(frozen=True, slots=True)
class AssignmentMember:
    """A member as the assignor sees it: its process, and its present target."""

    process_id: str
    target: TaskSet


async def assign_sticky(
    subtopologies: Mapping[str, ConfiguredSubtopology],
    members: Mapping[str, AssignmentMember],
    standby_replicas: int,
) -> dict[str, TaskSet]:
    """The new targets by member id."""
    if not members:
        return {}
    assignment = _Assignment(subtopologies, members, standby_replicas)
    await assignment.look_at_members()
    await assignment.assign_active()
    if standby_replicas:
        await assignment.assign_standby()
    return await assignment.targets()


# --- Java's order ---


async def hash_order(keys: Iterable[str], capacity: int = _CAPACITY_MIN) -> list[str]:
    """The keys in the order of iteration of a Java HashMap of this capacity, after insertion in the
    given order."""
    listed = list(keys)
    buckets = 1
    while buckets < capacity or len(listed) * 4 > buckets * 3:
        buckets *= 2
    bucket_of = {
        key: _spread(key) & (buckets - 1) async for some in in_pieces(listed) for key in some
    }
    return sorted(listed, key=bucket_of.__getitem__)


def _spread(key: str) -> int:
    hashed = java_hash(key) & _HASH_BITS
    return hashed ^ (hashed >> 16)


class _Queue(Generic[T]):
    """A binary heap that takes equal entries in the order of Java's PriorityQueue."""

    def __init__(self, load: Callable[[T], float]) -> None:
        self._load = load
        self._heap: list[T] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, entry: T) -> None:
        heap, load = self._heap, self._load(entry)
        at = len(heap)
        heap.append(entry)
        while at:
            parent = (at - 1) // 2
            if load >= self._load(heap[parent]):
                break
            heap[at], at = heap[parent], parent
        heap[at] = entry

    def take(self) -> T:
        """Remove the entry with the least load."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        if not heap:
            return first
        load, at = self._load(last), 0
        while (child := 2 * at + 1) < len(heap):
            right = child + 1
            if right < len(heap) and self._load(heap[child]) > self._load(heap[right]):
                child = right
            if load <= self._load(heap[child]):
                break
            heap[at], at = heap[child], child
        heap[at] = last
        return first


# --- Load ---


@dataclass(slots=True)
class _Place:
    """A member with the tasks assigned to it."""

    member_id: str
    active: set[Task] = field(default_factory=set)
    standby: set[Task] = field(default_factory=set)

    @property
    def count(self) -> int:
        return len(self.active) + len(self.standby)


class _Process:
    """A client process, whose members share its memory and its state on disk."""

    def __init__(self) -> None:
        self.places: dict[str, _Place] = {}
        #: The members in Java's order.
        self.order: list[str] = []
        self._count = 0
        self._tasks: set[Task] = set()
        self._queue: _Queue[_Place] | None = None

    def add_member(self, place: _Place) -> None:
        self.places[place.member_id] = place

    @property
    def load(self) -> float:
        """The average number of tasks per member."""
        return self._count / len(self.places)

    def has(self, task: Task) -> bool:
        return task in self._tasks

    def add(self, member_id: str, task: Task, *, active: bool) -> int:
        """Give a task to a member; returns the member's number of tasks."""
        self._queue = None
        return self._add(self.places[member_id], task, active=active)

    def add_to_least_loaded(self, task: Task, *, active: bool) -> int:
        """Give a task to the member with the fewest tasks; returns the member's number of tasks."""
        if len(self.places) == 1:
            return self._add(next(iter(self.places.values())), task, active=active)
        if self._queue is None:
            self._queue = _Queue(lambda place: place.count)
            for member_id in self.order:
                self._queue.add(self.places[member_id])
        place = self._queue.take()
        count = self._add(place, task, active=active)
        self._queue.add(place)
        return count

    def _add(self, place: _Place, task: Task, *, active: bool) -> int:
        (place.active if active else place.standby).add(task)
        self._count += 1
        self._tasks.add(task)
        return place.count


class _Quota:
    """The limit of tasks per member, by which all members get about the same number. When a member
    has reached its quota, the quota of the other members is computed again."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.each = 0
        self._share()

    def _share(self) -> None:
        self.each = -(-self._tasks // self._members) if self._members else 0

    def counted(self, count: int) -> None:
        """Called when a member has this number of tasks."""
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self._share()


class _Assignment:
    def __init__(
        self,
        subtopologies: Mapping[str, ConfiguredSubtopology],
        members: Mapping[str, AssignmentMember],
        standby_replicas: int,
    ) -> None:
        self._subtopologies = subtopologies
        self._members = members
        self._replicas = standby_replicas
        active = sum(each.tasks for each in subtopologies.values())
        stateful = sum(each.tasks for each in subtopologies.values() if each.is_stateful)
        self._active_quota = _Quota(active, len(members))
        self._quota = _Quota(active + stateful * standby_replicas, len(members))
        self._processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        self._was_active: dict[Task, str] = {}
        self._was_standby: dict[Task, list[str]] = {}

        self._order: list[str] = []

    async def look_at_members(self) -> None:
        """Note the processes of the members, and the tasks that they have."""
        async for some in in_pieces(await hash_order(self._members)):
            for member_id in some:
                member = self._members[member_id]
                process = self._processes.setdefault(member.process_id, _Process())
                process.add_member(_Place(member_id))
                self._process_of[member_id] = process
                async for tasks in in_pieces(each_partition(member.target.active)):
                    self._was_active.update(dict.fromkeys(tasks, member_id))
                async for tasks in in_pieces(each_partition(member.target.standby)):
                    for task in tasks:
                        self._was_standby.setdefault(task, []).append(member_id)
        self._order = await hash_order(self._processes, len(self._members))
        async for several in in_pieces(self._processes.values()):
            for process in several:
                process.order = await hash_order(process.places)

    async def _tasks(self, *, stateful: bool) -> list[Task]:
        """The tasks, sorted by their index."""
        tasks = [
            (index, each_id)
            async for each_id, each in paced(self._subtopologies.items())
            if each.is_stateful or not stateful
            for index in range(each.tasks)
        ]
        ordered = await in_sorted_order(tasks)
        return [(each_id, index) async for some in in_pieces(ordered) for index, each_id in some]

    async def _queue(self) -> _Queue[_Process]:
        queue: _Queue[_Process] = _Queue(lambda process: process.load)
        async for some in in_pieces(self._order):
            for process_id in some:
                queue.add(self._processes[process_id])
        return queue

    def _count(self, member_id: str) -> int:
        return self._process_of[member_id].places[member_id].count

    # --- Active tasks ---

    async def assign_active(self) -> None:
        """Assign the active tasks: first where they are active now, then where they are standby,
        then to the least loaded process."""
        waiting = [
            task
            async for some in in_pieces(await self._tasks(stateful=False))
            for task in some
            if not self._keep(task, self._was_active.get(task))
        ]
        waiting = [
            task
            async for some in in_pieces(waiting)
            for task in some
            if not self._keep(task, self._least_loaded(self._was_standby.get(task, ())))
        ]
        queue = await self._queue()
        async for some in in_pieces(await in_sorted_order(waiting)):
            for task in some:
                process = queue.take()
                count = process.add_to_least_loaded(task, active=True)
                self._active_quota.counted(count)
                self._quota.counted(count)
                queue.add(process)

    def _keep(self, task: Task, member_id: str | None) -> bool:
        if member_id is None or self._count(member_id) >= self._active_quota.each:
            return False
        count = self._process_of[member_id].add(member_id, task, active=True)
        self._active_quota.counted(count)
        self._quota.counted(count)
        return True

    def _least_loaded(self, member_ids: Sequence[str], without: Task | None = None) -> str | None:
        """The least loaded member among `member_ids`. If the task `without` is given, members whose
        process has this task are left out. As in Kafka, a later member replaces an earlier choice
        only if both the process and the member have less load."""
        if not member_ids:
            return None
        first = self._process_of[member_ids[0]]
        chosen, process_load, load = member_ids[0], first.load, self._count(member_ids[0])
        for member_id in member_ids[1:]:
            process = self._process_of[member_id]
            if without is not None and process.has(without):
                continue
            if process.load < process_load and self._count(member_id) < load:
                chosen, process_load, load = member_id, process.load, self._count(member_id)
        return None if without is not None and first.has(without) else chosen

    # --- Standby tasks ---

    async def assign_standby(self) -> None:
        """Assign the standby tasks: first where they are standby now, or were active and moved
        away, then to the least loaded process that does not have the task."""
        waiting: list[tuple[Task, int]] = []
        async for some in in_pieces((await self._tasks(stateful=True))[::-1]):
            for task in some:
                for given in range(self._replicas):
                    if not self._keep_standby(task):
                        waiting.append((task, self._replicas - given))
                        break
        queue = await self._queue()
        async for several in in_pieces((await in_sorted_order(waiting))[::-1]):
            for task, replicas in several:
                for _ in range(replicas):
                    if not self._add_standby(queue, task):
                        break

    def _keep_standby(self, task: Task) -> bool:
        was_active = self._was_active.get(task)
        moved = was_active is not None and not self._process_of[was_active].has(task)
        if moved and was_active is not None and self._standby(was_active, task):
            return True
        was_standby = self._least_loaded(self._was_standby.get(task, ()), task)
        return was_standby is not None and self._standby(was_standby, task)

    def _standby(self, member_id: str, task: Task) -> bool:
        if self._count(member_id) >= self._quota.each:
            return False
        self._quota.counted(self._process_of[member_id].add(member_id, task, active=False))
        return True

    def _add_standby(self, queue: _Queue[_Process], task: Task) -> bool:
        """Give a standby task to the least loaded process without the task; False if there is
        none."""
        passed: list[_Process] = []
        found = False
        while queue and not found:
            process = queue.take()
            passed.append(process)
            if not process.has(task):
                self._quota.counted(process.add_to_least_loaded(task, active=False))
                found = True
        for process in reversed(passed):
            queue.add(process)
        return found

    async def targets(self) -> dict[str, TaskSet]:
        places = [each for process in self._processes.values() for each in process.places.values()]
        return {
            place.member_id: TaskSet(
                await _by_subtopology(place.active), await _by_subtopology(place.standby)
            )
            async for some in in_pieces(places)
            for place in some
        }


async def _by_subtopology(tasks: Iterable[Task]) -> Tasks:
    indexes: dict[str, list[int]] = {}
    async for some in in_pieces(tasks):
        for each_id, index in some:
            indexes.setdefault(each_id, []).append(index)
    return partitions_of(indexes.items())

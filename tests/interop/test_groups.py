"""Groups of foreign clients: their shares of partitions, members that leave and join, committed
offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from foreign_clients import CLIENTS, Client, Member, Record, Settings
from waiting import wait_until

NewTopic = Callable[..., str]
PARTITIONS = 6
_PRODUCER = CLIENTS[0]

#: Three members of each library, and a group of all three libraries.
GROUPS: list[Sequence[Client]] = [[client] * 3 for client in CLIENTS]
GROUPS.append(CLIENTS)


class Group:
    """The members of a group, and the records that are sent to them."""

    def __init__(self, address: str, name: str, topic: str) -> None:
        self.address, self.name, self.topic = address, name, topic
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.produced: list[bytes] = []

    def join(self, client: Client) -> None:
        member = Member(client, self.address, self.name, self.topic)
        self.members.append(member)
        member.start()

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        self.gone.append(member)
        member.leave()

    def settle(self) -> None:
        """Wait until every partition has one owner, and all members have equally many
        partitions."""
        share = PARTITIONS // len(self.members)

        def settled() -> bool:
            for member in self.members:
                if member.error is not None:
                    raise member.error
            held = [member.partitions for member in self.members]
            return (
                all(len(part) == share for part in held)
                and sum(map(len, held)) == len(set().union(*held)) == PARTITIONS
            )

        wait_until(settled, f"{[member.partitions for member in self.members]} are shares")

    def produce(self, count: int) -> None:
        values = [b"%d" % (len(self.produced) + number) for number in range(count)]
        records = [
            Record(None, value, partition=number % PARTITIONS)
            for number, value in enumerate(values)
        ]
        _PRODUCER.produce(self.address, self.topic, records, Settings())
        self.produced += values
        wait_until(
            lambda: set(self.read()) == set(self.produced), f"all {len(self.produced)} are read"
        )

    def read(self) -> list[bytes]:
        members = self.members + self.gone
        return [record.value or b"" for member in members for record in member.records]


@pytest.fixture
def group(address: str, new_topic: NewTopic, request: pytest.FixtureRequest) -> Iterator[Group]:
    """A group without members, and a new topic for it."""
    made = Group(address, f"group of {request.node.name}", new_topic(PARTITIONS))
    yield made
    for member in list(made.members):
        made.leave(member)


@pytest.mark.full
@pytest.mark.parametrize(
    "clients",
    [*(pytest.param(group, marks=pytest.mark.full) for group in GROUPS[:-1]), GROUPS[-1]],
    ids=lambda clients: "-".join(sorted({client.name for client in clients})),
)
def test_g_members_share_partitions_while_one_leaves_and_one_joins(
    clients: Sequence[Client], group: Group
) -> None:
    for client in clients:
        group.join(client)
    group.settle()
    group.produce(60)
    group.leave(group.members[1])
    group.settle()
    group.produce(60)
    group.join(clients[1])
    group.settle()
    group.produce(60)
    # Every member that has partitions has read a record.
    assert all(member.records for member in group.members)


@pytest.mark.parametrize("first", CLIENTS, ids=lambda client: f"committed-by-{client.name}")
@pytest.mark.parametrize("second", CLIENTS, ids=lambda client: f"resumed-by-{client.name}")
def test_o_a_group_resumes_at_its_committed_offsets(
    first: Client, second: Client, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    records = [Record(b"%d" % number, b"v") for number in range(10)]
    first.produce(address, topic, records, Settings())
    group = f"resume-{first.name}-{second.name}"
    assert first.consume_and_commit(address, topic, group, 4) == records[:4]
    assert second.consume_and_commit(address, topic, group, 3) == records[4:7]
    assert first.consume_and_commit(address, topic, group, 3) == records[7:]

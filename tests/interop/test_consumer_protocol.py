"""librdkafka as a member of consumer groups (KIP-848, `group.protocol=consumer`): a check of our
broker and of our client."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, TopicPartition

import budget
from broker_process import BrokerProcess
from waiting import wait_until

NewTopic = Callable[..., str]
Place = tuple[str, int]
PARTITIONS = 6

#: A program that joins a group and prints its partitions until it is killed.
_MEMBER = """
import sys, confluent_kafka
address, group, topic = sys.argv[1:]
consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group,
                                     "group.protocol": "consumer"})
consumer.subscribe([topic])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


class Member:
    """A consumer that a thread polls."""

    def __init__(self, address: str, group: str, *topics: str, **settings: str) -> None:
        self.owned: frozenset[Place] = frozenset()
        self.values: list[bytes] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._closed = False
        config = {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "log_level": "0",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.consumer = confluent_kafka.Consumer(config)
        self.consumer.subscribe(list(topics))
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            message = self.consumer.poll(0.02)
            if message is not None:
                error = message.error()
                if error is None:
                    self.values.append(message.value() or b"")
                else:
                    self.errors.append(str(error))
            held = self.consumer.assignment()
            self.owned = frozenset((place.topic, place.partition) for place in held)

    def rest(self) -> None:
        """Stop polling: a commit takes librdkafka a second or more while another thread polls."""
        self._stop.set()
        self._thread.join(10)

    def close(self) -> None:
        self.rest()
        if not self._closed:
            self._closed = True
            self.consumer.close()

    def commit(self, place: Place, offset: int) -> None:
        self.rest()
        self.consumer.commit(offsets=[TopicPartition(*place, offset)], asynchronous=False)


class Group:
    """Members of one group, closed at the end."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address, name
        self.members: list[Member] = []

    def join(self, *topics: str, **settings: str) -> Member:
        member = Member(self.address, self.name, *topics, **settings)
        self.members.append(member)
        return member

    def settle(self, places: set[Place], members: list[Member] | None = None) -> None:
        """Wait until every partition has one owner, and the numbers of the members' partitions
        differ by at most one."""
        among = self.members if members is None else members

        def settled() -> bool:
            held = [member.owned for member in among]
            sizes = [len(part) for part in held]
            even = max(sizes) - min(sizes) <= 1
            return even and sum(sizes) == len(places) and set().union(*held) == places

        wait_until(settled, f"{[sorted(member.owned) for member in among]} are shares of {places}")

    def close(self) -> None:
        for member in self.members:
            member.close()


@pytest.fixture
def group(address: str, request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(address, f"consumer-{request.node.name}")
    yield made
    made.close()


@pytest.fixture
def admin(address: str) -> confluent_kafka.admin.AdminClient:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": address, "log_level": 0})


def all_of(topic: str, count: int = PARTITIONS) -> set[Place]:
    return {(topic, index) for index in range(count)}


def produce(address: str, topic: str, first: int, count: int) -> set[bytes]:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "log_level": 0})
    values = {b"%d" % number for number in range(first, first + count)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(20) == 0
    return values


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_g121_three_members_share_partitions_and_leave(
    group: Group, new_topic: NewTopic, assignor: str
) -> None:
    topic = new_topic(PARTITIONS)
    for _ in range(3):
        group.join(topic, group_remote_assignor=assignor)
    group.settle(all_of(topic))
    values = produce(group.address, topic, 0, 60)
    wait_until(lambda: values == {value for member in group.members for value in member.values},
               "all are read")  # fmt: skip
    assert sum(len(member.values) for member in group.members) == 60, "each of them once"
    group.members.pop().close()
    group.settle(all_of(topic))
    assert not any(member.errors for member in group.members)


def test_g146_a_pattern_subscription_includes_later_topics(
    group: Group, new_topic: NewTopic, address: str, admin: confluent_kafka.admin.AdminClient
) -> None:
    topic = new_topic(2)
    group.join(f"^{topic}(-later)?$")
    group.join(f"^{topic}(-later)?$")
    group.settle(all_of(topic, 2))
    later = confluent_kafka.admin.NewTopic(f"{topic}-later", 4, 1)  # type: ignore[attr-defined]
    admin.create_topics([later])[f"{topic}-later"].result(20)
    group.settle(all_of(topic, 2) | all_of(f"{topic}-later", 4))


@pytest.mark.full
def test_g124_partitions_of_a_killed_member_are_reassigned(
    group: Group, new_topic: NewTopic
) -> None:
    topic = new_topic(PARTITIONS)
    command = [sys.executable, "-c", _MEMBER, group.address, group.name, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        wait_until(lambda: victim.stdout.readline().strip() == "6", "it has all")  # type: ignore[union-attr]
        member = group.join(topic)
        wait_until(lambda: len(member.owned) == 3, "they share")
        victim.send_signal(signal.SIGKILL)
    group.settle(all_of(topic))


def test_g131_a_static_member_gets_back_its_partitions(group: Group, new_topic: NewTopic) -> None:
    topic = new_topic(PARTITIONS)
    group.join(topic, group_instance_id="one")
    group.join(topic, group_instance_id="two")
    group.settle(all_of(topic))
    first, second = group.members
    had, kept = first.owned, second.owned
    first.close()
    group.members.remove(first)
    again = group.join(topic, group_instance_id="one")
    wait_until(lambda: again.owned == had, "it has what it had")
    assert second.owned == kept


def test_o20_a_new_member_continues_at_committed_offsets(
    group: Group, new_topic: NewTopic, admin: confluent_kafka.admin.AdminClient
) -> None:
    topic = new_topic(PARTITIONS)
    produce(group.address, topic, 0, 60)
    member = group.join(topic)
    wait_until(lambda: len(member.values) == 60, "all are read")
    for index in range(PARTITIONS):
        member.commit((topic, index), 10)
    member.close()
    group.members.clear()
    values = produce(group.address, topic, 60, 6)
    other = group.join(topic)
    wait_until(lambda: len(other.values) >= 6, "what is new is read")
    assert set(other.values) == values, "and nothing else"


def test_g160_the_group_is_described_and_listed(
    group: Group, new_topic: NewTopic, admin: confluent_kafka.admin.AdminClient
) -> None:
    topic = new_topic(PARTITIONS)
    group.join(topic, client_id="the-client")
    group.settle(all_of(topic))
    told = admin.describe_consumer_groups([group.name])[group.name].result(20)
    assert (told.state, told.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert told.partition_assignor == "uniform"
    (member,) = told.members
    assert member.client_id == "the-client"
    shown = {(part.topic, part.partition) for part in member.assignment.topic_partitions}
    assert shown == all_of(topic)
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(20).valid}
    assert listed[group.name].type is ConsumerGroupType.CONSUMER


@pytest.mark.full
@pytest.mark.parametrize("strategy", budget.of_which(["range", "roundrobin"], ["roundrobin"]))
def test_g150_g155_a_group_changes_its_protocol_member_by_member(
    group: Group, new_topic: NewTopic, strategy: str, admin: confluent_kafka.admin.AdminClient
) -> None:
    """The group's protocol changes from classic to consumer and back; each record is read once."""
    topic = new_topic(PARTITIONS)
    classic = {"group_protocol": "classic", "partition_assignment_strategy": strategy}
    classic |= {"session_timeout_ms": "6000", "heartbeat_interval_ms": "200"}

    def kind() -> ConsumerGroupType:
        listed = admin.list_consumer_groups().result(20).valid
        found: ConsumerGroupType = next(each.type for each in listed if each.group_id == group.name)
        return found

    old = [group.join(topic, **classic) for _ in range(2)]
    group.settle(all_of(topic))
    assert kind() is ConsumerGroupType.CLASSIC
    new = group.join(topic)
    group.settle(all_of(topic))
    assert kind() is ConsumerGroupType.CONSUMER
    values = produce(group.address, topic, 0, 60)
    wait_until(lambda: values == {value for member in group.members for value in member.values},
               "all are read")  # fmt: skip
    assert sum(len(member.values) for member in group.members) == 60
    new.close()
    group.members.remove(new)
    group.settle(all_of(topic), old)
    assert kind() is ConsumerGroupType.CLASSIC
    assert not any(member.errors for member in old)


@pytest.mark.full
def test_g150_a_group_with_user_data_in_its_assignments_stays_classic(
    group: Group, new_topic: NewTopic
) -> None:
    """librdkafka's assignor "cooperative-sticky" adds user data to the assignments, from the second
    generation on. Kafka 4.3 refuses the conversion as well."""
    topic = new_topic(PARTITIONS)
    classic = {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"}
    classic |= {"session_timeout_ms": "6000", "heartbeat_interval_ms": "200"}
    old = [group.join(topic, **classic)]
    group.settle(all_of(topic))
    old.append(group.join(topic, **classic))
    group.settle(all_of(topic))
    new = group.join(topic)
    wait_until(lambda: bool(new.errors), "the new member is refused")
    assert "group id does not exist" in new.errors[0]
    group.settle(all_of(topic), old)
    assert not any(member.errors for member in old)


@pytest.mark.full
def test_g100_members_survive_a_broker_that_is_killed(tmp_path: Path) -> None:
    settings = [
        "group.consumer.min.session.timeout.ms=500",
        "group.consumer.session.timeout.ms=20000",
        "group.consumer.min.heartbeat.interval.ms=50",
        "group.consumer.heartbeat.interval.ms=200",
    ]
    broker = BrokerProcess(tmp_path, settings)
    broker.start()

    def new_admin() -> confluent_kafka.admin.AdminClient:
        return confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": broker.address, "log_level": 0}
        )

    admin = new_admin()
    topic = confluent_kafka.admin.NewTopic("topic", PARTITIONS, 1)  # type: ignore[attr-defined]
    admin.create_topics([topic])["topic"].result(20)
    group = Group(broker.address, "group")
    try:
        group.join("topic", reconnect_backoff_max_ms="200")
        group.join("topic", reconnect_backoff_max_ms="200")
        group.settle(all_of("topic"))
        before = [member.owned for member in group.members]
        told = admin.describe_consumer_groups(["group"])["group"].result(20)
        broker.kill()
        broker.start()
        values = produce(broker.address, "topic", 0, 12)
        wait_until(lambda: values == {value for member in group.members for value in member.values},
                   "all are read")  # fmt: skip
        assert [member.owned for member in group.members] == before
        # librdkafka sometimes makes no further attempt to connect for a client that was idle when
        # its broker was killed: the state stays TRY_CONNECT, and the count of connects as it was.
        admin = new_admin()
        again = admin.describe_consumer_groups(["group"])["group"].result(20)
        assert {member.member_id for member in again.members} == {
            member.member_id for member in told.members
        }
        group.join("topic")
        group.settle(all_of("topic"))
    finally:
        group.close()
        broker.stop()

"""Containers with the interface of the package testcontainers."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import odradek.testcontainers.community.kafka
import odradek.testcontainers.kafka
from foreign_clients import CLIENTS, Client, Record, Settings
from odradek import ConfigResource, NewTopic, sync
from odradek.broker import BrokerFailed
from odradek.testcontainers import (
    ContainerIgnores,
    ContainerRefused,
    KafkaContainer,
    RedpandaContainer,
)
from odradek_testkit.testcontainers.environment import settings_of

pytestmark = pytest.mark.own_broker


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaContainer]:
    with KafkaContainer().with_env("KAFKA_NUM_PARTITIONS", "3") as container:
        yield container


def config_of(container: KafkaContainer, name: str) -> str | None:
    resource = ConfigResource.broker(1)
    with sync.Admin(bootstrap_servers=container.get_bootstrap_server()) as admin:
        return admin.describe_configs(resource)[resource][name].value


# --- As a container -------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_client_uses_the_container(client: Client, kafka: KafkaContainer) -> None:
    address, topic = kafka.get_bootstrap_server(), f"orders-{client.name}"
    with sync.Admin(bootstrap_servers=address) as admin:
        admin.create_topics(NewTopic(topic))
    client.produce(address, topic, [Record(b"ada", b"4 apples")], Settings())
    assert [record.value for record in client.consume(address, topic, 1)] == [b"4 apples"]


def test_our_client_uses_the_container(kafka: KafkaContainer) -> None:
    with sync.Producer(bootstrap_servers=kafka.get_bootstrap_server()) as producer:
        assert producer.send_and_wait("ours", b"4 apples").offset == 0


def test_environment_variables_of_kafka_images_are_settings(kafka: KafkaContainer) -> None:
    assert config_of(kafka, "num.partitions") == "3"
    with sync.Admin(bootstrap_servers=kafka.get_bootstrap_server()) as admin:
        admin.create_topics(NewTopic("three"))
        assert len(admin.describe_topics("three")["three"].partitions) == 3


def test_the_container_port_is_mapped_to_a_free_port(kafka: KafkaContainer) -> None:
    address = kafka.get_bootstrap_server()
    assert address == f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(9093)}"
    assert kafka.get_exposed_port(9092) == kafka.get_exposed_port(9093) != 9093
    with pytest.raises(ConnectionError, match="port 2181 does not lead"):
        kafka.get_exposed_port(2181)


@pytest.mark.full
def test_the_host_port_can_be_chosen() -> None:
    with KafkaContainer() as first:
        port = first.get_exposed_port(9093)
    with KafkaContainer().with_bind_ports(9093, port) as container:
        assert container.get_exposed_port(9093) == port
        with sync.Producer(bootstrap_servers=f"127.0.0.1:{port}") as producer:
            producer.send_and_wait("orders", b"4 apples")
    with pytest.raises(ValueError, match="host='any' must be a port"):
        KafkaContainer().with_bind_ports(9093, "any")


def test_several_containers_run_at_once(kafka: KafkaContainer) -> None:
    with KafkaContainer(port=9093).with_kraft().with_cluster_id("4L6g3nShT-eMCtK--X86sw") as other:
        assert other.get_bootstrap_server() != kafka.get_bootstrap_server()
        with sync.Admin(bootstrap_servers=other.get_bootstrap_server()) as admin:
            assert admin.describe_cluster().cluster_id == "4L6g3nShT-eMCtK--X86sw"


@pytest.mark.full
def test_a_container_can_be_started_again_without_its_data() -> None:
    container = KafkaContainer()
    container.stop()
    assert container.status == "not_started"
    for _ in range(2):
        assert container.start() is container
        with sync.Producer(bootstrap_servers=container.get_bootstrap_server()) as producer:
            assert producer.send_and_wait("orders", b"4 apples").offset == 0
        folder = container.broker.data_dir
        assert folder.is_dir() and container.status == "running"
        container.stop()
        container.stop()
        assert not folder.exists()
    with pytest.raises(ContainerRefused, match="not started"):
        container.get_bootstrap_server()


def test_a_container_takes_orders_of_faults(kafka: KafkaContainer) -> None:
    faults = kafka.broker.faults
    faults.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="faulty")
    with sync.Producer(bootstrap_servers=kafka.get_bootstrap_server()) as producer:
        producer.send_and_wait("faulty", b"4 apples")
    assert [fault.met for fault in faults.list()] == [1]
    faults.clear()


@pytest.mark.full
def test_a_listener_may_have_another_name_and_protocol() -> None:
    jaas = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="for tests";'
    )
    container = KafkaContainer(listener_name="OUTSIDE", security_protocol="SASL_PLAINTEXT")
    container.with_env("KAFKA_SASL_ENABLED_MECHANISMS", "PLAIN")
    container.with_env("KAFKA_LISTENER_NAME_OUTSIDE_PLAIN_SASL_JAAS_CONFIG", jaas)
    with (
        container,
        sync.Producer(
            bootstrap_servers=container.get_bootstrap_server(),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="for tests",
        ) as producer,
    ):
        producer.send_and_wait("orders", b"4 apples")


@pytest.mark.full
def test_a_redpanda_container_has_the_same_broker() -> None:
    with RedpandaContainer() as container:
        port = container.get_exposed_port(9092)
        assert container.get_bootstrap_server().endswith(f":{port}")
        with sync.Producer(bootstrap_servers=container.get_bootstrap_server()) as producer:
            producer.send_and_wait("orders", b"4 apples")
        with pytest.raises(ContainerRefused, match="no schema registry"):
            container.get_schema_registry_address()


# --- What Docker is needed for --------------------------------------------------------------------


def test_a_bad_setting_is_named_in_the_error() -> None:
    container = KafkaContainer(env={"KAFKA_NUM_PARTITIONS": "many"})
    with pytest.raises((BrokerFailed, ValueError), match=r"num\.partitions"):
        container.start()
    assert container.status == "not_started"


def test_an_unknown_setting_gives_a_warning() -> None:
    container = KafkaContainer().with_env("KAFKA_NUM_PARTITION", "3")
    with pytest.warns(ContainerIgnores, match=r"num\.partition\b"), container:
        pass


def test_variables_without_effect_give_a_warning_with_the_reason() -> None:
    settings, ignored = settings_of(
        {
            "CLUSTER_ID": "abc",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
            "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "KAFKA_LISTENER_NAME_A__B_PLAIN_X": "1",
            "KAFKA_PROCESS_ROLES": "broker",
            "LANG": "C",
        }
    )
    assert settings == {
        "auto.create.topics.enable": "false",
        "cluster.id": "abc",
        "listener.name.a_b.plain.x": "1",
    }
    assert [text.split(" ")[0] for text in ignored] == [
        "KAFKA_ADVERTISED_LISTENERS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_PROCESS_ROLES",
        "LANG",
    ]
    container = KafkaContainer(env={"KAFKA_PROCESS_ROLES": "broker"})
    with pytest.warns(ContainerIgnores, match="its own controller"):
        container._settings()


def test_environment_variables_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "kafka.env"
    path.write_text("# a comment\n\nexport KAFKA_A='1 2'\nKAFKA_B = \"=\"\n")
    assert KafkaContainer().with_env_file(path).env == {"KAFKA_A": "1 2", "KAFKA_B": "="}
    path.write_text("KAFKA_A\n")
    with pytest.raises(ValueError, match=r"kafka\.env:1"):
        KafkaContainer().with_env_file(path)


def test_methods_that_need_docker_are_refused() -> None:
    container = KafkaContainer()
    refused = {
        "exec": (["kafka-topics"],),
        "get_wrapped_container": (),
        "with_network": (object(),),
        "with_network_aliases": ("kafka",),
    }
    for name, arguments in refused.items():
        with pytest.raises(ContainerRefused, match=rf"KafkaContainer\.{name} needs Docker"):
            getattr(container, name)(*arguments)
    with pytest.warns(ContainerIgnores, match="/var/lib"):
        assert container.with_volume_mapping("data", "/var/lib/kafka/data") is container
    with pytest.raises(ValueError, match="is called port"):
        KafkaContainer(port_to_expose=9093)


# --- The shape ------------------------------------------------------------------------------------


def methods_of(kind: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(kind)
        if inspect.isfunction(member)
        and (not name.startswith("_") or name in ("__init__", "__enter__"))
    }


def parameters_of(function: Any) -> list[tuple[str, Any, Any]]:
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("name", ["KafkaContainer", "RedpandaContainer"])
def test_the_classes_have_the_methods_of_testcontainers(name: str) -> None:
    pytest.importorskip("testcontainers")
    try:
        theirs = getattr(importlib.import_module("testcontainers.community.kafka"), name)
    except ImportError:
        theirs = getattr(importlib.import_module("testcontainers.kafka"), name)
    ours = getattr(odradek.testcontainers.kafka, name)
    #: Methods that only the container's own start calls.
    internal = {"configure", "tc_start"}
    for method, function in methods_of(theirs).items():
        if method in internal:
            continue
        assert method in methods_of(ours), method
        if method in ("start", "stop"):
            wanted = [each[0] for each in parameters_of(function)]
            assert [each[0] for each in parameters_of(getattr(ours, method))] == wanted
            continue
        assert parameters_of(getattr(ours, method)) == parameters_of(function), method


def test_the_import_paths_lead_to_the_same_classes() -> None:
    for module in (odradek.testcontainers.kafka, odradek.testcontainers.community.kafka):
        assert module.KafkaContainer is KafkaContainer
        assert module.RedpandaContainer is RedpandaContainer

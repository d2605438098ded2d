"""`KafkaContainer` and `RedpandaContainer` with the methods of the package `testcontainers`.

The broker is a process of this machine. Calls without effect give a warning, `ContainerIgnores`,
and calls that are impossible without Docker raise `ContainerRefused`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self, cast

from odradek_client.errors import OdradekError
from odradek_testkit.broker import SubprocessBroker
from odradek_testkit.security import SecurityOptions
from odradek_testkit.testcontainers.environment import read_env_file, settings_of

_HOST = "127.0.0.1"
#: The port that the container offers to other brokers, in addition to the port for clients.
_BROKER_PORT = 9092
_SECURITY = ("users", "tls", "superusers", "acls")
#: The settings of a container of Kafka, unless the environment has others. With these settings
#: the broker, like Kafka, does not flush each write.
_SETTINGS = {
    "broker.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.durability": "page-cache",
    "offsets.topic.num.partitions": "1",
}


class ContainerRefused(OdradekError, RuntimeError):
    """The error of a call that needs Docker, or a started container, with the reason."""


class ContainerIgnores(UserWarning):
    """The warning about a call or variable without effect on a broker outside of a container."""


@dataclass
class _KafkaConfig:
    """The configuration of Docker networks, accepted for compatibility and without effect."""

    limit_broker_to_first_host: bool = False


kafka_config = _KafkaConfig()


class _BrokerContainer:
    """The methods of `testcontainers.core.container.DockerContainer`."""

    #: The container's ports that are mapped to the broker.
    _inside: tuple[int, ...]
    _listener_name = "PLAINTEXT"
    _security_protocol = "PLAINTEXT"

    def __init__(self, image: str, **kwargs: Any) -> None:
        self.image = image
        self.env: dict[str, Any] = dict(kwargs.pop("env", None) or {})
        self.ports: dict[str, int | None] = {}
        self._name: str | None = kwargs.pop("name", None)
        self.with_exposed_ports(*(kwargs.pop("ports", None) or ()))
        security = {name: kwargs.pop(name) for name in _SECURITY if name in kwargs}
        self._security = cast(SecurityOptions, security)
        if kwargs.get("network") is not None:
            self.with_network(kwargs.pop("network"))
        self._kwargs = kwargs
        self._broker: SubprocessBroker | None = None

    @property
    def broker(self) -> SubprocessBroker:
        """The broker. It can be killed and restarted, and its `faults` inject faults. Raises
        ContainerRefused before the start."""
        if self._broker is None:
            raise ContainerRefused("the container is not started; use `with` or call start()")
        return self._broker

    # --- Before the start ---

    def with_env(self, key: str, value: str) -> Self:
        """Set an environment variable: KAFKA_NUM_PARTITIONS is the setting num.partitions."""
        self.env[key] = value
        return self

    def with_envs(self, **variables: str) -> Self:
        """Set environment variables."""
        self.env.update(variables)
        return self

    def with_env_file(self, env_file: str | os.PathLike[str]) -> Self:
        """Set the environment variables of a file with a NAME=VALUE in each line."""
        self.env.update(read_env_file(Path(env_file)))
        return self

    def with_exposed_ports(self, *ports: str | int) -> Self:
        """Declare ports of the container; each is mapped to a free port of the machine."""
        for port in ports:
            self.ports[str(port)] = None
        return self

    def with_bind_ports(self, container: str | int, host: str | int | None = None) -> Self:
        """Choose the machine's port for a port of the container."""
        text = str(host).partition("/")[0]
        if host is not None and not text.isdigit():
            raise ValueError(f"host={host!r} must be a port")
        self.ports[str(container)] = None if host is None else int(text)
        return self

    def with_name(self, name: str) -> Self:
        """Store a name for the container. The name has no effect."""
        self._name = name
        return self

    def with_kwargs(self, **kwargs: Any) -> Self:
        """Store arguments for Docker. The arguments have no effect."""
        self._kwargs = kwargs
        return self

    def with_command(self, command: str | list[str]) -> Self:
        """Warn that a broker without a container runs no command."""
        return self._ignore(f"the command {command!r}")

    def with_volume_mapping(
        self, host: str | os.PathLike[str], container: str, mode: str = "ro"
    ) -> Self:
        """Warn that a broker without a container has no volumes."""
        return self._ignore(f"the volume {container!r}")

    def with_tmpfs_mount(self, container_path: str, size: str | None = None) -> Self:
        """Warn that a broker without a container has no volumes."""
        return self._ignore(f"the volume {container_path!r}")

    def with_copy_into_container(
        self, transferable: Any, destination_in_container: str, mode: int = 0o644
    ) -> Self:
        """Warn that a broker without a container has no files inside."""
        return self._ignore(f"the file {destination_in_container!r}")

    def with_network(self, network: Any) -> Self:
        """Raise ContainerRefused."""
        self._refuse("with_network", "containers cannot reach the broker, which is a process")

    def with_network_aliases(self, *aliases: str) -> Self:
        """Raise ContainerRefused."""
        self._refuse("with_network_aliases", "containers cannot reach the broker")

    def maybe_emulate_amd64(self) -> Self:
        """Do nothing, because the broker runs on any processor."""
        return self

    def waiting_for(self, strategy: Any) -> Self:
        """Do nothing, because `start` waits until the broker answers."""
        return self

    def _ignore(self, what: str) -> Self:
        text = f"{what} has no effect: the broker runs without a container"
        warnings.warn(text, ContainerIgnores, stacklevel=3)
        return self

    def _refuse(self, call: str, reason: str) -> NoReturn:
        raise ContainerRefused(f"{type(self).__name__}.{call} needs Docker: {reason}")

    # --- Start and stop ---

    def start(self, timeout: float = 30) -> Self:
        """Start the broker, and wait until it answers. BrokerFailed if it does not within `timeout`
        seconds."""
        if self._broker is not None:
            raise ContainerRefused("the container is started already")
        broker = SubprocessBroker(
            listen=self._address(),
            settings=self._settings(),
            testing=True,
            timeout_s=timeout,
            **self._security,
        )
        try:
            broker.start()
        except BaseException:
            broker.close()
            raise
        self._broker = broker
        return self

    def _settings(self) -> dict[str, str]:
        from odradek_broker.config.broker import find_setting, parse_config

        given, ignored = settings_of(self.env)
        for text in ignored:
            warnings.warn(text, ContainerIgnores, stacklevel=3)
        settings = {**_SETTINGS, **self._own_settings(), **given}
        if "node.id" in given:
            del settings["broker.id"]
        if not self._security:
            name = self._listener_name
            settings["listeners"] = f"{name}://{self._address()}"
            if name != self._security_protocol:
                settings["listener.security.protocol.map"] = f"{name}:{self._security_protocol}"
        for notice in parse_config(settings)[1]:
            if notice.level == "warning":
                warnings.warn(notice.text, ContainerIgnores, stacklevel=3)
        # What other images know has no effect here, and no broker for tests takes it.
        return {key: value for key, value in settings.items() if find_setting(key) is not None}

    def _address(self) -> str:
        """The address on this machine at which the broker listens; port 0 chooses a free port."""
        bound = [self.ports.get(str(port)) for port in self._inside]
        return f"{_HOST}:{next((each for each in bound if each is not None), 0)}"

    def _own_settings(self) -> Mapping[str, str]:
        return {}

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Stop the broker and delete its data. May be called again."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- The running broker ---

    def get_container_host_ip(self) -> str:
        """The host of the broker's address."""
        return _HOST

    def get_exposed_port(self, port: int) -> int:
        """The machine's port for a port of the container. Raises ConnectionError for a port that is
        not mapped to the broker."""
        address = self.broker.bootstrap
        if int(port) not in self._inside:
            known = " and ".join(map(str, self._inside))
            raise ConnectionError(f"port {port} does not lead to the broker; {known} do")
        return int(address.rpartition(":")[2])

    def get_bootstrap_server(self) -> str:
        """The "HOST:PORT" for `bootstrap.servers`."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(self._inside[0])}"

    def get_container_id(self) -> str:
        """The name of the container, or the process id of the broker."""
        return self._name or str(self.broker.pid)

    def get_logs(self) -> tuple[bytes, bytes]:
        """The standard output, which is empty, and the end of the broker's log."""
        return b"", self.broker.log_tail().encode()

    @property
    def status(self) -> str:
        """The state: "running" or "not_started"."""
        return "not_started" if self._broker is None else "running"

    def reload(self) -> None:
        """Do nothing."""

    def get_container_info(self) -> None:
        """Always None, because there is no container."""

    def exec(self, command: Any) -> NoReturn:
        """Raise ContainerRefused."""
        self._refuse("exec", "use odradek.sync.Admin, or the command line `odradek`, instead")

    def wait(self) -> NoReturn:
        """Raise ContainerRefused."""
        self._refuse("wait", "the broker runs until stop()")

    def get_wrapped_container(self) -> NoReturn:
        """Raise ContainerRefused."""
        self._refuse("get_wrapped_container", "there is no container; see `broker`")

    def get_docker_client(self) -> NoReturn:
        """Raise ContainerRefused."""
        self._refuse("get_docker_client", "there is no container; see `broker`")

    def create_file(self, content: bytes, path: str) -> NoReturn:
        """Raise ContainerRefused."""
        self._refuse("create_file", "there are no files inside")

    def copy_into_container(
        self, transferable: Any, destination_in_container: str, mode: int = 0o644
    ) -> NoReturn:
        """Raise ContainerRefused."""
        self._refuse("copy_into_container", "there are no files inside")

    def copy_from_container(self, source_in_container: str, destination_on_host: Path) -> NoReturn:
        """Raise ContainerRefused."""
        self._refuse("copy_from_container", "there are no files inside")


class KafkaContainer(_BrokerContainer):
    """A broker with the interface of `testcontainers.kafka.KafkaContainer`.

    `port`: the container's port, for `get_exposed_port`; the port on the machine is any free port.
    `image` and `wait_strategy_check_string` have no effect. `users`, `tls`, `superusers` and `acls`
    are those of `odradek.security.Security`: with them, clients connect by
    `broker.client_settings(user)`.
    """

    def __init__(
        self,
        image: str = "confluentinc/cp-kafka:7.6.0",
        port: int = 9093,
        wait_strategy_check_string: str = r".*\[KafkaServer id=\d+\] started.*",
        listener_name: str = "PLAINTEXT",
        security_protocol: str = "PLAINTEXT",
        **kwargs: Any,
    ) -> None:
        if "port_to_expose" in kwargs:
            raise ValueError("port_to_expose is called port")
        super().__init__(image, **kwargs)
        self.port = port
        self.listener_name = self._listener_name = listener_name
        self.security_protocol = self._security_protocol = security_protocol
        self.kraft_enabled = False
        self.cluster_id = "MkU3OEVBNTcwNTJENDM2Qk"
        self._inside = (port, _BROKER_PORT)
        self.with_exposed_ports(port)

    def with_kraft(self) -> Self:
        """Do nothing, because the broker always is its own controller."""
        self.kraft_enabled = True
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        """Choose the id of the cluster."""
        self.cluster_id = cluster_id
        return self

    def _own_settings(self) -> Mapping[str, str]:
        return {"cluster.id": self.cluster_id}


class RedpandaContainer(_BrokerContainer):
    """A broker with the interface of `testcontainers.kafka.RedpandaContainer`."""

    def __init__(
        self, image: str = "docker.redpanda.com/redpandadata/redpanda:v23.1.13", **kwargs: Any
    ) -> None:
        super().__init__(image, **kwargs)
        self.redpanda_port = 9092
        self.schema_registry_port = 8081
        self._inside = (self.redpanda_port,)
        self.with_exposed_ports(self.redpanda_port)

    def get_schema_registry_address(self) -> NoReturn:
        """Raise ContainerRefused."""
        self._refuse("get_schema_registry_address", "there is no schema registry")

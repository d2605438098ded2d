"""Virtual clusters: each test has its own broker, forked from one process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from odradek import ConfigResource
from odradek.broker import SubprocessBroker
from odradek.clusters import Cluster, ClusterRefused, Clusters
from odradek.faults import FaultRefused
from odradek.sync import Admin, Consumer, Producer
from odradek_broker.server.http_connections import HttpConnections, answer_order
from odradek_broker.server.http_messages import Order
from odradek_client.errors import IllegalState
from odradek_testkit.virtual_clusters.host import ClusterState, HostedCluster
from waiting import wait_until


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    with Clusters() as clusters:
        yield clusters


@pytest.fixture
def cluster(clusters: Clusters) -> Iterator[Cluster]:
    with clusters.create() as cluster:
        yield cluster


def write(cluster: Cluster, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in values:
            producer.send_and_wait(topic, value)


def read(cluster: Cluster, topic: str, last: bytes, group: str | None = None) -> list[bytes]:
    """The values of a topic up to `last`, and those that the same poll returns after it."""
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id=group
    ) as consumer:
        values: list[bytes] = []
        while last not in values:
            values += [record.value or b"" for record in consumer.poll(timeout_ms=1000)]
        return values


def setting(cluster: Cluster, name: str) -> str | None:
    """The value that the broker reports for one of its settings."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        resource = ConfigResource.broker(1)
        return admin.describe_configs(resource, names=[name])[resource][name].value


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


def test_clusters_have_their_own_topics_groups_and_producers(clusters: Clusters) -> None:
    with clusters.create() as one, clusters.create() as other:
        write(one, "orders", b"of one", b"end")
        assert read(one, "orders", b"end", group="workers") == [b"of one", b"end"]
        write(other, "orders", b"of the other", b"end")
        assert read(other, "orders", b"end", group="workers") == [b"of the other", b"end"]
        with Admin(bootstrap_servers=other.bootstrap) as admin:
            admin.delete_topics("orders")
        assert read(one, "orders", b"end") == [b"of one", b"end"]


def test_a_killed_cluster_keeps_its_port_and_records(cluster: Cluster) -> None:
    write(cluster, "orders", b"before")
    cluster.kill()
    assert not listens(cluster.bootstrap)
    cluster.kill()
    cluster.start()
    write(cluster, "orders", b"after")
    cluster.restart()
    cluster.stop()
    cluster.restart()
    assert read(cluster, "orders", b"after") == [b"before", b"after"]
    with pytest.raises(ClusterRefused, match="is running"):
        cluster.start()


def test_faults_apply_to_one_cluster_only(clusters: Clusters) -> None:
    with clusters.create() as one, clusters.create() as other:
        fault = one.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
        write(other, "orders", b"meets none")
        assert one.faults.list()[0].met == 0
        write(one, "orders", b"meets two")
        assert (one.faults.list()[0].met, one.faults.list()[0].id) == (2, fault.id)
        assert other.faults.list() == []
        one.restart()
        assert one.faults.list() == []


def test_each_cluster_has_its_own_settings(clusters: Clusters) -> None:
    for partitions in (3, 3, 3, 7):
        with clusters.create({"num.partitions": partitions}) as cluster:
            assert setting(cluster, "num.partitions") == str(partitions)
            assert setting(cluster, "log.retention.ms") == "-1"
    with clusters.create() as cluster:
        assert setting(cluster, "num.partitions") == "1"
    with clusters.create({"log.retention.ms": 60_000, "auto.create.topics.enable": False}) as own:
        assert setting(own, "log.retention.ms") == "60000"
        assert setting(own, "auto.create.topics.enable") == "false"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num.partitions": "many"}, "num.partitions is 'many'"),
        ({"num.partition": 3}, "num.partition is no broker setting; did you mean num.partitions"),
        ({"retention.ms": 3}, "retention.ms is a setting of topics; .* log.retention.ms"),
        ({"log.dirs": "/data"}, "log.dirs cannot be chosen"),
        ({"http.listen": "127.0.0.1:1"}, "http.listen cannot be chosen"),
        ({"advertised.listeners": "PLAINTEXT://a:1"}, "advertised.listeners cannot be chosen"),
        ({"listeners": "PLAINTEXT://127.0.0.1:99999"}, "listeners"),
        (
            {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": "/missing.pem"},
            "missing.pem",
        ),
        ({"listeners": "PLAINTEXT://192.0.2.1:0"}, "192.0.2.1"),
    ],
)
def test_a_cluster_with_bad_settings_is_refused_with_a_reason(
    clusters: Clusters, settings: dict[str, object], words: str
) -> None:
    open_before = len(clusters.list())
    for _ in range(3):
        with pytest.raises(ClusterRefused, match=words):
            clusters.create(settings)
    assert len(clusters.list()) == open_before


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "plaintext://127.0.0.1:0,"},
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        },
    ],
)
def test_listener_settings_of_property_files_are_taken(
    clusters: Clusters, settings: dict[str, object]
) -> None:
    with clusters.create(settings) as cluster:
        before = dict(cluster.listeners)
        cluster.restart()
        assert before == clusters.list()[-1].listeners
        assert listens(cluster.bootstrap)


def test_a_cluster_with_two_listeners_keeps_both_ports(clusters: Clusters) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    }
    with clusters.create(settings) as cluster:
        ports = dict(cluster.listeners)
        assert set(ports) == {"PLAINTEXT", "INSIDE"}
        cluster.kill()
        cluster.start()
        assert all(map(listens, ports.values()))


def test_a_broker_that_ended_unexpectedly_can_be_started_again(cluster: Cluster) -> None:
    write(cluster, "orders", b"before")
    os.kill(_pid_of(cluster), signal.SIGKILL)
    wait_until(lambda: not listens(cluster.bootstrap), "the broker has ended", 30.0)
    cluster.start()
    assert read(cluster, "orders", b"before") == [b"before"]


def _pid_of(cluster: Cluster) -> int:
    """The process whose stderr is the cluster's log."""
    log = str(cluster.data_dir.parent / "broker.log")
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if os.readlink(process / "fd" / "2") == log:
                    return int(process.name)
            except OSError:
                continue
    raise AssertionError("no process writes the log of the cluster")


@pytest.mark.full
def test_many_clusters_leave_no_folders_or_descriptors(clusters: Clusters) -> None:
    with clusters.create() as first:
        root = first.data_dir.parent.parent
    process = clusters._process
    assert process is not None
    descriptors = Path(f"/proc/{process.pid}/fd")
    counts = []
    for _ in range(3):
        for _ in range(20):
            clusters.create().close()
        wait_until(lambda: len(list(root.iterdir())) <= 2, "the folders are deleted", 30.0)
        counts.append(len(list(descriptors.iterdir())))
    # A spare broker has a pipe while it starts, so the number of open descriptors varies.
    assert max(counts) <= min(counts) + 4


def test_a_cluster_may_be_closed_twice(clusters: Clusters) -> None:
    cluster = clusters.create()
    cluster.close()
    cluster.close()
    assert not listens(cluster.bootstrap)
    with pytest.raises(ClusterRefused, match=f"there is no cluster {cluster.id}"):
        cluster.kill()
    with pytest.raises(FaultRefused, match="cannot reach"):
        cluster.faults.list()


def test_clusters_that_were_not_started_refuse_to_create() -> None:
    with pytest.raises(IllegalState, match="not started"):
        Clusters().create()
    with pytest.raises(ClusterRefused, match="cannot reach"):
        Clusters.at("127.0.0.1:1").create()


def test_a_cluster_whose_client_hung_up_is_deleted(clusters: Clusters) -> None:
    before = len(clusters.list())
    host, _, port = clusters.address.rpartition(":")
    head = "POST /clusters HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n"
    for _ in range(10):
        with socket.create_connection((host, int(port)), 30) as connection:
            # Closing then resets the connection, so that the answer cannot be delivered.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(head.encode())
    wait_until(lambda: len(clusters.list()) == before, "their clusters are deleted", 30.0)
    with Clusters.at(clusters.address) as again, again.create() as cluster:
        assert cluster.id in [each.id for each in clusters.list()]


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(ClusterRefused, match=r"a\.\.b"):
        Clusters.at("http://a..b:80").create()


@pytest.mark.full
def test_cluster_numbers_continue_after_the_cluster_process_is_killed() -> None:
    with SubprocessBroker(testing=True) as broker:
        clusters = Clusters.at(broker.http)
        old = clusters.create()
        os.kill(_parent_of(_pid_of(old)), signal.SIGKILL)

        def again() -> bool:
            with suppress(ClusterRefused):
                clusters.create()
                return True
            return False

        wait_until(again, "clusters are made again", 60.0)
        assert min(each.id for each in clusters.list()) > old.id
        old.close()
        assert clusters.list() != []


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# --- The process that makes clusters ---


_LIMITED = """
from odradek_testkit.virtual_clusters import host
host.CLUSTERS_MAX = 2
import runpy
runpy.run_module("odradek_testkit.virtual_clusters", run_name="__main__")
"""


_FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import runpy
runpy.run_module("odradek_testkit.virtual_clusters", run_name="__main__")
"""


def _host_process(program: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _address_of(process: subprocess.Popen[bytes], settings: dict[str, str] | None = None) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"settings": settings or {}}).encode() + b"\n")
    process.stdin.flush()
    address: str = json.loads(process.stdout.readline())["http"]
    return address


@pytest.mark.full
def test_the_number_of_open_clusters_is_limited() -> None:
    process = _host_process(["-c", _LIMITED])
    assert process.stdin is not None
    with process, process.stdin:
        clusters = Clusters.at(_address_of(process))
        first, second = clusters.create(), clusters.create()
        with pytest.raises(ClusterRefused, match="2 clusters are open"):
            clusters.create()
        first.close()
        third = clusters.create()
        assert [each.id for each in clusters.list()] == [second.id, third.id]


@pytest.mark.full
@pytest.mark.parametrize("killed", [False, True])
def test_brokers_and_their_data_end_with_the_process_that_forked_them(killed: bool) -> None:
    process = _host_process(["-m", "odradek_testkit.virtual_clusters"])
    assert process.stdin is not None
    with process, process.stdin:
        clusters = Clusters.at(_address_of(process))
        some = [clusters.create() for _ in range(3)]
        write(some[0], "orders", b"one")
        some[1].kill()
        root = some[0].data_dir.parent.parent
        if killed:
            process.kill()
        else:
            process.stdin.close()
        process.wait(60)
    wait_until(lambda: not any(listens(each.bootstrap) for each in some), "all have ended", 30.0)
    wait_until(lambda: not root.exists(), "the data is deleted", 30.0)


_WITH_A_CHILD = """
import os, sys, time
from odradek.clusters import Clusters
with Clusters() as clusters:
    root = clusters.create().data_dir.parent.parent
    process = clusters._process
    child = os.fork()
    if child == 0:
        time.sleep(600)
try:
    # By itself, and not killed after some time.
    assert process.returncode == 0, process.returncode
    assert not root.exists()
finally:
    os.kill(child, 9)
"""


@pytest.mark.full
def test_the_cluster_process_ends_though_the_program_has_forked_children() -> None:
    subprocess.run([sys.executable, "-c", _WITH_A_CHILD], timeout=120, check=True)


_WITH_MANY_FILES = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
from odradek.broker import SubprocessBroker
from odradek.clusters import Clusters
with SubprocessBroker(), Clusters() as clusters:
    clusters.create().close()
"""


@pytest.mark.full
def test_a_program_with_many_open_files_starts_clusters_and_brokers() -> None:
    subprocess.run([sys.executable, "-c", _WITH_MANY_FILES], timeout=120, check=True)


@pytest.mark.full
def test_a_cluster_process_without_free_descriptors_says_so() -> None:
    process = _host_process(["-c", _FEW_FILES])
    assert process.stdin is not None
    with process, process.stdin:
        clusters = Clusters.at(_address_of(process))
        made = []
        with pytest.raises(ClusterRefused, match="open files"):
            for _ in range(100):
                made.append(clusters.create())
        assert len(clusters.list()) == len(made)
        for cluster in made:
            cluster.close()
        clusters.create().close()


def test_a_cluster_takes_only_the_steps_of_its_state_table(tmp_path: Path) -> None:
    cluster = HostedCluster(1, tmp_path, {})
    for state in (ClusterState.RUNNING, ClusterState.STOPPING, ClusterState.STOPPED):
        with pytest.raises(RuntimeError, match="cannot go from stopped"):
            cluster.change(state)
    cluster.change(ClusterState.STARTING)
    cluster.change(ClusterState.RUNNING)
    cluster.change(ClusterState.STOPPED)
    cluster.change(ClusterState.DELETED)
    with pytest.raises(RuntimeError, match="cannot go from deleted to starting"):
        cluster.change(ClusterState.STARTING)


# --- Orders over HTTP ---


def order(
    address: str,
    method: str,
    path: str,
    body: str | bytes | None = None,
    kind: str = "application/json",
    headers: Mapping[str, str] = {},
) -> tuple[int, Any]:
    host, _, port = address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": kind, **headers})
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content.startswith(b"{") else content
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/clusters", None, 405),
        ("POST", "/clusters/1", None, 405),
        ("GET", "/clusters/1/kill", None, 405),
        ("POST", "/clusters/kill", None, 405),
        ("POST", "/clusters/1/burn", None, 404),
        ("GET", "/clusters/x", None, 404),
        ("GET", "/clusters/999999", None, 404),
        ("GET", "/clusters/" + "9" * 5000, None, 404),
        ("DELETE", "/clusters/0", None, 404),
        ("GET", "/other", None, 404),
        ("POST", "/clusters", "{", 400),
        ("POST", "/clusters", "[]", 400),
        ("POST", "/clusters", '{"settings": []}', 400),
        ("POST", "/clusters", '{"name": "x"}', 400),
        ("POST", "/clusters", '{"settings": {"num.partitions": [3]}}', 400),
        ("POST", "/clusters", '{"settings": {"num.partitions": null}}', 400),
        ("POST", "/clusters", "[" * 50_000, 400),
        ("POST", "/clusters", " " * 70_000, 413),
    ],
)
def test_bad_orders_over_http_are_refused(
    clusters: Clusters, method: str, path: str, body: str | None, status: int
) -> None:
    found, answer = order(clusters.address, method, path, body)
    assert found == status
    assert answer["error"]


def test_an_order_needs_the_json_content_type(clusters: Clusters) -> None:
    assert order(clusters.address, "POST", "/clusters", "{}", "text/plain")[0] == 415


async def test_the_answer_to_an_order_that_fails_unexpectedly_has_no_details() -> None:
    async def broken(_: Order) -> tuple[int, Any]:
        raise OSError(2, "No such file", "/secret/path")

    connections = HttpConnections(
        lambda _: None,
        lambda exchange: answer_order(exchange, broken, 60.0),
        most=9,
        most_per_address=9,
    )
    host, port = connections.listen("127.0.0.1", 0)
    try:
        status, answer = await asyncio.to_thread(order, f"{host}:{port}", "GET", "/clusters")
    finally:
        await connections.close()
    assert (status, answer["error"].count("FileNotFoundError")) == (500, 1)
    assert "/secret" not in answer["error"] and "Traceback" not in answer["error"]


def faults_address(http: str, cluster: Cluster) -> str:
    """The address at which the cluster's broker takes orders for faults."""
    address: str = order(http, "GET", f"/clusters/{cluster.id}")[1]["faults"]
    return address


def test_silent_connections_do_not_keep_orders_out() -> None:
    with SubprocessBroker(testing=True) as broker, ExitStack() as connections:
        made = Clusters.at(broker.http).create()
        for address in (broker.http, faults_address(broker.http, made)):
            host, _, port = address.rpartition(":")
            for _ in range(300):
                connections.enter_context(socket.create_connection((host, int(port)), 30))
        assert len(Clusters.at(broker.http).list()) == 1


_EVIL = {"Host": "evil.example", "Origin": "http://evil.example"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"Host": "localhost:1"}, 201),
        ({"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:1"}, 201),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        # A page whose site has pointed its own name at this machine.
        (_EVIL, 421),
        ({**_EVIL, "Host": "evil.example:80"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        # A page of another site that asks for this machine's name or address.
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://localhost:3000", "Host": "localhost:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_n60_orders_of_web_pages_are_refused(
    clusters: Clusters, headers: dict[str, str], status: int
) -> None:
    with clusters.create() as cluster:
        fault = json.dumps({"fault": "delay", "api": "Fetch", "ms": 1})
        address = faults_address(clusters.address, cluster)
        found, answer = order(address, "POST", "/faults", fault, headers=headers)
        assert found == (200 if status == 201 else status), answer
        assert len(cluster.faults.list()) == (status == 201)
    before = [each.id for each in clusters.list()]
    found, answer = order(clusters.address, "POST", "/clusters", headers=headers)
    assert found == status, answer
    if status == 201:
        assert order(clusters.address, "DELETE", f"/clusters/{answer['id']}")[0] == 200
    assert [each.id for each in clusters.list()] == before


@pytest.mark.parametrize("method", ["OPTIONS", "GET", "DELETE"])
def test_n60_preflight_requests_are_refused(clusters: Clusters, method: str) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert order(clusters.address, method, "/clusters", headers=headers)[0] == 403


@pytest.mark.parametrize(
    "listeners",
    [
        "PLAINTEXT://0.0.0.0:0",
        "PLAINTEXT://:0",
        "PLAINTEXT://[::]:0",
        "PLAINTEXT://127.0.0.1:0,OUTSIDE://0.0.0.0:0",
        "OUTSIDE://localhost.:0",
    ],
)
def test_n60_no_order_opens_a_listener_to_other_machines(
    clusters: Clusters, listeners: str
) -> None:
    settings = {
        "listeners": listeners,
        "insecure.listeners": "true",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
    }
    with pytest.raises(ClusterRefused, match="on this machine only"):
        clusters.create(settings)


def test_the_refusal_of_a_cluster_that_cannot_start_has_no_log_lines(clusters: Clusters) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterRefused, match="in use by another program") as refused:
            clusters.create({"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    assert "the setting listeners (PLAINTEXT)" in str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert "/" not in str(refused.value)


def test_malformed_requests_do_not_stop_the_cluster_process(clusters: Clusters) -> None:
    host, _, port = clusters.address.rpartition(":")
    for text in (
        b"\r\n\r\n",
        b"x" * 20_000,
        b"POST /clusters HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(30)
            with suppress(ConnectionError):
                assert connection.recv(100).startswith(b"HTTP/1.1 4")
    clusters.create().close()


@pytest.mark.full
def test_a_broker_under_test_forwards_the_largest_orders() -> None:
    body = json.dumps({"settings": {"metric.reporters": "\u00e9" * 30_000}}, ensure_ascii=False)
    with SubprocessBroker(testing=True) as broker:
        status, answer = order(broker.http, "POST", "/clusters", body.encode())
        assert (status, answer.get("error")) == (201, None)


@pytest.mark.full
def test_a_broker_under_test_makes_clusters_with_its_own_settings() -> None:
    with SubprocessBroker(testing=True, settings={"num.partitions": 4}) as broker:
        http = broker.http
        status, made = order(http, "POST", "/clusters")
        assert (status, made["state"]) == (201, "running")
        clusters = Clusters.at(http)
        (cluster,) = clusters.list()
        assert cluster.bootstrap == made["bootstrap"] != broker.bootstrap
        assert setting(cluster, "num.partitions") == "4"
        write(cluster, "orders", b"one")
        cluster.kill()
        cluster.start()
        assert read(cluster, "orders", b"one") == [b"one"]
        with pytest.raises(ClusterRefused, match="cannot be chosen"):
            clusters.create({"log.dirs": "/data"})
        with clusters.create({"num.partitions": 2}) as other:
            assert setting(other, "num.partitions") == "2"
    wait_until(lambda: not listens(cluster.bootstrap), "the cluster ends with the broker", 30.0)

"""TLS at the broker: accepted clients, refused clients with the reason, and changed
certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_in_loop import RunningBroker, StartBroker
from certificates import Authority, Certificate, subject
from odradek_broker.metrics.exposition import Exposition
from odradek_broker.server import server
from odradek_broker.server.host import StartError
from odradek_broker.server.session import Pause
from odradek_protocol import frames
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek_protocol.tls import handshake
from odradek_protocol.tls.contexts import client_context
from odradek_protocol.tls.settings import StoreSettings, TlsSettings
from raw_client import RawClient, batch_of, produce_request
from waiting import until

CA = Authority()
OTHER_CA = Authority("Other CA")
BROKER = CA.issue()
_BROKER = 4


def tls_settings(certificate: Certificate = BROKER, **more: str) -> dict[str, str]:
    """The settings of a broker with one SSL listener."""
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl_keystore_type": "PEM",
        "ssl_keystore_certificate_chain": certificate.pem,
        "ssl_keystore_key": certificate.key(),
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": CA.pem,
    } | more


def context(own: Certificate | None = None, trusted: Authority = CA, **more: Any) -> ssl.SSLContext:
    keystore = StoreSettings(name="ssl.keystore")
    if own is not None:
        keystore = StoreSettings(
            name="ssl.keystore", type="PEM", certificates=own.pem, key=own.key()
        )
    truststore = StoreSettings(name="ssl.truststore", type="PEM", certificates=trusted.pem)
    return client_context(TlsSettings(keystore=keystore, truststore=truststore, **more))


async def connect(
    broker: RunningBroker, tls: ssl.SSLContext | None = None, listener: str = "SSL"
) -> RawClient:
    host, port = broker.server.addresses[listener]
    tls = tls or context()
    opened = await asyncio.open_connection(host, port, ssl=tls, server_hostname="localhost")
    return RawClient(*opened)


async def serves(client: RawClient) -> bool:
    return bool((await client.call(ApiVersionsRequest(), 0)).error_code == 0)


async def serial_number(broker: RunningBroker) -> int:
    """The serial number of the broker's certificate."""
    client = await connect(broker)
    shown = client.writer.get_extra_info("peercert")["serialNumber"]
    client.close()
    return int(shown, 16)


def users(broker: RunningBroker) -> list[str]:
    return [session.peer.user for session in broker.server.sessions]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_n19_requests_are_served_over_tls(start_broker: StartBroker, version: str) -> None:
    broker = await start_broker(**tls_settings(ssl_enabled_protocols=version))
    client = await connect(broker)
    assert client.writer.get_extra_info("ssl_object").version() == version
    await client.create_topic("t")
    assert await serves(client)
    assert users(broker) == ["ANONYMOUS"]


async def test_the_expiry_of_the_certificate_is_a_metric(start_broker: StartBroker) -> None:
    broker = await start_broker(**tls_settings())
    client = await connect(broker)
    shown = client.writer.get_extra_info("peercert")["notAfter"]
    metrics = broker.server.metrics
    await until(lambda: bool(metrics.certificate_ends_s))
    end_s = ssl.cert_time_to_seconds(shown)
    assert metrics.certificate_ends_s == {"SSL": end_s}
    text = Exposition(metrics, broker.node).render().decode()
    (line,) = [line for line in text.splitlines() if line.startswith("odradek_certificate_expiry")]
    left_s = end_s - broker.node.clock.wall_ms() / 1000
    assert left_s <= float(line.rpartition(" ")[2]) <= left_s + 60


async def test_n19_plaintext_and_tls_listeners_work_side_by_side(start_broker: StartBroker) -> None:
    broker = await start_broker(
        **tls_settings(listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0")
    )
    assert await serves(await connect(broker))
    assert await serves(await broker.client())


async def test_n19_keystores_and_truststores_of_each_type_are_read(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    pem, p12, trust = tmp_path / "own.pem", tmp_path / "own.jks", tmp_path / "trust.p12"
    BROKER.write(pem, "secret")
    p12.write_bytes(BROKER.pkcs12("secret"))
    trust.write_bytes(CA.pkcs12("changeit"))
    text = " ".join((BROKER.pem + BROKER.key()).split("\n"))
    (tmp_path / "line.pem").write_text(text, "utf-8")
    kinds: list[dict[str, str]] = [
        {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": str(pem),
            "ssl_key_password": "secret",
        },
        # keytool writes PKCS12 by default, whatever the suffix of the file.
        {"ssl_keystore_location": str(p12), "ssl_keystore_password": "secret"},
        {"ssl_keystore_type": "pem", "ssl_keystore_location": str(tmp_path / "line.pem")},
    ]
    for number, kind in enumerate(kinds):
        broker = await start_broker(
            f"data-{number}",
            listeners="SSL://127.0.0.1:0",
            ssl_client_auth="required",
            ssl_truststore_type="PKCS12",
            ssl_truststore_location=str(trust),
            ssl_truststore_password="changeit",
            **kind,
        )
        assert await serves(await connect(broker, context(CA.issue("someone", ()))))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"ssl_keystore_key": "", "ssl_keystore_certificate_chain": ""},
            "has to have a certificate",
        ),
        ({"ssl_keystore_key": ""}, "go together"),
        ({"ssl_keystore_key": CA.issue().key()}, "not that of its certificate"),
        ({"ssl_keystore_key": BROKER.key("x")}, "set ssl.key.password"),
        ({"ssl_keystore_key": BROKER.key("x"), "ssl_key_password": "y"}, "does not open"),
        ({"ssl_keystore_type": "PKCS12"}, "set ssl.keystore.type=PEM"),
        ({"ssl_keystore_location": "/x"}, "as a file and as text"),
        ({"ssl_truststore_certificates": "x", "ssl_client_auth": "required"}, "no certificate"),
        ({"ssl_cipher_suites": "TLS_NO_SUCH"}, "there is no TLS_NO_SUCH"),
    ],
)
async def test_n19_a_start_fails_with_the_reason_for_unusable_tls_settings(
    start_broker: StartBroker, change: dict[str, str], words: str
) -> None:
    with pytest.raises(StartError, match=words) as caught:
        await start_broker(**tls_settings() | change)
    assert "PRIVATE KEY" not in str(caught.value)


async def test_n19_the_error_for_a_jks_keystore_shows_the_command_to_convert_it(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    path = tmp_path / "kafka.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed" + bytes(40))
    with pytest.raises(StartError, match="keytool -importkeystore") as caught:
        await start_broker(listeners="SSL://127.0.0.1:0", ssl_keystore_location=str(path))
    assert str(path) in str(caught.value)


# --- The client's name ----------------------------------------------------------------------------


async def test_n21_the_principal_is_the_subject_of_the_certificate(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(**tls_settings(ssl_client_auth="requested"))
    name = subject("Duke", ORGANIZATION_NAME="Sun, Inc.", EMAIL_ADDRESS="d@sun")
    known = await connect(broker, context(CA.issue(name, ())))
    assert await serves(known)
    assert users(broker) == [r"CN=Duke,1.2.840.113549.1.9.1=#1605644073756e,O=Sun\, Inc."]
    unknown = await connect(broker)
    assert await serves(unknown)
    assert users(broker)[1] == "ANONYMOUS"


async def test_n21_mapping_rules_make_the_principal_and_refuse_other_subjects(
    start_broker: StartBroker,
) -> None:
    rules = "RULE:^CN=(.*?),O=Sun$/$1@sun/L,RULE:^CN=([A-Z]+)$/$1/"
    broker = await start_broker(
        **tls_settings(ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    )
    names = (subject("Duke", ORGANIZATION_NAME="Sun"), subject("ABC"))
    clients = [await connect(broker, context(CA.issue(name, ()))) for name in names]
    assert [await serves(client) for client in clients] == [True, True]
    assert users(broker) == ["duke@sun", "ABC"]
    with capture_logs() as lines:
        stranger = await connect(broker, context(CA.issue("small", ())))
        assert await stranger.closed()
    assert any(
        "no rule" in line.get("reason", "") and "CN=small" in line["reason"] for line in lines
    )


async def test_n21_a_listener_may_have_its_own_tls_settings(start_broker: StartBroker) -> None:
    broker = await start_broker(
        **tls_settings(
            listeners="OPEN://127.0.0.1:0,MUTUAL://127.0.0.1:0",
            listener_security_protocol_map="OPEN:SSL,MUTUAL:SSL",
            listener_name_mutual_ssl_client_auth="required",
        )
    )
    assert await serves(await connect(broker, listener="OPEN"))
    mutual = await connect(broker, listener="MUTUAL")
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await serves(mutual)
    own = context(CA.issue("someone", ()))
    assert await serves(await connect(broker, own, listener="MUTUAL"))


async def test_n18_a_listener_with_mutual_tls_may_bind_public_addresses(
    start_broker: StartBroker,
) -> None:
    settings = tls_settings(listeners="SSL://0.0.0.0:0")
    with pytest.raises(ValueError, match="--insecure"):
        await start_broker(**settings)
    await start_broker(**settings, ssl_client_auth="required")


# --- Resumed sessions ----------------------------------------------------------------------------


async def resumed(
    address: tuple[str, int],
    tls: ssl.SSLContext,
    data: bytes,
    after_first: Callable[[], None] = lambda: None,
) -> list[tuple[bool, bool]]:
    """For each of three connections whether it resumed the session of the one before, and whether
    it got a ticket; up to the first that the broker does not answer."""

    def connections() -> list[tuple[bool, bool]]:
        session, found = None, list[tuple[bool, bool]]()
        for _ in range(3):
            with (
                socket.create_connection(address, 20) as plain,
                tls.wrap_socket(plain, server_hostname="localhost", session=session) as client,
                suppress(OSError),
            ):
                client.sendall(data)
                if not client.recv(4):
                    break
                session = client.session
                assert session is not None
                found.append((bool(client.session_reused), session.has_ticket))
                if len(found) == 1:
                    after_first()
                # OpenSSL forgets a session whose connection did not end with this.
                client.unwrap()
        return found

    return await asyncio.to_thread(connections)


_ASKED = b"".join(frames.encode_request(ApiVersionsRequest(), 0, 1, "c"))


@pytest.mark.parametrize("asks", ["none", "requested", "required"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_n62_no_session_tickets_where_client_certificates_are_asked_for(
    start_broker: StartBroker, version: str, asks: str
) -> None:
    broker = await start_broker(**tls_settings(ssl_client_auth=asks))
    tls = context(CA.issue("someone", ()), enabled_protocols=(version,))
    # Without tickets TLS 1.2 resumes a session by its number, for two hours and not for ever.
    resumes = asks == "none" or version == "TLSv1.2"
    found = await resumed(broker.server.addresses["SSL"], tls, _ASKED)
    assert found == [(False, asks == "none"), *2 * [(resumes, asks == "none")]]


@pytest.mark.parametrize("days", [60, -60])
async def test_n62_a_resumed_session_ends_with_the_dates_of_its_certificate(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    broker = await start_broker(**tls_settings(ssl_client_auth="required"))
    tls = context(CA.issue("someone", ()), enabled_protocols=("TLSv1.2",))
    address = broker.server.addresses["SSL"]
    assert await resumed(address, tls, _ASKED) == [(False, False), *2 * [(True, False)]]
    now_s = time.time()

    def later() -> None:
        monkeypatch.setattr(handshake, "_now_s", lambda: now_s + days * 86_400)

    with capture_logs() as lines:
        assert await resumed(address, tls, _ASKED, later) == [(False, False)]
    reasons = [line["reason"] for line in lines if line["event"] == "refused a TLS connection"]
    word = "expired" if days > 0 else "not yet valid"
    assert len(reasons) == 1 and word in reasons[0]


async def test_n62_the_http_endpoint_refuses_them_too(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tls_settings(
        http_listen="127.0.0.1:0",
        http_security_protocol="SSL",
        listener_name_http_ssl_client_auth="required",
        ssl_enabled_protocols="TLSv1.2",
    )
    broker = await start_broker(**settings)
    address = broker.server.http_address
    assert address is not None
    now_s = time.time()
    tls, asked = context(CA.issue("someone", ())), b"GET /healthz HTTP/1.0\r\n\r\n"

    def later() -> None:
        monkeypatch.setattr(handshake, "_now_s", lambda: now_s + 60 * 86_400)

    assert await resumed(address, tls, asked, later) == [(False, False)]


# --- Refusals -------------------------------------------------------------------------------------


async def refusal(broker: RunningBroker, tls: ssl.SSLContext | None, data: bytes = b"") -> str:
    """The broker's log line about a failed connection. Without `tls` the client sends `data`."""
    host, port = broker.server.addresses["SSL"]
    with capture_logs() as lines:
        if tls is None:
            with socket.create_connection((host, port)) as plain:
                plain.sendall(data)
                plain.settimeout(20)
                await asyncio.to_thread(plain.recv, 100)
        else:

            def attempt() -> None:
                with (
                    socket.create_connection((host, port), 20) as plain,
                    tls.wrap_socket(plain, server_hostname="localhost") as wrapped,
                ):
                    wrapped.recv(1)

            with pytest.raises(OSError):
                await asyncio.to_thread(attempt)

        def said() -> list[str]:
            return [line["reason"] for line in lines if line["event"] == "refused a TLS connection"]

        await until(lambda: bool(said()))
        return said()[0]


async def test_n22_the_log_names_the_reason_of_a_refused_tls_connection(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(**tls_settings(ssl_client_auth="required"))
    expired = CA.issue("old", (), days=(-3, -1))
    stranger = OTHER_CA.issue("stranger", ())
    known = CA.issue("known", ())
    frame = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    assert "plaintext to a TLS listener" in await refusal(broker, None, frame)
    assert "HTTP request" in await refusal(broker, None, b"GET / HTTP/1.1\r\n\r\n")
    assert "has no certificate" in await refusal(broker, context())
    assert "not from a CA of our truststore" in await refusal(broker, context(stranger))
    assert "certificate has expired" in await refusal(broker, context(expired))
    assert "truststore lacks the CA" in await refusal(broker, context(known, OTHER_CA))
    assert await serves(await connect(broker, context(known)))
    await until(lambda: len(broker.server.sessions) == 1)


async def test_n22_tls_to_a_plaintext_listener_is_logged_as_such(start_broker: StartBroker) -> None:
    broker = await start_broker()
    with capture_logs() as lines:
        with pytest.raises(OSError):
            await asyncio.open_connection(
                *broker.server.addresses["PLAINTEXT"], ssl=context(), server_hostname="localhost"
            )
        await until(lambda: bool(lines))
    assert "TLS to a PLAINTEXT listener" in lines[0]["reason"]


async def test_n23_an_unfinished_tls_handshake_is_ended_after_its_timeout(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(**tls_settings(ssl_handshake_timeout_ms="50"))
    with capture_logs() as lines:
        silent = await asyncio.open_connection(*broker.server.addresses["SSL"])
        assert await RawClient(*silent).closed()
        await until(lambda: not broker.server.sessions)
    assert any("ssl.handshake.timeout.ms" in line.get("reason", "") for line in lines)


async def test_n23_silent_handshakes_of_an_address_keep_none_of_its_clients_out(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(**tls_settings(max_ssl_handshakes_per_ip="2"))
    address = broker.server.addresses["SSL"]
    silent = [RawClient(*await asyncio.open_connection(*address)) for _ in range(2)]
    await until(lambda: len(broker.server.sessions) == 2)
    with capture_logs() as lines:
        # The first handshake makes room for this one; finished ones are not counted.
        clients = [await connect(broker) for _ in range(3)]
        assert [await serves(each) for each in clients] == [True] * 3
        assert await silent[0].closed()
    assert any("max.ssl.handshakes.per.ip" in line.get("reason", "") for line in lines)
    # The session of the second silent peer, and those of the clients.
    assert len(broker.server.sessions) == 4
    silent[1].close()
    await until(lambda: len(broker.server.sessions) == 3)


async def test_n23_the_oldest_of_too_many_unfinished_handshakes_is_closed(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(**tls_settings(max_ssl_handshakes="2"))
    address = broker.server.addresses["SSL"]
    with capture_logs() as lines:
        first, *later = [RawClient(*await asyncio.open_connection(*address)) for _ in range(3)]
        assert await first.closed()
    assert any("max.ssl.handshakes" in line.get("reason", "") for line in lines)
    # The other handshakes can still finish.
    assert len(broker.server.sessions) == 2
    assert await serves(await connect(broker))
    for each in later:
        each.close()


async def test_n23_an_unfinished_handshake_does_not_delay_other_connections(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(**tls_settings())
    await asyncio.open_connection(*broker.server.addresses["SSL"])
    assert await serves(await connect(broker))


async def test_n23_bad_peers_do_not_flood_the_log(start_broker: StartBroker) -> None:
    broker = await start_broker(**tls_settings())
    with capture_logs() as lines:
        for _ in range(20):
            reader, writer = await asyncio.open_connection(*broker.server.addresses["SSL"])
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await RawClient(reader, writer).closed()
        await until(lambda: not broker.server.sessions)
    assert len(lines) == 1


# --- Certificates that change ---------------------------------------------------------------------


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MAINTENANCE_S", 0.01)


async def test_n20_a_new_keystore_file_is_used_unless_it_is_invalid(
    start_broker: StartBroker, tmp_path: Path, often: None
) -> None:
    path = BROKER.write(tmp_path / "own.pem")
    broker = await start_broker(
        listeners="SSL://127.0.0.1:0", ssl_keystore_type="PEM", ssl_keystore_location=str(path)
    )
    old = await connect(broker)
    assert await serial_number(broker) == BROKER.certificate.serial_number
    new = CA.issue()
    with capture_logs() as lines:
        new.write(path)
        await until(lambda: "a new certificate is in use" in [line["event"] for line in lines])
    assert await serial_number(broker) == new.certificate.serial_number
    with capture_logs() as lines:
        path.write_text("rubbish", "utf-8")
        await until(lambda: bool(lines))
        path.unlink()
        await until(lambda: len(lines) > 1)
    assert [line["event"] for line in lines] == [
        "the new certificate cannot be used; the old one stays in use"
    ] * 2
    assert await serial_number(broker) == new.certificate.serial_number
    assert await serves(old)


# --- Names of the certificate ---------------------------------------------------------------------

WRONG_NAME = "clients will refuse the certificate: it is not for the host that is advertised"


def wrong_names(lines: list[Any]) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == WRONG_NAME]


@pytest.mark.parametrize(
    ("hosts", "told", "wanted", "shown"),
    [
        (("localhost", "127.0.0.1"), "", "", ""),
        (("localhost", "a"), "", "IP:127.0.0.1", "DNS:localhost, DNS:a"),
        (("localhost",), "localhost", "", ""),
        (("*.example.org",), "a.example.org", "", ""),
        (("*.example.org",), "a.b.example.org", "DNS:a.b.example.org", "DNS:*.example.org"),
        ((), "broker", "", ""),
        ((), "other", "DNS:other", "CN=broker"),
        (("2001:db8::1",), "[2001:DB8:0::1]", "", ""),
        (("::1",), "[2001:db8::2]", "IP:2001:db8::2", "IP Address:0:0:0:0:0:0:0:1"),
        (("localhost",), "b" * 300, "DNS:" + "b" * 300, "DNS:localhost"),
    ],
)
async def test_n40_a_name_that_the_certificate_lacks_is_logged_at_the_start(
    start_broker: StartBroker, hosts: tuple[str, ...], told: str, wanted: str, shown: str
) -> None:
    advertised = {"advertised_listeners": f"SSL://{told}:9093"} if told else {}
    with capture_logs() as lines:
        broker = await start_broker(**tls_settings(CA.issue("broker", hosts), **advertised))
    if not wanted:
        assert wrong_names(lines) == []
        return
    (line,) = wrong_names(lines)
    assert line["log_level"] == "warning" and line["listener"] == "SSL"
    assert line["advertised"] == broker.node.advertised("SSL")[0]
    assert line["certificate_names"] == shown
    assert line["what_to_do"].endswith(f"subjectAltName {wanted}")
    assert "advertised.listeners=SSL://" in line["what_to_do"]


async def test_n40_an_expired_certificate_is_not_logged_as_having_a_wrong_name(
    start_broker: StartBroker,
) -> None:
    with capture_logs() as lines:
        await start_broker(**tls_settings(CA.issue("old", ("127.0.0.1",), days=(-3, -1))))
    assert wrong_names(lines) == []


async def test_n40_the_certificate_of_a_mutual_tls_listener_is_checked_too(
    start_broker: StartBroker,
) -> None:
    names = [f"b{number}" for number in range(12)]
    mutual = {"ssl_client_auth": "required", "ssl_enabled_protocols": "TLSv1.2"}
    with capture_logs() as lines:
        await start_broker(**tls_settings(CA.issue("broker", names), **mutual))
    (line,) = wrong_names(lines)
    assert line["certificate_names"].startswith("DNS:b0, DNS:b1, ")
    assert line["certificate_names"].endswith(" and 2 more")


async def test_n40_the_names_of_each_new_certificate_are_checked(
    start_broker: StartBroker, tmp_path: Path, often: None
) -> None:
    path = BROKER.write(tmp_path / "own.pem")
    with capture_logs() as lines:
        await start_broker(
            listeners="SSL://127.0.0.1:0", ssl_keystore_type="PEM", ssl_keystore_location=str(path)
        )
        assert wrong_names(lines) == []
        CA.issue("other", ("other",)).write(path)
        await until(lambda: bool(wrong_names(lines)))
        CA.issue().write(path)
        in_use = "a new certificate is in use"
        await until(lambda: [line["event"] for line in lines].count(in_use) == 2)
    (line,) = wrong_names(lines)
    assert line["advertised"] == "127.0.0.1" and line["certificate_names"] == "DNS:other"


async def alter(client: RawClient, name: str, **settings: str) -> tuple[int, str]:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name=name, configs=configs)
    answer = await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return answer.responses[0].error_code, answer.responses[0].error_message or ""


async def test_n20_a_listeners_keystore_is_changed_by_request(
    start_broker: StartBroker, often: None
) -> None:
    broker = await start_broker(**tls_settings())
    client = await connect(broker)
    new = CA.issue()
    prefix = "listener_name_ssl_ssl_keystore_"
    both = {f"{prefix}certificate_chain": new.pem, f"{prefix}key": new.key()}
    code, message = await alter(client, "1", **both | {f"{prefix}key": BROKER.key()})
    assert code == ErrorCode.INVALID_REQUEST and "not that of its certificate" in message
    assert "PRIVATE" not in message
    code, message = await alter(client, "", **both)
    assert code == ErrorCode.INVALID_REQUEST and "broker id must be specified" in message
    code, message = await alter(client, "1", ssl_keystore_key=new.key())
    assert code == ErrorCode.INVALID_REQUEST and "listener prefix" in message
    assert await serial_number(broker) == BROKER.certificate.serial_number
    assert await alter(client, "1", **both) == (0, "")
    shown: list[int] = []
    while new.certificate.serial_number not in shown:
        shown.append(await serial_number(broker))
    resource = DescribeConfigsResource(resource_type=_BROKER, resource_name="1")
    answer = await client.call(DescribeConfigsRequest(resources=[resource]), 4)
    described = {each.name: each for each in answer.results[0].configs}
    for name in ("listener.name.ssl.ssl.keystore.key", "ssl.keystore.key"):
        assert described[name].value is None and described[name].is_sensitive
    assert described["listener.name.ssl.ssl.keystore.key"].config_source == 2


async def test_a_configuration_does_not_show_private_keys(start_broker: StartBroker) -> None:
    broker = await start_broker(**tls_settings())
    config = broker.server.config
    for text in (
        repr(config),
        repr(config.tls_settings("SSL")),
        str(vars(config.tls_settings("SSL"))),
    ):
        assert "PRIVATE" not in text


async def test_n14_no_request_is_read_from_a_tls_peer_that_reads_no_answers(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(**tls_settings())
    client = await connect(broker)
    await client.create_topic("t")
    await client.call(produce_request("t", batch_of(b"x" * 900_000)), 9)
    whole = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2_000_000)
    topics = [FetchTopic(topic="t", partitions=[whole])]
    wanted = FetchRequest(max_bytes=2_000_000, session_epoch=-1, topics=topics)
    for _ in range(100):
        client.send(wanted, 11)
    await client.writer.drain()
    (session,) = broker.server.sessions
    await until(lambda: Pause.PEER_DOES_NOT_READ in session._pauses)
    assert session._transport is not None
    assert session._transport.get_write_buffer_size() < 4_000_000
    for _ in range(100):
        answer = await client.receive()
        assert len(answer.responses[0].partitions[0].records) > 900_000


async def test_n04_a_silent_tls_connection_is_closed(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_IDLE_CHECK_S", 0.001)
    broker = await start_broker(**tls_settings(connections_max_idle_ms="50"))
    client = await connect(broker)
    assert await client.closed()
    await until(lambda: not broker.server.sessions)


async def fetch_page(address: tuple[str, int], path: str, headers: str = "") -> bytes:
    """The whole answer of the HTTP endpoint to a request over TLS."""
    reader, writer = await asyncio.open_connection(
        *address, ssl=context(), server_hostname="localhost"
    )
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


async def test_n35_the_http_endpoint_serves_tls_with_a_token(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    keystore, token = tmp_path / "http.pem", tmp_path / "token"
    BROKER.write(keystore)
    token.write_text("http.token=s3cret\n")
    broker = await start_broker(
        http_listen="127.0.0.1:0",
        http_security_protocol="SSL",
        http_token=f"${{file:{token}:http.token}}",
        **{
            "listener.name.http.ssl.keystore.type": "PEM",
            "listener.name.http.ssl.keystore.location": str(keystore),
        },
    )
    address = broker.server.http_address
    assert address is not None
    assert b" 401 " in (await fetch_page(address, "/metrics")).split(b"\r\n")[0]
    told = await fetch_page(address, "/metrics", "Authorization: Bearer s3cret\r\n")
    assert b" 200 " in told.split(b"\r\n")[0] and told.rstrip().endswith(b"0"), "to the end"
    with capture_logs() as lines:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()
        await until(lambda: any("refused a TLS" in line["event"] for line in lines))
    listener = broker.server._tls["http.listen"]
    old = listener.context
    CA.issue().write(keystore)
    await until(lambda: listener.context is not old)
    assert b" 200 " in (await fetch_page(address, "/healthz")).split(b"\r\n")[0]


async def test_n35_a_broker_without_a_certificate_for_http_does_not_start(
    start_broker: StartBroker,
) -> None:
    with pytest.raises(StartError, match=r"cannot serve 127\.0\.0\.1:0 with TLS"):
        await start_broker(http_listen="127.0.0.1:0", http_security_protocol="SSL")


async def test_n35_a_broker_without_its_http_token_does_not_start(
    start_broker: StartBroker,
) -> None:
    with pytest.raises(StartError, match=r"http\.token: "):
        await start_broker(http_listen="127.0.0.1:0", http_token="${env:NO_SUCH_VARIABLE}")

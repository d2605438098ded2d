"""Each configuration in docs/operate/security.md starts a broker, and the clients of the page can
use it.

Ports, folders and the address of the identity provider differ from the page. For the commands and
programs that run here, the name `broker` is this machine.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

import budget
from snippets import snippets

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "security.md"
BLOCKS = list(snippets(PAGE.read_text("utf-8"), "security.md"))
PATIENCE_S = 60.0
PASSWORD = "alice's password"
WRONG_NAME = "clients will refuse the certificate"

_ISSUER = "https://identity.example.org"
#: Code that resolves the name `broker` to 127.0.0.1 in the programs that these tests run.
_RESOLVER = """
import socket

_look_up = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: _look_up(
    "127.0.0.1" if host == "broker" else host, *more, **named
)
"""


def block(language: str, holding: str) -> str:
    """The only block of the page that is in this language and contains this text."""
    (found,) = [each.code for each in BLOCKS if each.language == language and holding in each.code]
    return found


class Place:
    """A folder in which the blocks of the page are used."""

    def __init__(self, folder: Path, provider: str) -> None:
        self.folder = folder
        self._provider = provider
        #: Port on the page -> port of the test.
        self._ports: dict[str, str] = {}
        command, library = folder / "bin" / "odradek", folder / "lib"
        for each in (command.parent, library, folder / "etc", folder / "secrets"):
            each.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek "$@"\n')
        command.chmod(0o755)
        (library / "sitecustomize.py").write_text(_RESOLVER)
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(command.parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(library), *(each for each in sys.path if each)]),
        }
        self.shell(block("sh", "openssl req -x509"))

    @contextmanager
    def broker(self, *blocks: str) -> Iterator[None]:
        """A broker configured by these blocks together. Programs reach it at the ports of the
        page."""
        text = self._local("".join(blocks))
        on_page = [*re.findall(r"//[^,\s]*:(\d+)", re.findall(r"(?m)^listeners=.*", text)[0])]
        on_page += re.findall(r"http\.listen=.*:(\d+)", text)
        # The port of an advertised address is that of the listener, so both become 0.
        (self.folder / "broker.properties").write_text(
            re.sub(rf":({'|'.join(on_page)})\b", ":0", text)
        )
        command = [sys.executable, "-m", "odradek", "serve", "--config", "broker.properties"]
        command += ["--data-dir", "data", "--log-file", "broker.log"]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            try:
                assert process.stdout.readline().startswith("odradek ready"), process.stderr.read()
                said = {line["event"]: line for line in self.log()}
                bound = [said["ready"]["port"]]
                bound += [
                    at.rpartition(":")[2] for at in said["ready"].get("listeners", {}).values()
                ]
                bound += [said["serving metrics"]["port"]] if "serving metrics" in said else []
                self._ports = dict(zip(on_page, map(str, bound), strict=True))
                yield
            finally:
                process.terminate()
        assert process.returncode == 0

    def log(self) -> list[dict[str, Any]]:
        """The lines of the broker's log."""
        lines = (self.folder / "broker.log").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def _local(self, text: str) -> str:
        for on_page, here in (
            ("/etc/odradek", str(self.folder / "etc")),
            ("/run/secrets", str(self.folder / "secrets")),
            (f"{_ISSUER}/", f"{self._provider}/"),
        ):
            text = text.replace(on_page, here)
        for on_page, bound in self._ports.items():
            text = re.sub(rf":{on_page}\b", f":{bound}", text)
        return text

    def write(self, name: str, text: str) -> None:
        """Write a file that is on the page."""
        (self.folder / name).write_text(self._local(text), "utf-8")

    def shell(self, code: str, typed: str = "", fails: bool = False) -> str:
        """Run commands with `typed` as input. Returns their whole output."""
        return self._run(["bash", "-euo", "pipefail", "-c", self._local(code)], typed, fails)

    def python(self, code: str) -> str:
        """Run a program that creates a `producer`, and send a record with the producer."""
        lines = [
            "import asyncio",
            "from odradek import Producer",
            code,
            "async def main():",
            "    async with producer:",
            "        await producer.send_and_wait('letters', b'hello')",
            "asyncio.run(main())",
        ]
        return self._run([sys.executable, "-c", self._local("\n".join(lines))], "", False)

    def port(self, on_page: str) -> str:
        """The port that this test uses in place of a port on the page."""
        return self._ports[on_page]

    def _run(self, command: list[str], typed: str, fails: bool) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            input=typed,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (done.returncode != 0) is fails, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


# --- An identity provider -------------------------------------------------------------------------

_KEY = ec.generate_private_key(ec.SECP256R1())


class _Provider(BaseHTTPRequestHandler):
    """An identity provider that knows one client, `loader`, and signs tokens for it."""

    def do_GET(self) -> None:
        """Send the public keys."""
        algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
        key = algorithm.to_jwk(_KEY.public_key(), as_dict=True)
        self._answer({"keys": [key | {"kid": "k", "alg": "ES256"}]})

    def do_POST(self) -> None:
        """Send a token (client credentials grant)."""
        self.rfile.read(int(self.headers["content-length"]))
        now = time.time()
        claims = {"sub": "loader", "iss": _ISSUER, "aud": "kafka", "iat": now, "exp": now + 3600}
        token = jwt.encode(claims, _KEY, "ES256", {"kid": "k"})
        self._answer({"access_token": token, "token_type": "bearer", "expires_in": 3600})

    def _answer(self, what: dict[str, Any]) -> None:
        body = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def provider() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Provider) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def place(tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("ALICE_PASSWORD", PASSWORD)
    monkeypatch.setenv("LOADER_SECRET", "loader's secret")
    monkeypatch.setenv("CLIENT_KEY_PASSWORD", "key's password")
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, provider)


# --- The page's blocks, and their use -------------------------------------------------------------

INSIDE_AND_OUTSIDE = "INTERNAL://:29092"
SCRAM = "sasl.scram.initial.users"
USERS_FILE = "sasl.plain.users.file=/"
USERS_IN_LINES = "PlainLoginModule required user_alice"
TOKENS = "sasl.oauthbearer.jwks.endpoint.url"
TLS = "listeners=SSL://127.0.0.1:9093"
MUTUAL_TLS = "ssl.principal.mapping.rules"
HTTP = "http.listen"
AUTHORIZER = "super.users"
DELEGATION = "delegation.token.secret.key"


def admin_and_a_new_user(place: Place) -> None:
    place.write("admin.properties", block("text", 'username="admin"'))
    creates = block("sh", "odradek user create alice")
    # The other command of the block is for Kafka's tool.
    place.shell(creates[: creates.index("kafka-configs.sh")], PASSWORD + "\n")
    place.shell("odradek topic create letters -b broker:9093 --command-config admin.properties")


def somebody_with_scram(place: Place) -> None:
    admin_and_a_new_user(place)
    place.python(block("python", 'sasl_mechanism="SCRAM-SHA-512"'))


def an_admin_and_somebody_without_rights(place: Place) -> None:
    admin_and_a_new_user(place)
    place.write("alice.properties", block("text", "sasl.mechanism=PLAIN"))
    said = place.shell(
        "odradek topic create t -b broker:9093 --command-config alice.properties"
        " -X sasl.mechanism=SCRAM-SHA-512",
        fails=True,
    )
    assert "TOPIC_AUTHORIZATION_FAILED" in said


def alice_with_her_password(place: Place) -> None:
    (command,) = re.findall(r"`(odradek topic list [^`]*alice\.properties)`", PAGE.read_text())
    place.write("alice.properties", block("text", "sasl.mechanism=PLAIN"))
    place.shell(command)
    assert "Invalid username or password" in place.shell(
        f"{command} -X sasl.password=x", fails=True
    )


def loader_with_a_token(place: Place) -> None:
    place.write("loader.properties", block("text", "sasl.mechanism=OAUTHBEARER"))
    place.shell("odradek topic list -b broker:9093 --command-config loader.properties")


def a_program_with_a_delegation_token(place: Place) -> None:
    of_admin = block("text", 'username="admin"')
    place.write("admin.properties", of_admin)
    made = json.loads(
        place.shell(
            "odradek token create --json -b broker:9093 --command-config admin.properties"
        ).splitlines()[0]
    )
    login = block("text", "tokenauth").replace("ID", made["token_id"])
    lines = [line for line in of_admin.splitlines() if not line.startswith("sasl.jaas.config")]
    place.write("program.properties", "\n".join([*lines, login.replace("HMAC", made["hmac"])]))
    place.shell("odradek topic list -b broker:9093 --command-config program.properties")


def somebody_over_tls(place: Place) -> None:
    place.shell(block("sh", "odradek topic list -b broker:9093 -X security.protocol=SSL"))


def duke_with_a_certificate(place: Place) -> None:
    subject = re.findall(r"`-subj (\S+)`", PAGE.read_text("utf-8"))[0]
    place.shell(
        "cd tls; openssl req -newkey rsa:2048 -passout env:CLIENT_KEY_PASSWORD"
        f" -subj {subject} -keyout client.key -out client.csr;"
        " openssl x509 -req -in client.csr -CA ca.pem -CAkey ca.key -out client.crt;"
        " cat client.key client.crt > client.pem"
    )
    place.python(block("python", "ssl_keystore_location"))
    # A client without a certificate is refused.
    command = block("sh", "odradek topic list -b broker:9093 -X security.protocol=SSL")
    assert "certificate" in place.shell(command, fails=True)


def inside_and_outside(place: Place) -> None:
    for address in ("broker:29092", "localhost:9092"):
        told = place.shell(f"odradek cluster -b {address}").split()
        host, _, port = address.partition(":")
        assert host in told and place.port(port) in told


def a_scraper(place: Place) -> None:
    trusting = ssl.create_default_context(cafile=str(place.folder / "tls" / "ca.pem"))

    def status(token: str) -> int:
        connection = HTTPSConnection("localhost", int(place.port("9404")), context=trusting)
        with closing(connection):
            connection.request("GET", "/metrics", headers={"authorization": f"Bearer {token}"})
            return connection.getresponse().status

    assert (status("scraper's token"), status("another")) == (200, 401)


CASES = [
    ([INSIDE_AND_OUTSIDE], inside_and_outside),
    ([SCRAM], somebody_with_scram),
    ([USERS_FILE], alice_with_her_password),
    ([USERS_IN_LINES], alice_with_her_password),
    ([TOKENS], loader_with_a_token),
    ([TLS], somebody_over_tls),
    ([TLS, MUTUAL_TLS], duke_with_a_certificate),
    ([TLS, HTTP], a_scraper),
    ([SCRAM, DELEGATION], a_program_with_a_delegation_token),
    ([SCRAM, AUTHORIZER], an_admin_and_somebody_without_rights),
]


@pytest.mark.parametrize(
    ("blocks", "client"),
    budget.of_which(CASES, CASES[:1]),
    ids=lambda value: value.__name__ if callable(value) else "+".join(value),
)
@pytest.mark.full
def test_each_broker_configuration_serves_the_client_of_the_page(
    blocks: list[str], client: Callable[[Place], None], place: Place
) -> None:
    (place.folder / "secrets" / "admin").write_text("admin's password\n")
    (place.folder / "secrets" / "passwords").write_text("admin=admin's password\n")
    (place.folder / "etc" / "secrets").write_text("bob=bob's password\ntoken-key=k\n")
    (place.folder / "etc" / "secrets.properties").write_text("http.token=scraper's token\n")
    place.shell(block("sh", "odradek user hash"), PASSWORD + "\n")
    with place.broker(*(block("properties", each) for each in blocks)):
        client(place)
    assert not [line for line in place.log() if line["event"].startswith(WRONG_NAME)]


def test_every_configuration_on_the_page_has_a_case() -> None:
    tried = {block("properties", each) for blocks, _ in CASES for each in blocks}
    assert tried == {each.code for each in BLOCKS if each.language == "properties"}

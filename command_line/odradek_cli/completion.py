"""Names of topics, groups and partitions for the completion of a shell.

A shell waits for each answer. So requests to a listener without TLS and SASL use a plain socket,
because importing the client would take longer than everything else. Requests to other listeners use
the client. A failure is never shown: the command that is being typed will report it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from odradek_cli.client_config import CONFIG_VARIABLE, DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from odradek_protocol.message import Message

T = TypeVar("T", bound="Message")

_BOOTSTRAP_VARIABLE = "ODRADEK_BOOTSTRAP"
#: The limit for the whole answer, so that an unreachable broker does not delay the shell.
_PATIENCE_MS = 1_000
_PATIENCE_VARIABLE = "ODRADEK_COMPLETION_TIMEOUT_MS"
#: Versions that every Kafka since 1.0 serves, with a request header without tagged fields.
_METADATA_VERSION = 4
_LIST_GROUPS_VERSION = 2
_METADATA_KEY, _LIST_GROUPS_KEY = 3, 16
_FRAME_BYTES_MAX = 16 * 1024 * 1024
_INTERNAL = "__"
#: Names that are harmless in every shell. The name of a group may be any text. Bash inserts it
#: unquoted into the line, where `$(...)` would run, and the script for zsh evaluates it.
_HARMLESS = re.compile(r"[\w.:@%+/][\w.:@%+/=,-]*")

#: The number of partitions of each topic; or groups, each with the number 0.
_Names = dict[str, int]


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics whose names begin with the typed text. Internal topics are offered only if the typed
    text begins with an underscore."""
    return _beginning(incomplete, _ask(ctx, _Question.topics))


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups whose names begin with the typed text."""
    return _beginning(incomplete, _ask(ctx, _Question.groups))


def partition_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Partitions as TOPIC-NUMBER."""
    topics = _ask(ctx, _Question.topics)
    names = [f"{name}-{index}" for name in sorted(topics) for index in range(topics[name])]
    return _beginning(incomplete, names)


def names_of_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics or groups, depending on the argument `kind`; nothing for any other kind."""
    kind = str(ctx.params.get("kind") or "")
    if kind == "topic":
        return topic_names(ctx, incomplete)
    return group_names(ctx, incomplete) if kind == "group" else []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    internal = incomplete.startswith("_")
    return [
        name
        for name in names
        if name.startswith(incomplete)
        and (internal or not name.startswith(_INTERNAL))
        and _HARMLESS.fullmatch(name)
    ]


# --- Asking ---------------------------------------------------------------------------------------


def _ask(ctx: typer.Context, question: Callable[[_Question], _Names]) -> _Names:
    """The answer of the brokers; empty on failure. The address of the brokers is from the command
    line, else from the environment, else the default.

    The request runs in a thread that is never joined, because a resolver that does not answer
    cannot be interrupted.
    """
    patience_s = _patience_s()
    found: list[_Names] = []

    def work() -> None:
        # Expected: failures of the network; malformed answers, addresses and ports; and SystemExit
        # for invalid settings.
        with contextlib.suppress(OSError, ValueError, OverflowError, SystemExit):
            found.append(question(_Question(ctx.params, patience_s)))

    # Errors and log lines of the client are dropped, because they would disturb the shell's line.
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(patience_s)
    return found[0] if found else {}


def _patience_s() -> float:
    given = os.environ.get(_PATIENCE_VARIABLE, "")
    return (int(given) if given.isdecimal() else _PATIENCE_MS) / 1000


class _Question:
    """A question to a cluster, to be answered by a deadline."""

    def __init__(self, params: dict[str, Any], patience_s: float) -> None:
        self._bootstrap = str(
            params.get("bootstrap") or os.environ.get(_BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
        )
        self._given: list[str] = list(params.get("setting") or [])
        self._deadline_s = time.monotonic() + patience_s

    def topics(self) -> _Names:
        if self._with_settings:
            return self._by_client(_topics_by_client)
        from odradek_protocol.schemas.metadata import MetadataRequest, MetadataResponse

        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self._send(_METADATA_KEY, _METADATA_VERSION, request, MetadataResponse)
        return {topic.name: len(topic.partitions) for topic in answer.topics if topic.name}

    def groups(self) -> _Names:
        if self._with_settings:
            return self._by_client(_groups_by_client)
        from odradek_protocol.schemas.list_groups import ListGroupsRequest, ListGroupsResponse

        answer = self._send(
            _LIST_GROUPS_KEY, _LIST_GROUPS_VERSION, ListGroupsRequest(), ListGroupsResponse
        )
        return {group.group_id: 0 for group in answer.groups}

    @property
    def _with_settings(self) -> bool:
        """True if settings of the client are given; they may include settings of TLS and SASL."""
        return bool(self._given or os.environ.get(CONFIG_VARIABLE))

    def _left_s(self) -> float:
        return max(self._deadline_s - time.monotonic(), 0.001)

    def _send(self, key: int, version: int, request: Message, answer: type[T]) -> T:
        """The answer of the first broker that answers. OSError or ValueError (DecodeError, no
        address, no port) if none does."""
        addresses = [each for each in self._bootstrap.split(",") if each.strip()]
        if not addresses:
            raise ValueError("there is no address to connect to")
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):
                return self._send_to(address, key, version, request, answer)
        return self._send_to(addresses[-1], key, version, request, answer)

    def _send_to(
        self, address: str, key: int, version: int, request: Message, answer: type[T]
    ) -> T:
        from odradek_protocol import codec

        host, _, port = address.strip().rpartition(":")
        body = struct.pack(">hhih", key, version, 0, -1) + codec.encode_bytes(request, version)
        with socket.create_connection((host.strip("[]"), int(port)), self._left_s()) as link:
            link.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", self._receive(link, 4))
            if not 4 <= size <= _FRAME_BYTES_MAX:
                raise OSError(f"a frame of {size} bytes is no answer")
            return codec.decode(answer, version, memoryview(self._receive(link, size))[4:])

    def _receive(self, link: socket.socket, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            link.settimeout(self._left_s())
            part = link.recv(size - len(received))
            if not part:
                raise ConnectionError("the broker hung up")
            received += part
        return bytes(received)

    def _by_client(self, ask: Callable[[Any], Any]) -> _Names:
        import asyncio

        from odradek_cli.client_config import client_settings, lacks_password

        settings = client_settings(self._bootstrap, self._given, ask=False)
        if lacks_password(settings):
            return {}

        from odradek_client.admin import Admin
        from odradek_client.errors import OdradekError

        async def main() -> _Names:
            async with asyncio.timeout(self._left_s()), Admin(**settings) as admin:
                found: _Names = await ask(admin)
                return found

        with contextlib.suppress(OdradekError):
            return asyncio.run(main())
        return {}


async def _topics_by_client(admin: Any) -> _Names:
    described = await admin.describe_topics(
        await admin.list_topics(internal=True), raise_errors=False
    )
    return {name: len(topic.partitions) for name, topic in described.items()}


async def _groups_by_client(admin: Any) -> _Names:
    return {each.group_id: 0 for each in await admin.list_groups()}


# --- The words so far -----------------------------------------------------------------------------


def words_of_line(environment: MutableMapping[str, str]) -> Sequence[str]:
    """The words after the program's name on the line that is being typed. The completion loads only
    the subcommand that they name.

    Bash splits `-b 127.0.0.1:9092` at the colon, and `-X a=b` at the equals sign. The pieces before
    the word that is being typed are joined again, and `environment` is changed accordingly.
    """
    words = environment.get("COMP_WORDS", "").split("\n")
    if len(words) > 1:
        position = int(environment.get("COMP_CWORD", "0"))
        whole = _rejoined(words[:position])
        environment["COMP_CWORD"] = str(len(whole))
        environment["COMP_WORDS"] = "\n".join([*whole, *words[position:]])
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or ""
    return line.split()[1:]


def _rejoined(words: list[str]) -> list[str]:
    whole: list[str] = []
    glue = False
    for word in words:
        divides = word in (":", "=")
        if whole and (divides or glue):
            whole[-1] += word
        else:
            whole.append(word)
        glue = divides
    return whole

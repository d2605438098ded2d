"""Schemas from a schema registry, by the ids at the start of records.

The client uses Confluent's REST interface, which Karapace, Redpanda and Apicurio also serve.
Requests go only to the given address, without redirects and proxies. Calls block for a few seconds
at most. Schemas are cached, and so are failures for some time.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import SplitResult, quote, unquote, urlsplit

from odradek_protocol.http_deadline import Deadline
from odradek_protocol.visible import visible
from odradek_records.decoders.plain import CannotDecode

_TIMEOUT_S = 3.0
_ANSWER_BYTES_MAX = 4 * 1024 * 1024
_KEPT_MAX = 1_000
#: The maximum length of all kept schemas together. The ids come from records of others.
_KEPT_CHARACTERS_MAX = 64 * 1024 * 1024
#: The maximum length of a schema together with those to which it refers.
_SCHEMA_CHARACTERS_MAX = _ANSWER_BYTES_MAX
#: The time after a failure in which the schema is not requested again, because each record would
#: wait for the request; and no schema, if the registry did not answer.
_FAILURE_S = 30.0
#: The maximum number of schemas to which one schema may refer, directly or indirectly.
_REFERENCES_MAX = 64
_SAID_MAX = 200
_PORTS = {"https": 443, "http": 80}
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema to which another schema refers by a name. `subject` is quoted for a path."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema in a registry. `kind`: AVRO, PROTOBUF or JSON. `others`: (name, schema) of the
    schemas to which it refers, in such an order that each follows the schemas that it needs."""

    kind: str
    text: str
    others: tuple[tuple[str, str], ...] = ()

    @property
    def length(self) -> int:
        """The number of characters of all schemas."""
        return len(self.text) + sum(len(text) for _, text in self.others)


class _NoAnswer(CannotDecode):
    """The error if the registry cannot be asked, or does not answer in time."""


class SchemaRegistry:
    """A client of one registry. Its methods may be called from several threads.

    `url`: http or https, with `user:password@` for basic authentication. Raises ValueError for any
    other URL."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = _TIMEOUT_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        parts, self._port = _parts(url)
        self._tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._path = parts.path.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            both = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(both.encode()).decode()}"
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._lock = threading.Lock()
        #: The schema by id, or a failure with the time until which it is not retried.
        self._kept: OrderedDict[int, RegisteredSchema | tuple[str, float]] = OrderedDict()
        self._kept_characters = 0
        self._away: tuple[str, float] | None = None

    @property
    def shown(self) -> str:
        """The address without a password."""
        where = f"{self._host}:{self._port}{self._path}"
        return visible(f"{'https' if self._tls else 'http'}://{where}")

    def is_known(self, schema_id: int) -> bool:
        """True if `by_id` would answer without a request."""
        with self._lock:
            return self._recent(schema_id) is not None

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id. CannotDecode if the registry has none, or does not answer."""
        with self._lock:
            found = self._recent(schema_id)
        if found is None:
            try:
                found = self._fetch(schema_id)
            except CannotDecode as error:
                found = (str(error), self._now_s() + _FAILURE_S)
            with self._lock:
                self._keep(schema_id, found)
        if isinstance(found, RegisteredSchema):
            return found
        raise CannotDecode(found[0])

    def _keep(self, schema_id: int, found: RegisteredSchema | tuple[str, float]) -> None:
        self._kept_characters += _length(found) - _length(self._kept.pop(schema_id, None))
        self._kept[schema_id] = found
        while len(self._kept) > _KEPT_MAX or self._kept_characters > _KEPT_CHARACTERS_MAX:
            self._kept_characters -= _length(self._kept.popitem(last=False)[1])

    def _recent(self, schema_id: int) -> RegisteredSchema | tuple[str, float] | None:
        for found in (self._kept.get(schema_id), self._away):
            if isinstance(found, RegisteredSchema) or (found and found[1] > self._now_s()):
                return found
        return None

    def _fetch(self, schema_id: int) -> RegisteredSchema:
        deadline_s = time.monotonic() + self._timeout_s
        try:
            answer = self._get(f"/schemas/ids/{schema_id}", deadline_s)
        except _NoAnswer as error:
            # The ids come from records of others: each could have another one.
            self._away = str(error), self._now_s() + _FAILURE_S
            raise
        kind = str(answer.get("schemaType") or AVRO)
        if kind == PROTOBUF:
            # The serialized form of a schema is a descriptor, so that no compiler is needed.
            answer = self._get(f"/schemas/ids/{schema_id}?format=serialized", deadline_s)
        others: dict[str, str] = {}
        self._follow(_references(answer), kind, others, deadline_s)
        return RegisteredSchema(kind, _text(answer), tuple(others.items()))

    def _follow(
        self, references: list[Reference], kind: str, others: dict[str, str], deadline_s: float
    ) -> None:
        """Add the schemas of `references` to `others`, in such an order that each follows the
        schemas that it needs."""
        # A stack of (reference, answer). The answer is None until the schema was requested; the
        # references in the answer are then above it on the stack.
        stack: list[tuple[Reference, dict[str, Any] | None]]
        stack = [(each, None) for each in reversed(references)]
        asked: set[str] = set()
        while stack:
            reference, answer = stack.pop()
            if answer is not None:
                others[reference.name] = _text(answer)
                if sum(map(len, others.values())) > _SCHEMA_CHARACTERS_MAX:
                    raise CannotDecode(
                        f"the schema refers to more than {_SCHEMA_CHARACTERS_MAX} characters"
                    )
                continue
            if reference.name in asked:
                continue
            asked.add(reference.name)
            if len(asked) > _REFERENCES_MAX:
                raise CannotDecode(f"the schema refers to more than {_REFERENCES_MAX} others")
            path = f"/subjects/{reference.subject}/versions/{reference.version}"
            answer = self._get(
                f"{path}?format=serialized" if kind == PROTOBUF else path, deadline_s
            )
            stack.append((reference, answer))
            stack += [(each, None) for each in reversed(_references(answer))]

    # --- HTTP -------------------------------------------------------------------------------------

    def _get(self, path: str, deadline_s: float) -> dict[str, Any]:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            self._no_answer()
        connection = (
            http.client.HTTPSConnection(self._host, self._port, timeout=left_s)
            if self._tls
            else http.client.HTTPConnection(self._host, self._port, timeout=left_s)
        )
        try:
            with Deadline(left_s) as deadline, closing(connection):
                deadline.watched(connection).request(
                    "GET", self._path + path, headers=self._headers
                )
                response = connection.getresponse()
                data = response.read(_ANSWER_BYTES_MAX + 1)
        except TimeoutError:
            self._no_answer()
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise _NoAnswer(f"{self.shown} cannot be asked: {said(reason)}") from None
        return self._answer(response.status, data, path)

    def _no_answer(self) -> NoReturn:
        raise _NoAnswer(f"{self.shown} does not answer within {self._timeout_s:g} s")

    def _answer(self, status: int, data: bytes, path: str) -> dict[str, Any]:
        if len(data) > _ANSWER_BYTES_MAX:
            raise CannotDecode(f"{self.shown} answers more than {_ANSWER_BYTES_MAX} bytes")
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if status != http.HTTPStatus.OK:
            message = answer.get("message") if isinstance(answer, dict) else None
            words = f" ({said(message)})" if message else ""
            raise CannotDecode(f"{self.shown}{said(path)} answers {status}{words}")
        if not isinstance(answer, dict):
            raise CannotDecode(
                f"{self.shown}{said(path)} answers no JSON object; is it a registry?"
            )
        return answer


def _length(found: RegisteredSchema | tuple[str, float] | None) -> int:
    return found.length if isinstance(found, RegisteredSchema) else 0


def said(words: object) -> str:
    """Words of a registry, shortened, without what a terminal would act on."""
    text = visible(str(words)[: _SAID_MAX + 1])
    return text if len(text) <= _SAID_MAX else f"{text[:_SAID_MAX]}..."


def _parts(url: str) -> tuple[SplitResult, int]:
    """The parts of an address, and its port. ValueError, without any part of a password, for an
    address that cannot be used."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
        usable = bool(parts.hostname) and "@" not in f"{parts.path}{parts.query}{parts.fragment}"
        if usable and not parts.query and not parts.fragment:
            return parts, port
    except (ValueError, KeyError):
        pass
    before, sign, after = url.rpartition("@")
    shown = f"***@{after}" if sign and before else url
    raise ValueError(
        f"{shown!r} is no address of a schema registry; write http://HOST:PORT or https://HOST, and"
        " the characters / ? # @ of a user or password as %2F %3F %23 %40"
    )


def _text(answer: dict[str, Any]) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise CannotDecode("the registry's answer has no schema")
    return text


def _references(answer: dict[str, Any]) -> list[Reference]:
    listed = answer.get("references") or []
    try:
        return [
            Reference(str(each["name"]), quote(str(each["subject"]), safe=""), int(each["version"]))
            for each in listed
        ]
    except (TypeError, KeyError, ValueError, OverflowError):
        raise CannotDecode("the registry's answer has references without name or subject") from None

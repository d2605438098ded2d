"""The public keys that tokens are signed with: a JWKS from a file or an address, read in another
thread (A-47).

The keys are read again at intervals, and when a token has an unknown key, but not more often than
the settings allow. If reading fails, the old keys stay in use.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog

from odradek_broker.config.sasl import SignedTokens
from odradek_broker.deferred import Deferred
from odradek_broker.security.plain_users import Beside
from odradek_broker.server.host import StartError
from odradek_protocol.http_deadline import Deadline
from odradek_protocol.visible import visible

if TYPE_CHECKING:
    import jwt

log = structlog.get_logger("odradek.sasl")

_FILE = "file://"
_BYTES_MAX = 1_048_576
_REASON_MAX = 200
_TIMEOUT_S = 10.0
_KEYS_MAX = 1_000
#: The type of symmetric keys. They are refused, because a broker that can validate tokens with such
#: a key could also sign tokens with it.
_SYMMETRIC = "oct"
#: The minimum time after a reading of the keys, before a token with an unknown key causes the next
#: reading.
_UNKNOWN_EVERY_MS = 10_000


class JwksError(Exception):
    """The error for keys that cannot be read."""


def read_jwks(url: str) -> bytes:
    """The bytes at an address. Raises JwksError."""
    try:
        if url.startswith(_FILE):
            with open(url.removeprefix(_FILE), "rb") as file:
                data: bytes = file.read(_BYTES_MAX + 1)
        else:
            request = urllib.request.Request(url, headers={"Accept": "application/json"})
            with (
                Deadline(_TIMEOUT_S) as deadline,
                deadline.opener().open(request, timeout=_TIMEOUT_S) as answer,
            ):
                data = answer.read(_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        raise JwksError(f"the answer is {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise JwksError(visible(reason[:_REASON_MAX])) from None
    if len(data) > _BYTES_MAX:
        raise JwksError(f"it is larger than {_BYTES_MAX} bytes")
    return data


def parse_jwks(data: bytes) -> list[jwt.PyJWK]:
    """The public keys of a JWKS. Raises JwksError."""
    import jwt

    try:
        found = json.loads(data)
        texts = found["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise JwksError('it is no JWKS: an object with the list "keys"') from None
    keys = []
    for each in (texts if isinstance(texts, list) else [])[:_KEYS_MAX]:
        try:
            key = jwt.PyJWK.from_dict(each)
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
            # Keys of unknown types are allowed.
            continue
        if key.key_type != _SYMMETRIC and key.public_key_use in (None, "sig"):
            keys.append(key)
    if not keys:
        raise JwksError("it has no public key for signatures")
    return keys


class JwksKeys:
    """The keys of one listener. `beside`: a thread for reading. `now_ms`: a monotonic clock.

    Raises StartError if PyJWT is not installed, or if the keys are in a file and the file has no
    usable key.
    """

    def __init__(self, settings: SignedTokens, beside: Beside, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._beside = beside
        self._now_ms = now_ms
        self._keys: list[Any] = []
        self._read_ms: int | None = None
        self._tried_ms: int | None = None
        self._failures = 0
        #: Resolves when the present reading of the keys has ended; None if there is none.
        self._reading: Deferred[None] | None = None
        try:
            import jwt  # noqa: F401
        except ImportError:
            raise StartError(
                "OAUTHBEARER with signed tokens needs the package PyJWT: pip install 'odradek[oauth]'"
            ) from None
        if settings.jwks_url.startswith(_FILE):
            try:
                self._use(read_jwks(settings.jwks_url))
            except JwksError as problem:
                raise StartError(
                    f"sasl.oauthbearer.jwks.endpoint.url {settings.jwks_url}: {problem}"
                ) from None
        else:
            self._read()

    def key(self, key_id: str | None) -> Any | Deferred[Any]:
        """The key with this id, or the only key if `key_id` is None; None if there is no such key.
        The result is a Deferred if the keys have to be read first."""
        found = self._find(key_id)
        now_ms = self._now_ms()
        if found is not None:
            if self._read_ms is None or now_ms - self._read_ms >= self._settings.refresh_ms:
                self._read_if_due(now_ms, self._backoff_ms)
            return found
        wait_ms = self._backoff_ms if self._failures or not self._keys else _UNKNOWN_EVERY_MS
        self._read_if_due(now_ms, wait_ms)
        if self._reading is None:
            return None
        return self._reading.map(lambda _: self._find(key_id))

    @property
    def _backoff_ms(self) -> int:
        settings = self._settings
        longer_ms = settings.retry_backoff_ms << min(max(self._failures - 1, 0), 20)
        return min(longer_ms, settings.retry_backoff_max_ms)

    def _find(self, key_id: str | None) -> Any:
        if key_id is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((each for each in self._keys if each.key_id == key_id), None)

    def _read_if_due(self, now_ms: int, wait_ms: int) -> None:
        if self._reading is None and (self._tried_ms is None or now_ms - self._tried_ms >= wait_ms):
            self._read()

    def _read(self) -> None:
        self._tried_ms = self._now_ms()
        reading: Deferred[None] = Deferred()
        self._reading = reading
        read: list[bytes] = []

        def done(problem: Exception | None) -> None:
            self._reading = None
            try:
                if problem is not None:
                    raise JwksError(str(problem))
                self._use(read[0])
            except JwksError as why:
                self._failures += 1
                log.error(
                    "cannot read the keys that tokens are signed with",
                    url=self._settings.jwks_url,
                    problem=str(why),
                )
            reading.resolve(None)

        self._beside(lambda: read.append(read_jwks(self._settings.jwks_url)), done)

    def _use(self, data: bytes) -> None:
        self._keys = parse_jwks(data)
        self._read_ms = self._tried_ms = self._now_ms()
        self._failures = 0

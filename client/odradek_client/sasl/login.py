"""The login that all connections of a client share. The login keeps the OAUTHBEARER token, and
replaces it before it expires."""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import time
from collections.abc import Callable
from random import Random
from typing import Any

from odradek_client.backoff import Backoff
from odradek_client.errors import AuthenticationFailed, ConfigError
from odradek_client.sasl import token_endpoint
from odradek_client.sasl.exchange import SaslClient
from odradek_client.sasl.exchanges import (
    OAuthBearerExchange,
    Password,
    PlainExchange,
    ScramExchange,
)
from odradek_client.sasl.settings import SaslSettings, TokenEndpoint, TokenSource, credentials
from odradek_client.sasl.token_endpoint import EndpointBusy
from odradek_client.sasl.tokens import Token, token_of
from odradek_protocol.sasl.scram import ScramMechanism
from odradek_protocol.tls.files import resolve
from odradek_protocol.tls.settings import TlsError

_NONCE_BYTES = 24
#: The pause after a failed attempt to replace a token that has not expired.
_AGAIN_MS = 10_000

log = logging.getLogger("odradek.client")


class Login:
    """The login of a client. Call the object for each authentication."""

    def __init__(
        self,
        settings: SaslSettings,
        random: Random,
        now_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        """Read the settings. Raises ConfigError for settings without credentials. `now_ms`: since
        the epoch."""
        self._settings = settings
        self._random = random
        self._now_ms = now_ms
        try:
            self._credentials = credentials(settings, resolve)
        except TlsError as error:
            raise ConfigError(str(error)) from None
        self._token: Token | None = None
        self._refresh_ms = 0.0
        self._asking = asyncio.Lock()
        #: The reason why the endpoint returned no token at the last attempt.
        self._problem = ""

    async def __call__(self, timeout_ms: float) -> SaslClient:
        """The client's side of one authentication. AuthenticationFailed if there is no token in
        time (C-74)."""
        if isinstance(self._credentials, TokenSource):
            return await self._with_token(self._credentials, timeout_ms)
        return self._with_password(self._present_password(self._credentials))

    def refused(self) -> None:
        """Forget the token, because the broker refused it; the next authentication gets another
        token."""
        self._token = None

    def _present_password(self, before: Password) -> Password:
        """The password, read again because its file may have changed; the earlier password if the
        file cannot be read."""
        try:
            found = credentials(self._settings, resolve)
        except (ConfigError, TlsError) as error:
            log.warning("the password cannot be read again, and the earlier one is used: %s", error)
            return before
        assert isinstance(found, Password)
        self._credentials = found
        return found

    def _with_password(self, password: Password) -> SaslClient:
        scram = ScramMechanism.of_name(self._settings.mechanism)
        if scram is None:
            return PlainExchange(password)
        return ScramExchange(scram, password, secrets.token_urlsafe(_NONCE_BYTES))

    # --- tokens -----------------------------------------------------------------------------------

    async def _with_token(self, source: TokenSource, timeout_ms: float) -> SaslClient:
        self._problem = ""
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._asking:
                token = await self._present_token(source)
        except TimeoutError:
            why = self._problem or f"{source.place} gives none"
            raise AuthenticationFailed(f"no token within {timeout_ms:.0f} ms: {why}") from None
        return OAuthBearerExchange(token, source.place, self._now_ms())

    async def _present_token(self, source: TokenSource) -> Token:
        old = self._token
        if old is not None and self._now_ms() < self._refresh_ms:
            return old
        try:
            token = await self._new_token(source)
        except AuthenticationFailed as error:
            now_ms = self._now_ms()
            if old is None or old.expires_ms is None or old.expires_ms <= now_ms:
                raise
            log.warning("the token cannot be replaced, and is used until it expires: %s", error)
            self._refresh_ms = min(now_ms + _AGAIN_MS, old.expires_ms)
            return old
        now_ms = self._now_ms()
        self._token = token
        self._refresh_ms = self._settings.refresh.refresh_ms(token, now_ms, self._random.random())
        return token

    async def _new_token(self, source: TokenSource) -> Token:
        if source.endpoint is not None:
            value, lasts_s = await self._from_endpoint(source.endpoint)
            token = token_of(value, None, source.extensions)
            if token.expires_ms is None and lasts_s is not None:
                token = token_of(value, self._now_ms() + lasts_s * 1000, source.extensions)
            return token
        assert source.provider is not None
        value, expires_ms = _given(await _called(source.provider))
        return token_of(value, expires_ms, source.extensions)

    async def _from_endpoint(self, endpoint: TokenEndpoint) -> tuple[str, float | None]:
        """Get a token from the endpoint; requests are repeated while the endpoint is busy, for
        login_retry_backoff_max_ms.
        """
        settings = self._settings
        backoff = Backoff(
            settings.login_retry_backoff_ms, settings.login_retry_backoff_max_ms, self._random
        )
        loop = asyncio.get_running_loop()
        end = loop.time() + settings.login_retry_backoff_max_ms / 1000
        failures = 0
        while True:
            try:
                return await loop.run_in_executor(
                    None,
                    token_endpoint.ask,
                    endpoint,
                    settings.login_connect_timeout_ms,
                    settings.login_read_timeout_ms,
                )
            except EndpointBusy as busy:
                self._problem = str(busy)
                failures += 1
                wait_s = backoff.delay_ms(failures) / 1000
                if loop.time() + wait_s >= end:
                    raise AuthenticationFailed(f"no token: {busy}") from None
            await asyncio.sleep(wait_s)


async def _called(provider: Callable[[], Any]) -> Any:
    """Call a token provider. A provider that is not a coroutine function runs in a thread, because
    it may block."""
    try:
        if inspect.iscoroutinefunction(provider):
            return await provider()
        given = await asyncio.get_running_loop().run_in_executor(None, provider)
        return await given if inspect.isawaitable(given) else given
    except AuthenticationFailed:
        raise
    except Exception as error:
        raise AuthenticationFailed(
            f"no token: sasl_oauth_token_provider failed with {type(error).__name__}: {error}"
        ) from error


def _given(returned: Any) -> tuple[str, float | None]:
    """The token of a provider, and its expiry in ms since the epoch (None: unknown)."""
    if isinstance(returned, str):
        return returned, None
    if isinstance(returned, tuple | list) and len(returned) >= 2:
        value, expires_s = returned[:2]
        number = isinstance(expires_s, int | float) and not isinstance(expires_s, bool)
        if isinstance(value, str) and (expires_s is None or number):
            return value, None if expires_s is None else float(expires_s) * 1000
    raise AuthenticationFailed(
        "no token: sasl_oauth_token_provider must return (token, end in seconds since the epoch), or the"
        f" token alone; it returned a {type(returned).__name__}"
    )

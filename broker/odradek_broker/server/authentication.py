"""The authentication of one connection at a listener with SASL, before its first request and again
later.

The client sends ApiVersions and SaslHandshake, and then tokens. After version 0 of SaslHandshake,
tokens are bare frames; after version 1, they are in SaslAuthenticate requests. The states are a
table (N-25); the delays after failures are in `sasl_listeners.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from odradek_broker.deferred import Deferred
from odradek_broker.request import AuthenticationAnswer, CloseConnection, EncodedReply, Peer
from odradek_broker.security.sasl import Authenticated, Challenge, SaslFailure, SaslServer, Step
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey

if TYPE_CHECKING:
    from odradek_broker.server.sasl_listeners import SaslListener

#: The minimum time between two authentications of a connection, as in Kafka (KIP-368).
_AGAIN_MS = 1_000
_KEY_BYTES = 2
_SIZE_BYTES = 4


class SaslState(Enum):
    """The message that a connection waits for."""

    INITIAL = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKENS = "a token"
    MESSAGES = "SaslAuthenticate"
    OTHER_MECHANISM = "nothing: another mechanism than before"
    COMPLETE = "requests"
    FAILED = "its end"


class SaslEvent(Enum):
    """An event in the authentication of a connection."""

    VERSIONS_TOLD = "ApiVersions was answered"
    HANDSHAKE_0 = "a mechanism was chosen, tokens follow"
    HANDSHAKE_1 = "a mechanism was chosen, SaslAuthenticate follows"
    HANDSHAKE_OTHER = "another mechanism than before was chosen"
    AUTHENTICATED = "the last token was right"
    BEGUN_AGAIN = "SaslHandshake of who is authenticated"
    FAILED = "it failed"


_CHOSEN = {SaslEvent.HANDSHAKE_0: SaslState.TOKENS, SaslEvent.HANDSHAKE_1: SaslState.MESSAGES}

#: The legal transitions; any other transition is a bug of this program.
TRANSITIONS: dict[tuple[SaslState, SaslEvent], SaslState] = {
    (SaslState.INITIAL, SaslEvent.VERSIONS_TOLD): SaslState.HANDSHAKE,
    **{(SaslState.INITIAL, event): state for event, state in _CHOSEN.items()},
    **{(SaslState.HANDSHAKE, event): state for event, state in _CHOSEN.items()},
    (SaslState.HANDSHAKE, SaslEvent.HANDSHAKE_OTHER): SaslState.OTHER_MECHANISM,
    (SaslState.TOKENS, SaslEvent.AUTHENTICATED): SaslState.COMPLETE,
    (SaslState.MESSAGES, SaslEvent.AUTHENTICATED): SaslState.COMPLETE,
    (SaslState.COMPLETE, SaslEvent.BEGUN_AGAIN): SaslState.HANDSHAKE,
    **{
        (state, SaslEvent.FAILED): SaslState.FAILED
        for state in SaslState
        if state is not SaslState.FAILED
    },
}

#: The requests that are answered in each state before authentication, apart from tokens.
_TAKEN = {
    SaslState.INITIAL: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    SaslState.HANDSHAKE: (ApiKey.SASL_HANDSHAKE,),
    # In this state the answer to ApiVersions and SaslHandshake is an error.
    SaslState.MESSAGES: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
}


class FailedAuthenticationClose(CloseConnection):
    """The close of a connection `delay_ms` after a failed authentication. `reply`, if there is a
    reply, is sent before the close.
    """

    def __init__(self, reason: str, reply: EncodedReply, delay_ms: int) -> None:
        super().__init__(reason)
        self.reply = reply
        self.delay_ms = delay_ms


Dispatch = Callable[[Peer, memoryview], EncodedReply | Deferred[EncodedReply]]


class SaslServerAuthenticator:
    """The authentication of one connection. `dispatch`: answers requests. `completed`: called when
    the client has authenticated for the first time."""

    def __init__(
        self,
        listener: SaslListener,
        peer: Peer,
        dispatch: Dispatch,
        completed: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._peer = peer
        self._dispatch = dispatch
        self._completed = completed
        self.state = SaslState.INITIAL
        #: True while a token is being checked; later frames have to wait.
        self.busy = False
        self._mechanism = ""
        #: The mechanism of the first authentication; empty until then.
        self._known_by = ""
        self._exchange: SaslServer
        self._failure: SaslFailure | None = None
        self._ends_silently = False
        #: The monotonic time at which the session expires; None if it does not expire.
        self._expires_at_ms: int | None = None
        self._began_again_ms: int | None = None

    @property
    def known(self) -> bool:
        """True if the client has been authenticated."""
        return bool(self._known_by)

    def answer(self, frame: memoryview) -> EncodedReply | Deferred[EncodedReply]:
        """The reply to one frame. Raises CloseConnection or AuthenticationFailed if the frame gets
        no reply."""
        if self.state is SaslState.COMPLETE:
            if not self._begins_again(frame):
                self._check_session()
                return self._dispatch(self._peer, frame)
            self._move(SaslEvent.BEGUN_AGAIN)
        if self.state is SaslState.TOKENS:
            return self._answer_token(bytes(frame))
        self._check_key(frame)
        self._peer.authentication = self
        try:
            reply = self._dispatch(self._peer, frame)
        finally:
            self._peer.authentication = None
        if not isinstance(reply, Deferred):
            return self._checked(reply)
        # `map` is not used, because its result, if abandoned, would not abandon the reply of the
        # handler.
        checked: Deferred[EncodedReply] = Deferred()
        checked.on_abandon = reply.abandon
        reply.then(lambda value: checked.resolve(self._checked(value)))
        return checked

    # --- Called by handlers (see `odradek_broker.request.Authentication`) ---

    def versions_asked(self) -> ErrorCode:
        """The error code for ApiVersions; NONE unless a token is expected."""
        if self.state is SaslState.MESSAGES:
            return self._out_of_place("ApiVersions")
        self._move(SaslEvent.VERSIONS_TOLD)
        return ErrorCode.NONE

    def handshake(self, mechanism: str, version: int) -> tuple[ErrorCode, list[str]]:
        if self.state is SaslState.MESSAGES:
            return self._out_of_place("SaslHandshake"), []
        enabled = list(self._listener.mechanisms)
        if mechanism not in self._listener.mechanisms:
            self._fail(SaslFailure("it requested a mechanism that is not enabled"))
            # Kafka sends no answer if the handshake of a re-authentication names a mechanism that
            # is not enabled.
            self._ends_silently = self.known
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled
        if self.known and mechanism != self._known_by:
            self._move(SaslEvent.HANDSHAKE_OTHER)
            return ErrorCode.NONE, enabled
        self._mechanism = mechanism
        self._exchange = self._listener.mechanisms[mechanism].begin(self._peer.host)
        self._move(SaslEvent.HANDSHAKE_1 if version else SaslEvent.HANDSHAKE_0)
        return ErrorCode.NONE, enabled

    def authenticate(self, token: bytes) -> AuthenticationAnswer | Deferred[AuthenticationAnswer]:
        step = self._step(token)
        return step.map(self._stepped) if isinstance(step, Deferred) else self._stepped(step)

    # --- Steps ---

    def _move(self, event: SaslEvent) -> None:
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise RuntimeError(f"{event.name} in the state {self.state.name}")
        self.state = following

    def _fail(self, failure: SaslFailure) -> None:
        self._failure = failure
        self._move(SaslEvent.FAILED)

    def _out_of_place(self, what: str) -> ErrorCode:
        self._fail(SaslFailure(f"it sent {what} in the place of {self.state.value}"))
        return ErrorCode.ILLEGAL_SASL_STATE

    def _check_key(self, frame: memoryview) -> None:
        key = int.from_bytes(frame[:_KEY_BYTES], "big", signed=True)
        if key in _TAKEN.get(self.state, ()):
            return
        if self.state is SaslState.OTHER_MECHANISM:
            reason = f"it requested another mechanism than {self._known_by}, which it began with"
        else:
            known = key in ApiKey.__members__.values()
            what = ApiKey(key).name if known else f"unknown key {key}"
            reason = f"it sent {what} in the place of {self.state.value}"
            if self.state in (SaslState.INITIAL, SaslState.HANDSHAKE):
                reason += f": its client needs security.protocol={self._listener.protocol}"
        self._fail(SaslFailure(reason))
        raise self._failed(SaslFailure(reason), None)

    def _step(self, token: bytes) -> Step | Deferred[Step]:
        step = self._exchange.step(token)
        if isinstance(step, Deferred) and not step.done:
            self.busy = True
            step.then(lambda _: self._not_busy())
        return step

    def _not_busy(self) -> None:
        self.busy = False

    def _stepped(self, step: Step) -> AuthenticationAnswer:
        if isinstance(step, Challenge):
            return AuthenticationAnswer(ErrorCode.NONE, "", step.token, 0)
        if isinstance(step, Authenticated) and self.known and step.user != self._peer.user:
            message = (
                "Cannot change principals during re-authentication from"
                f" User.{self._peer.user}: User.{step.user}"
            )
            step = SaslFailure("it authenticates as another user than before", message)
        if isinstance(step, SaslFailure):
            self._fail(step)
            again = "re-authentication" if self.known else "authentication"
            message = step.client_message or (
                f"Authentication failed during {again} due to invalid credentials with SASL mechanism"
                f" {self._mechanism}"
            )
            return AuthenticationAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, message, b"", 0)
        return AuthenticationAnswer(ErrorCode.NONE, "", step.token, self._complete(step))

    def _complete(self, end: Authenticated) -> int:
        """Called when the client has authenticated; returns the lifetime of its session in ms, 0 if
        it is unlimited."""
        self._move(SaslEvent.AUTHENTICATED)
        lifetime_ms = self._listener.session_lifetime_ms(self._mechanism, end.expires_at_ms)
        self._expires_at_ms = None
        if lifetime_ms is not None:
            self._expires_at_ms = self._listener.now_ms() + lifetime_ms
        first = not self.known
        self._known_by = self._mechanism
        self._peer.user, self._peer.by_token = end.user, end.by_token
        self._listener.succeeded(self._mechanism, again=not first)
        if first:
            self._completed()
        return lifetime_ms or 0

    def _answer_token(self, token: bytes) -> EncodedReply | Deferred[EncodedReply]:
        def bare(answer: AuthenticationAnswer) -> EncodedReply:
            # Bare tokens (without SaslAuthenticate) have no error field, so a failure has no
            # answer.
            size = len(answer.token).to_bytes(_SIZE_BYTES, "big")
            return self._checked(None if answer.error else [size + answer.token])

        answer = self.authenticate(token)
        return answer.map(bare) if isinstance(answer, Deferred) else bare(answer)

    def _checked(self, reply: EncodedReply) -> EncodedReply:
        """The reply itself, or after a failure an AuthenticationFailed that contains it."""
        failure = self._failure
        if failure is None or isinstance(reply, CloseConnection):
            return reply
        return self._failed(failure, None if self._ends_silently else reply)

    def _failed(self, failure: SaslFailure, reply: EncodedReply) -> FailedAuthenticationClose:
        delay_ms = self._listener.failed(
            self._peer.host, self._mechanism, failure.reason, again=self.known
        )
        return FailedAuthenticationClose(failure.reason, reply, delay_ms)

    # --- Afterwards ---

    def _begins_again(self, frame: memoryview) -> bool:
        """True if the frame is a SaslHandshake that begins a re-authentication; False if the
        dispatcher should handle it like any other request."""
        if int.from_bytes(frame[:_KEY_BYTES], "big", signed=True) != ApiKey.SASL_HANDSHAKE:
            return False
        if self._expires_at_ms is None:
            return False
        now_ms, last_ms = self._listener.now_ms(), self._began_again_ms
        if last_ms is not None and now_ms - last_ms < _AGAIN_MS:
            return False
        self._began_again_ms = now_ms
        return True

    def _check_session(self) -> None:
        if self._expires_at_ms is not None and self._listener.now_ms() > self._expires_at_ms:
            self._listener.expired()
            raise CloseConnection(
                "its session has expired, and it has not authenticated again"
                " (connections.max.reauth.ms, or its token)"
            )

"""The console's server of static files, JSON and events, for authorized browsers."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from odradek_client.errors import OdradekError
from odradek_console import (
    access,
    client_metrics,
    cluster_changes,
    export,
    group,
    groups,
    operations,
    overview,
    producers,
    records,
    tail,
    timeline,
    topic,
    topics,
    transactions,
    writes,
)
from odradek_console.answers import HttpProblem, Json, PageQuery, failed, refusal_of
from odradek_console.asked import EVENTS, Asked, Stream, Streamer, View
from odradek_console.changes import PageChange, perform
from odradek_console.clusters import states
from odradek_console.connections import (
    LATER_HEAD_S,
    BrowserConnection,
    PeerLimits,
    RequestAdmission,
    limit_foreign_lines,
)
from odradek_console.live import Feed
from odradek_console.record_rules import formats
from odradek_console.sessions import ClientSettings, ConsoleSession
from odradek_console.sign_in import MECHANISMS, Visit, Visits
from odradek_protocol.http_hosts import OwnHosts, host_name, is_address, is_own_origin
from odradek_protocol.repeated_lines import RepeatedLines

_log = structlog.get_logger("odradek.console")

#: The modules with the views of the pages.
_FAMILIES = (
    access,
    client_metrics,
    cluster_changes,
    export,
    group,
    groups,
    operations,
    overview,
    producers,
    records,
    tail,
    timeline,
    topic,
    topics,
    transactions,
    writes,
)

_STATIC = Path(__file__).parent / "static"
_COMPRESSED_BYTES_MIN = 1_000
_BODY_BYTES_MAX = 2_097_152
_LOOK_FOR_ENDED_S = 60.0
#: The time for the body of a request.
_BODY_S = 30.0
_HEAD_BYTES_MAX = 65_536
#: The limit of log lines in a minute about views that failed.
_FAILURE_LINES_MAX = 60
#: The maximum wait for open answers when the server stops, because event streams would never end.
_LAST_ANSWERS_S = 1

_failures = RepeatedLines(_log, _FAILURE_LINES_MAX, time.monotonic)
_TOO_MANY = HttpProblem(503, "Too many requests are in progress", "", "Close pages, or try again.")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_SAFE_METHODS = ("GET", "HEAD")
#: The values of Sec-Fetch-Site with which data may be requested. "none": a user typed the address.
#: Programs other than browsers do not send the header.
_OWN_SITES = ("", "same-origin", "none")
#: The header that every request for a change must have. For a script of another site, a browser
#: sends the header only after a preflight request (CORS), which the console does not allow.
WRITE_HEADER = "X-Odradek-Console"


@dataclass(frozen=True)
class ConsoleOptions:
    """The options of a console. `clusters`: the settings of the clients, by the name of the
    cluster. `hosts`: names that browsers may use for the console, in addition to this machine's
    names. `write`: pages may request changes. `proxies`: addresses and networks of the proxies
    whose X-Forwarded-For and X-Forwarded-Proto are trusted."""

    clusters: Mapping[str, ClientSettings]
    hosts: frozenset[str] = frozenset()
    write: bool = False
    proxies: tuple[str, ...] = ()


class _Guard:
    """The middleware that sets the headers of every answer, and refuses requests that a browser
    sends on behalf of another site.

    Requests with an unknown host name are refused, because otherwise any site could point its own
    name at this machine and read the console's data (DNS rebinding). IP addresses are accepted.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = OwnHosts(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send_guarded)
        else:
            await _refused(refusal)(scope, receive, send_guarded)

    def _refusal(self, method: str, path: str, headers: Headers) -> HttpProblem | None:
        host = headers.get("host", "")
        name = host_name(host)
        if name is None:
            return HttpProblem(400, "The header Host is wrong", f"{host[:100]!r}")
        if not self._hosts.has(name):
            return HttpProblem(
                421,
                "The console does not answer to this name",
                f"{name[:100]!r}",
                f"Start it with --allow-host {name[:100]} if the name is yours.",
            )
        # Requests for data are refused if a page of another site sends them: the browser would hide
        # the answers from that page, but they cost the broker time. Links to pages work.
        site = headers.get("sec-fetch-site", "")
        if path.startswith("/api/") and site not in _OWN_SITES:
            return HttpProblem(
                403, "The request came from a page of another site", f"Sec-Fetch-Site: {site[:50]}"
            )
        if method in _SAFE_METHODS:
            return None
        origin = headers.get("origin", "")
        if not is_own_origin(origin, host) or WRITE_HEADER not in headers:
            return HttpProblem(403, "The request did not come from a page of the console")
        return None


def _json(body: Json, status: int = 200) -> Response:
    # json.dumps escapes non-ASCII characters, because names may have lone surrogates, which cannot
    # be encoded in UTF-8.
    return Response(
        json.dumps(body),
        status,
        {"Cache-Control": "no-store"},
        media_type="application/json",
    )


def _refused(refusal: HttpProblem) -> Response:
    return _json(refusal.as_json(), refusal.status)


@dataclass(frozen=True)
class _Cluster:
    """A cluster, and the sessions of its users. `cookie`: the end of the name of its cookie."""

    clients: ClientSettings
    visits: Visits
    cookie: str

    @property
    def bootstrap(self) -> str:
        return str(self.clients["admin"]["bootstrap_servers"])


class Console:
    """The views, feeds and changes of all families, and the sessions of all users."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self._views: dict[str, View] = {}
        self._streams: dict[str, Streamer] = {}
        self._changes: dict[str, PageChange] = {}
        feeds: dict[str, Feed] = {}
        for family in _FAMILIES:
            self._views |= getattr(family, "VIEWS", {})
            self._streams |= getattr(family, "STREAMS", {})
            feeds |= getattr(family, "FEEDS", {})
            if options.write:
                self._changes |= getattr(family, "CHANGES", {})
        several = len(options.clusters) > 1
        self._clusters = {
            name: _Cluster(
                clients,
                Visits(clients, feeds, cluster=name if several else ""),
                f"_{number}" if number else "",
            )
            for number, (name, clients) in enumerate(options.clusters.items())
        }

    async def _about(self, request: Request) -> Response:
        named = request.query_params.get("cluster", "")
        general = {"clusters": list(self._clusters), "cluster": named, "write": self.options.write}
        if len(self._clusters) > 1 and not named:
            return _json({**general, "user": None, "open": True})
        cluster = self._cluster(request)
        about = {
            **general,
            "bootstrap": cluster.bootstrap,
            "mechanisms": MECHANISMS if cluster.visits.signs_in else None,
            "mechanism": cluster.clients["admin"].get("sasl_mechanism"),
        }
        try:
            visit = self._visit(request)
        except HttpProblem:
            return _json({**about, "user": None, "open": False})
        return _json(
            {**about, "user": visit.session.user, "open": True, "formats": list(formats())}
        )

    def _cluster(self, request: Request) -> _Cluster:
        """The cluster that the address names; the only one without a name."""
        name = request.query_params.get("cluster", "")
        if not name and len(self._clusters) == 1:
            return next(iter(self._clusters.values()))
        found = self._clusters.get(name)
        if found is None:
            detail = repr(name[:100]) if name else "The address names none."
            raise HttpProblem(
                404, "There is no such cluster", detail, "Choose one of all clusters.", "/?cluster="
            )
        return found

    def _visit(self, request: Request) -> Visit:
        cluster = self._cluster(request)
        return cluster.visits.of(request.cookies.get(_cookie(request, cluster)))

    async def _states(self, request: Request) -> Response:
        """The state of each cluster, for the overview of several."""

        def session(cluster: _Cluster) -> ConsoleSession | None:
            try:
                token = request.cookies.get(_cookie(request, cluster))
                return cluster.visits.of(token).session
            except HttpProblem:
                return None

        found = await states(map(session, self._clusters.values()))
        rows = zip(self._clusters.items(), found, strict=True)
        return _json(
            {
                "rows": [
                    {"name": name, "bootstrap": cluster.bootstrap, **state}
                    for (name, cluster), state in rows
                ]
            }
        )

    async def _sign_in(self, request: Request) -> Response:
        cluster = self._cluster(request)
        cookie = _cookie(request, cluster)
        token = await cluster.visits.sign_in(await _sent(request), _asking(request))
        cluster.visits.sign_out(request.cookies.get(cookie))
        answer = _json({})
        answer.set_cookie(
            cookie,
            token,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def _sign_out(self, request: Request) -> Response:
        cluster = self._cluster(request)
        cookie = _cookie(request, cluster)
        cluster.visits.sign_out(request.cookies.get(cookie))
        answer = _json({})
        answer.delete_cookie(cookie)
        return answer

    def app(self) -> ASGIApp:
        """The ASGI application."""
        return Starlette(
            routes=[
                *(
                    Route(f"/api{path}", _answering(self._viewer(view)))
                    for path, view in self._views.items()
                ),
                *(
                    Route(f"/api{path}", _answering(self._streamer(streamer)))
                    for path, streamer in self._streams.items()
                ),
                *(
                    Route(f"/api{path}", _answering(self._changer(path, change)), methods=["POST"])
                    for path, change in self._changes.items()
                ),
                Route("/api/console", _answering(self._about)),
                Route("/api/clusters", _answering(self._states)),
                Route("/api/sign-in", _answering(self._sign_in), methods=["POST"]),
                Route("/api/sign-out", _answering(self._sign_out), methods=["POST"]),
                Route("/api/live", _answering(self._live)),
                Route("/api/{rest:path}", _answering(_no_view)),
                Mount(
                    "/static", GZipMiddleware(StaticFiles(directory=_STATIC), _COMPRESSED_BYTES_MIN)
                ),
                # The page's own router handles all other addresses.
                Route("/{rest:path}", _index),
            ],
            middleware=[
                Middleware(ProxyHeadersMiddleware, trusted_hosts=list(self.options.proxies)),
                Middleware(_Guard, hosts=self.options.hosts),
                Middleware(RequestAdmission, refusal=_refused(_TOO_MANY)),
            ],
            exception_handlers={HTTPException: _http_error},
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        ends = asyncio.create_task(self._end_visits())
        try:
            yield
        finally:
            ends.cancel()
            await asyncio.gather(*(each.visits.close() for each in self._clusters.values()))

    async def _end_visits(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_FOR_ENDED_S)
            for each in self._clusters.values():
                each.visits.drop_ended()

    async def _asked(self, request: Request) -> Asked:
        visit = self._visit(request)
        last_id = request.headers.get("last-event-id", "")
        return Asked(visit.session, PageQuery(request.query_params), last_id)

    def _viewer(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            return _json(await view(await self._asked(request)))

        return show

    def _streamer(self, streamer: Streamer) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            asked = await self._asked(request)
            return _Pieces(await streamer(asked), asked.session)

        return answer

    def _changer(self, path: str, change: PageChange) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visit = self._visit(request)
            return _json(await perform(path, change, visit.session, await _sent(request)))

        return answer

    async def _live(self, request: Request) -> Response:
        visit = self._visit(request)
        hub = visit.hub
        names = list(dict.fromkeys(request.query_params.getlist("feed")))
        hub.check(names)
        last_id = request.headers.get("last-event-id", "")
        return _Pieces(Stream(EVENTS, hub.events(names, last_id)), visit.session)


async def _sent(request: Request) -> Json:
    """The JSON object in the body of a request. Refusal if the body is too long or no JSON
    object."""
    body = b""
    try:
        async with asyncio.timeout(_BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > _BODY_BYTES_MAX:
                    allowed = f"{_BODY_BYTES_MAX:,} bytes are allowed"
                    raise HttpProblem(413, "The request is too long", allowed)
    except TimeoutError:
        raise HttpProblem(408, "The request did not arrive in time") from None
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        sent = None
    if not isinstance(sent, dict):
        raise HttpProblem(400, "The request is no JSON object")
    return sent


def _asking(request: Request) -> str:
    """The client's IP address, or "unknown" if a proxy forwards something else."""
    host = "" if request.client is None else request.client.host.partition("%")[0]
    return host if is_address(host) else "unknown"


def _cookie(request: Request, cluster: _Cluster) -> str:
    """The name of a cluster's cookie. A cookie belongs to a host, so two consoles of one machine
    need cookies with different names."""
    return f"odradek_console_{request.url.port or 80}{cluster.cookie}"


class _Pieces(StreamingResponse):
    """An answer in pieces. Its generator is closed at the end, even if the browser disconnects."""

    def __init__(self, stream: Stream, session: ConsoleSession) -> None:
        headers = {"Cache-Control": "no-store"}
        if stream.file_name is not None:
            name = quote(stream.file_name, safe="")
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
        super().__init__(stream.pieces, 200, headers, stream.media_type)
        self._pieces = stream.pieces
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._session.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._session.streams -= 1
            await self._pieces.aclose()


def _answering(
    answer: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that answers errors as JSON."""

    async def endpoint(request: Request) -> Response:
        try:
            return await answer(request)
        except HttpProblem as refusal:
            return _refused(refusal)
        except OdradekError as error:
            return _refused(refusal_of(error))
        except Exception as error:  # noqa: BLE001 - logged, and the console goes on
            path = request.url.path
            _failures.say("exception", "a view failed", (path, repr(error)), {"path": path})
            return _refused(failed(error))

    return endpoint


async def _no_view(request: Request) -> Response:
    raise HttpProblem(404, "There is no such view", request.url.path[:200])


async def _index(_request: Request) -> Response:
    return FileResponse(_STATIC / "index.html")


async def _http_error(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _refused(HttpProblem(status, f"HTTP {status}", str(getattr(error, "detail", ""))))


class _Server(uvicorn.Server):
    """A server that calls `started` when it accepts requests."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn."""
        await super().startup(sockets)
        if self.started:
            self._started()


async def serve(
    options: ConsoleOptions, listening: socket.socket, started: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGINT or SIGTERM, or until the task is cancelled."""
    limit_foreign_lines()
    config = uvicorn.Config(
        Console(options).app(),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        ws="none",
        http=partial(BrowserConnection, limits=PeerLimits(options.proxies)),  # type: ignore[arg-type]
        h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
        timeout_keep_alive=int(LATER_HEAD_S),
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
    )
    server = _Server(config, started)
    try:
        await server.serve(sockets=[listening])
    except asyncio.CancelledError:
        server.should_exit = True
        raise

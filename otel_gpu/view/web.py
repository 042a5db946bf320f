"""What does the view answer over HTTP? OTLP, the page with its files, and what the page asks for, as JSON."""

from __future__ import annotations

import asyncio
import html
import math
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import msgspec
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..signals import Signal
from ..version import __version__
from . import flame_graphs, metric_tables, traces_panel
from .access import COOKIE, Access
from .bodies import RefusedError, too_large, unpacked
from .gpu_panel import Query, gpu_panel
from .intake import Intake
from .losses import GIVING_WAY, Reason
from .store import Store
from .timelines import NS

_ASSETS = files(__package__) / "assets"
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_OWN_ASSETS = frozenset(
    {"view.css", "flame_frame.css", "uPlot.iife.min.js", "uPlot.min.css", "icon.svg"}
    | {f"{name}.js" for name in ("view", "charts", "elements", "flames", "format", "gpu", "metrics", "requests")}
)
_PATHS: dict[str, Signal] = {
    "/v1/metrics": "metrics",
    "/v1/traces": "traces",
    "/v1development/profiles": "profiles",
    "/v1/development/profiles": "profiles",
}
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_BODY_S = 10.0
"""So long a body may take to come."""
_TRACE = re.compile(r"[0-9a-f]{32}")
_NO_MARKUP = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cache-control": b"no-store",
}


class _Headers:
    """Adds to every response what keeps markup of strangers from doing anything."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_NO_MARKUP.items()]
            await send(message)

        await self._app(scope, receive, with_headers)


class Web:
    """The application."""

    def __init__(self, store: Store, intake: Intake, access: Access, endpoints: Callable[[], dict[str, str]]) -> None:
        self._store, self._intake, self._access, self._endpoints = store, intake, access, endpoints
        routes = [Route(path, self._otlp, methods=["POST"]) for path in _PATHS]
        asked: dict[str, Callable[[Request], Any]] = {
            "/api/state": self._state,
            "/api/gpu": self._gpu,
            "/api/fabric": self._fabric,
            "/api/health": self._health,
            "/api/requests": self._requests,
            "/api/traces/{trace}": self._trace,
            "/api/profiles": self._profiles,
        }
        routes += [Route(path, self._json(answer)) for path, answer in asked.items()]
        routes += [
            Route("/", self._page),
            Route("/flame", self._flame),
            Route("/assets/{name}", self._asset),
            Route("/login", self._login, methods=["POST"]),
        ]
        self.app = Starlette(routes=routes, middleware=[Middleware(_Headers)], exception_handlers={500: _failed})

    async def _otlp(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            refusal = self._access.refusal(request)
            if refusal is not None:
                raise RefusedError(*refusal, Reason.NOT_ALLOWED)
            if kind not in {_JSON, _PROTOBUF}:
                raise RefusedError(415, f"send {_PROTOBUF} or {_JSON}", Reason.NOT_UNDERSTOOD)
            is_json = kind == _JSON
            limit = self._intake.bounds.json_bytes if is_json else self._intake.bounds.body_bytes
            body = await self._body(request, limit)
            encoding = request.headers.get("content-encoding", "")
            signal = _PATHS[request.url.path]
            response = await run_in_threadpool(self._take, signal, body, encoding, limit, is_json)
        except RefusedError as error:
            self._store.losses.add(error.reason)
            return _status(error.status, str(error), is_protobuf=kind == _PROTOBUF)
        except ClientDisconnect:
            return Response(status_code=400)
        if is_json:
            return Response(json_format.MessageToJson(response, indent=None), media_type=_JSON)
        return Response(response.SerializeToString(), media_type=_PROTOBUF)

    def _take(self, signal: Signal, body: bytes, encoding: str, limit: int, is_json: bool) -> Any:
        return self._intake.take(signal, unpacked(body, encoding, limit), is_json=is_json)

    async def _body(self, request: Request, limit: int) -> bytes:
        if int(length) > limit if (length := request.headers.get("content-length", "")).isdigit() else False:
            raise too_large(limit)

        async def read() -> bytes:
            body = bytearray()
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise too_large(limit)
            return bytes(body)

        try:
            return await asyncio.wait_for(read(), _BODY_S)
        except asyncio.TimeoutError:
            raise RefusedError(408, f"the body did not come within {_BODY_S:.0f} s", Reason.MALFORMED) from None

    async def _page(self, request: Request) -> Response:
        refusal = self._access.refusal(request, is_page=True)
        if refusal is not None and refusal[0] == 401:
            return _markup(_asset("login.html").replace("@said@", ""), 401)
        if refusal is not None:
            return Response(refusal[1], refusal[0], media_type="text/plain")
        return _markup(_asset("view.html"))

    async def _login(self, request: Request) -> Response:
        try:
            body = await self._body(request, 4096)
        except RefusedError as error:
            return Response(str(error), error.status, media_type="text/plain")
        from urllib.parse import parse_qs

        token = (parse_qs(body.decode("utf-8", "replace")).get("token") or [""])[0]
        refusal = self._access.refusal(request)
        if refusal is not None and refusal[0] != 401:
            return Response(refusal[1], refusal[0], media_type="text/plain")
        if not self._access.is_the_token(token):
            self._store.losses.add(Reason.NOT_ALLOWED)
            said = html.escape("This is not the token. It stands in the file that --token-file names.")
            return _markup(_asset("login.html").replace("@said@", said), 401)
        return self._let_in(token)

    def _let_in(self, token: str) -> Response:
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
        return response

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name in _OWN_ASSETS:
            data = (_ASSETS / name).read_bytes()
        elif name in flame_graphs.REPORT_ASSETS:
            data = flame_graphs.report_asset(name)
        else:
            return Response(status_code=404)
        return Response(data, media_type=_TYPES[name.rpartition(".")[2]])

    def _json(self, answer: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            refusal = self._access.refusal(request)
            if refusal is not None:
                return _said(refusal[0], refusal[1])
            try:
                found = await run_in_threadpool(answer, request)
            except ValueError as error:
                return _said(400, str(error))
            if found is None:
                return _said(404, "there is nothing of this name, or no longer")
            return Response(msgspec.json.encode(found, enc_hook=_plain), media_type=_JSON)

        return respond

    async def _flame(self, request: Request) -> Response:
        refusal = self._access.refusal(request)
        if refusal is not None:
            return Response(refusal[1], refusal[0], media_type="text/plain")
        asked = request.query_params
        try:
            number, kind = int(asked.get("process", "")), asked.get("type", "")
            windows = [_window(asked.get("window", "")), *(_window(w) for w in (asked.get("other"),) if w)]
        except ValueError as error:
            return Response(str(error), 400, media_type="text/plain")

        def draw() -> str | None:
            with self._store.lock:
                return flame_graphs.page(self._store.profiles, self._store.resources, kind, number, windows)

        page = await run_in_threadpool(draw)
        return _markup(page) if page is not None else Response("no such process", 404, media_type="text/plain")

    def _state(self, _request: Request) -> dict[str, Any]:
        store = self._store
        with store.lock:
            now_ns = store.sweep()
            return {
                "now": now_ns / NS,
                "began": store.began_ns / NS,
                "keep": store.keep_s,
                "version": __version__,
                "endpoints": self._endpoints(),
                "processes": [
                    {"number": e.number, "name": e.name, "seen": e.seen_ns / NS}
                    for e in sorted(store.resources, key=lambda e: (e.name, e.number))
                    if e.is_process
                ],
                "points": store.series.points,
                "spans": store.spans.spans,
                "samples": store.profiles.samples,
                "lost": sum(loss.count for loss in store.losses.all() if loss.reason not in GIVING_WAY),
            }

    def _gpu(self, request: Request) -> dict[str, Any]:
        with self._store.lock:
            return gpu_panel(self._store.series, self._query(request))

    def _fabric(self, request: Request) -> dict[str, Any]:
        with self._store.lock:
            return metric_tables.fabric(self._store.series, self._query(request))

    def _health(self, request: Request) -> dict[str, Any]:
        store = self._store
        with store.lock:
            query = self._query(request)._replace(resources=frozenset(e.number for e in store.resources if e.is_agent))
            return {
                "agents": [{"name": e.name, "seen": e.seen_ns / NS} for e in store.resources if e.is_agent],
                "tables": metric_tables.agents(store.series, query),
                "lost_by_agents": metric_tables.lost(store.series),
                "losses": [{"reason": loss.reason.value, "count": loss.count} for loss in store.losses.all()],
                "kept": [
                    {"what": "series", "count": len(store.series), "room": self._intake.bounds.series},
                    {"what": "spans", "count": len(store.spans), "room": store.spans.room},
                    {"what": "samples of profiles", "count": len(store.profiles), "room": self._intake.bounds.samples},
                ],
            }

    def _requests(self, request: Request) -> dict[str, Any]:
        asked = request.query_params
        offset = min(max(0, int(asked.get("offset", "0"))), 1_000_000)
        with self._store.lock:
            chosen = self._query(request).resources
            text, order = asked.get("text", "")[:200], asked.get("order", "")
            return traces_panel.requests(self._store.spans, self._store.resources, chosen, text, order, offset)

    def _trace(self, request: Request) -> dict[str, Any] | None:
        trace_id = request.path_params["trace"]
        if not _TRACE.fullmatch(trace_id):
            raise ValueError("a trace id has 32 hexadecimal digits")
        with self._store.lock:
            return traces_panel.trace(self._store.spans, self._store.resources, trace_id)

    def _profiles(self, request: Request) -> dict[str, Any]:
        with self._store.lock:
            query = self._query(request)
            return {
                "now": query.now_ns / NS,
                "kinds": flame_graphs.kinds(self._store.profiles, self._store.resources, query.resources),
            }

    def _query(self, request: Request) -> Query:
        """Read which process, and how many seconds, are asked about; ValueError of what is none."""
        asked = request.query_params
        seconds = float(asked.get("seconds", "180"))
        if not math.isfinite(seconds) or seconds <= 0:
            raise ValueError("seconds are a number above zero")
        process = asked.get("process", "")
        resources = frozenset({int(process)}) if process else None
        return Query(resources, min(seconds, self._store.keep_s), self._store.sweep())


def _window(text: str) -> tuple[int, int]:
    """Return the times of `FROM-TO`, in seconds; ValueError of what is none."""
    start, dash, end = text.partition("-")
    if not dash:
        raise ValueError("a window is FROM-TO, in seconds since 1970")
    times = float(start), float(end)
    if not all(math.isfinite(t) and 0 <= t < 1e10 for t in times):
        raise ValueError("a window is FROM-TO, in seconds since 1970")
    return int(times[0] * NS), int(times[1] * NS)


def _plain(value: Any) -> Any:
    """Return what NumPy holds as JSON can; what is no number is null there."""
    return [float(x) if math.isfinite(x) else None for x in value]


def _status(status: int, why: str, *, is_protobuf: bool) -> Response:
    """Return google.rpc.Status, as OTLP wants failures told."""
    headers = {"retry-after": "1"} if status == 503 else {}
    if not is_protobuf:
        return Response(msgspec.json.encode({"message": why}), status, headers, _JSON)
    from google.rpc.status_pb2 import Status

    return Response(Status(message=why).SerializeToString(), status, headers, _PROTOBUF)


def _said(status: int, why: str) -> Response:
    return Response(msgspec.json.encode({"error": why}), status, media_type=_JSON)


async def _failed(_request: Request, _error: Exception) -> Response:
    return _said(500, "the view failed at this; its log says why")


def _markup(page: str, status: int = 200) -> Response:
    return Response(page, status, media_type="text/html")


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")

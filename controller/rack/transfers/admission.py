"""Authenticates clients of the rack's HTTP server by token; refuses, counts and logs the rest. A shell around aiohttp.

Metrics and health are open to every client. Results need a token if the rack has any; without tokens every client may
read and none may write.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError
from etloop.controller.rack.transfers.page_protection import is_own_host
from etloop.controller.rack.transfers.tokens import Holder, Right, Tokens
from etloop.controller.session.log_limit import WINDOW_NS, LogLimit
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.watched_file import WatchedFile

if TYPE_CHECKING:
    from etloop.controller.rack.log import RackLog

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

UNNAMED: Final = "no token"
UNKNOWN: Final = "unknown token"
READ_ONLY: Final = "may only read"
NO_TOKENS: Final = "writing is closed"
UNUSABLE_TOKENS: Final = "tokens unusable"
BUSY: Final = "busy"
WRONG_HOST: Final = "wrong host"
REQUEST_REFUSALS: Final = (UNNAMED, UNKNOWN, READ_ONLY, NO_TOKENS, UNUSABLE_TOKENS, BUSY, WRONG_HOST)
"""Reasons for which HTTP requests are refused; values of the label `reason`."""
_WRITING: Final = frozenset(("PUT", "POST", "DELETE", "PATCH"))
_OPEN: Final = frozenset(("/metrics", "/healthz"))
_SCHEME: Final = "bearer"
HOLDER: Final = web.RequestKey("holder", Holder)
"""Request key: the holder of the request's token."""
ANYBODY: Final = Holder("anybody", Right.READ)


class HttpAdmission:
    """Rights of clients of one rack's HTTP server."""

    def __init__(
        self,
        tokens: WatchedFile[Tokens] | None,
        refused: Counter[str],
        log: RackLog,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        self._tokens = tokens
        self._hosts = hosts
        """Names of this server that a Host header may have."""
        self._refused = refused
        self._log = log
        self._lines = LogLimit()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """Answer a request of an authorised client; raise the refusal of any other."""
        if request.path not in _OPEN:
            if not is_own_host(request.headers.get("Host", ""), self._hosts):
                text = (
                    "this server does not have the name in Host; set http.url to the URL that clients use\n"
                )
                raise self.refuse(request, WRONG_HOST, web.HTTPMisdirectedRequest(text=text))
            request[HOLDER] = await self._holder(request)
        if self._log.writes_all:
            who = request[HOLDER].name if HOLDER in request else ANYBODY.name
            self._log.rack("http request", method=request.method, path=request.path[:256], who=who)
        return await handler(request)

    @property
    def has_tokens(self) -> bool:
        """Return whether there are tokens, and so clients that may write."""
        return self._tokens is not None

    async def expect(self, request: web.Request) -> None:
        """Let an authorised client that waits for 100-continue send its body; raise the refusal of any other."""
        await self._holder(request)
        if request.headers.get("Expect", "").lower() != "100-continue":
            raise web.HTTPExpectationFailed(text="expected Expect: 100-continue\n")
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # The final response has not begun.

    def refuse(self, request: web.Request, why: str, refusal: web.HTTPException) -> web.HTTPException:
        """Count and log a refusal, and return it."""
        self._refused[why] += 1
        now_ns = monotonic_ns()
        for kind, count in self._lines.left_out(now_ns):
            self._log.rack("lines left out", about=kind, lines=count, in_s=WINDOW_NS // NS_PER_S)
        if self._lines.takes(f"http request refused: {why}", now_ns):
            peer = request.remote or "unknown"
            self._log.rack("http request refused", why=why, peer=peer, path=request.path[:256])
        return refusal

    async def _holder(self, request: web.Request) -> Holder:
        right = Right.WRITE if request.method in _WRITING else Right.READ
        if self._tokens is None:
            if right is Right.WRITE:
                text = "this rack accepts no uploads: http.tokens is not set\n"
                raise self.refuse(request, NO_TOKENS, web.HTTPForbidden(text=text))
            return ANYBODY
        try:
            # In a thread: it reads a file.
            tokens = await asyncio.to_thread(self._tokens.current)
        except ConfigError as error:
            self._log_unusable(error)
            text = "the rack's tokens cannot be read; see its log\n"
            raise self.refuse(request, UNUSABLE_TOKENS, web.HTTPServiceUnavailable(text=text)) from None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        challenge = {"WWW-Authenticate": 'Bearer realm="etloop"'}
        if scheme.lower() != _SCHEME:
            text = "send a token of this rack: Authorization: Bearer TOKEN\n"
            raise self.refuse(request, UNNAMED, web.HTTPUnauthorized(text=text, headers=challenge))
        holder = tokens.holder(token.strip())
        if holder is None:
            text = "the token is not one of this rack's\n"
            raise self.refuse(request, UNKNOWN, web.HTTPUnauthorized(text=text, headers=challenge))
        if not holder.may(right):
            text = f"the token of {holder.name} may only read; uploads need write in http.tokens\n"
            raise self.refuse(request, READ_ONLY, web.HTTPForbidden(text=text))
        return holder

    def _log_unusable(self, error: ConfigError) -> None:
        if self._lines.takes("http tokens", monotonic_ns()):
            self._log.rack("http tokens cannot be used", why=str(error))

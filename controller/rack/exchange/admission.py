"""Lets in to the rack's HTTP server who shows a token, and refuses, counts and logs all others. A shell around aiohttp.

Figures and health are for everybody who reaches the server. What jobs left is for who has a token, where the rack has any;
without tokens for everybody who reaches the server, and nobody may write.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError
from etloop.controller.rack.exchange.tokens import Holder, Right, Tokens
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
REQUEST_REFUSALS: Final = (UNNAMED, UNKNOWN, READ_ONLY, NO_TOKENS, UNUSABLE_TOKENS, BUSY)
"""Why a request over HTTP is refused; values of the label `reason`."""
_WRITING: Final = frozenset(("PUT", "POST", "DELETE", "PATCH"))
_OPEN: Final = frozenset(("/metrics", "/healthz"))
_SCHEME: Final = "bearer"
HOLDER: Final = web.RequestKey("holder", Holder)
"""Of a request: who makes it."""
ANYBODY: Final = Holder("anybody", Right.READ)


class HttpAdmission:
    """Who may ask what of one rack's HTTP server."""

    def __init__(self, tokens: WatchedFile[Tokens] | None, refused: Counter[str], log: RackLog) -> None:
        self._tokens = tokens
        self._refused = refused
        self._log = log
        self._lines = LogLimit()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """Answer a request of somebody who may make it; raises the refusal of any other."""
        if request.path not in _OPEN:
            request[HOLDER] = await self._holder(request)
        if self._log.writes_all:
            who = request[HOLDER].name if HOLDER in request else ANYBODY.name
            self._log.rack("http request", method=request.method, path=request.path[:256], who=who)
        return await handler(request)

    @property
    def has_tokens(self) -> bool:
        """Whether anybody may write."""
        return self._tokens is not None

    async def expect(self, request: web.Request) -> None:
        """Have who waits to be asked for his body send it (Expect: 100-continue), if he may; raises the refusal of any other."""
        await self._holder(request)
        if request.headers.get("Expect", "").lower() != "100-continue":
            raise web.HTTPExpectationFailed(text="Expect: 100-continue is all that is understood\n")
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # The answer itself has not begun.

    def refuse(self, request: web.Request, why: str, refusal: web.HTTPException) -> web.HTTPException:
        """Count and log a refusal, which is returned."""
        self._refused[why] += 1
        now_ns = monotonic_ns()
        for kind, count in self._lines.left_out(now_ns):
            self._log.rack("lines left out", about=kind, lines=count, in_s=WINDOW_NS // NS_PER_S)
        if self._lines.takes(f"http request refused: {why}", now_ns):
            peer = request.remote or "nobody"
            self._log.rack("http request refused", why=why, peer=peer, path=request.path[:256])
        return refusal

    async def _holder(self, request: web.Request) -> Holder:
        right = Right.WRITE if request.method in _WRITING else Right.READ
        if self._tokens is None:
            if right is Right.WRITE:
                what = "this rack takes nothing over HTTP: its owner has to set http.tokens\n"
                raise self.refuse(request, NO_TOKENS, web.HTTPForbidden(text=what))
            return ANYBODY
        try:
            # In a thread: a file is looked at.
            tokens = await asyncio.to_thread(self._tokens.current)
        except ConfigError as error:
            self._log_unusable(error)
            what = "the rack's tokens cannot be read; its log says why\n"
            raise self.refuse(request, UNUSABLE_TOKENS, web.HTTPServiceUnavailable(text=what)) from None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        asks = {"WWW-Authenticate": 'Bearer realm="etloop"'}
        if scheme.lower() != _SCHEME:
            what = "send a token of this rack: Authorization: Bearer TOKEN\n"
            raise self.refuse(request, UNNAMED, web.HTTPUnauthorized(text=what, headers=asks))
        holder = tokens.holder(token.strip())
        if holder is None:
            what = "this rack does not know that token\n"
            raise self.refuse(request, UNKNOWN, web.HTTPUnauthorized(text=what, headers=asks))
        if not holder.may(right):
            what = f"the token of {holder.name} may only read; http.tokens has to say write\n"
            raise self.refuse(request, READ_ONLY, web.HTTPForbidden(text=what))
        return holder

    def _log_unusable(self, error: ConfigError) -> None:
        if self._lines.takes("http tokens", monotonic_ns()):
            self._log.rack("http tokens cannot be used", why=str(error))

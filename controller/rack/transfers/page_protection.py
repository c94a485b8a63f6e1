"""Protects the pages of a rack from other sites in the same browser: headers of every answer, and the check of Host. Pure.

Scripts never run in a page. A request by a name that is not the server's comes from a site whose DNS points here, whose
scripts could otherwise read the answer (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

from aiohttp import web

PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def protect(_: web.Request, response: web.StreamResponse) -> None:
    """Add `PAGE_HEADERS` to an answer; a handler of `Application.on_response_prepare`."""
    for name, value in PAGE_HEADERS.items():
        response.headers.setdefault(name, value)


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Return whether a Host header names this server: by one of `names`, localhost, or any address, which needs no DNS.

    A client that sends none is not a browser.
    """
    name = host.removesuffix("]") if host.endswith("]") else host.rpartition(":")[0] or host
    name = name.strip("[]").lower()
    if not host or name == "localhost" or name in {own.lower() for own in names}:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

"""The studio's server: on the loopback address, behind a token that works once, with a page that may load nothing else.

Starlette and uvicorn are small and maintained. The page has sixty lines of script of its own: a library for it would be
larger, and would have to be shipped.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING

from dpconvex.inputs.errors import InputError
from dpconvex.privacy.ledger.ledger import Ledger
from dpconvex.words.studio import fragments

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Studio", "serve"]

LARGEST = 16 * 2**20  # bytes of a request
_ASSETS = {"studio.js": "text/javascript", "studio.css": "text/css"}
_HEADERS = {
    # Nothing but the page's own files; a report is shown in a frame that may run nothing.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
        "frame-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Studio:
    """One studio: its token, its session and its pages.

    Parameters
    ----------
    port : int
        Where it listens, for the check of the Host header.
    ledger : Ledger, optional
        Whose timeline is shown.

    Notes
    -----
    Privacy: it is given no rows, and reads none. Strangers on the same machine lack the token; pages of other sites
    lack the cookie (SameSite=Strict), the header that every request carries, and the Host name.
    """

    def __init__(self, port: int, ledger: Ledger | None = None) -> None:
        self.port, self.ledger = port, ledger
        self.token: str | None = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._cookie = f"dpconvex-studio-{port}"  # browsers share cookies among ports

    @property
    def address(self) -> str:
        """The address to open, once."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def app(self) -> Starlette:
        """Return the application."""
        from starlette.applications import Starlette
        from starlette.routing import Route

        return Starlette(
            routes=[
                Route("/", self._guarded(self._page, first=True)),
                Route("/files/{name}", self._guarded(self._file)),
                Route("/ledger", self._guarded(self._timeline)),
                Route("/forecast", self._guarded(self._forecast), methods=["POST"]),
                Route("/schema", self._guarded(self._schema), methods=["POST"]),
                Route("/model", self._guarded(self._model), methods=["POST"]),
            ]
        )

    def _guarded(
        self, handler: Callable[[Request], Awaitable[Response]], first: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that answers the owner of this studio only."""

        async def guarded(request: Request) -> Response:
            from starlette.responses import PlainTextResponse, RedirectResponse

            allowed = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
            cookie = request.cookies.get(self._cookie, "").encode(errors="replace")
            known = secrets.compare_digest(cookie, self._session.encode())
            response: Response
            if request.headers.get("host") not in allowed:
                response = PlainTextResponse("Unknown host.", 403)
            elif first and not known and self._opens(request.query_params.get("token", "")):
                response = RedirectResponse("/", 303)
                response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
            elif not known:
                response = PlainTextResponse(
                    "Open the address that `dpconvex studio` printed; it works once.", 403
                )
            elif request.method == "POST" and request.headers.get("x-studio") != "1":
                response = PlainTextResponse("This request did not come from the page.", 403)
            else:
                try:
                    response = await handler(request)
                except InputError as error:
                    response = PlainTextResponse(str(error), 400)
                except (
                    ValueError,
                    OverflowError,
                ) as error:  # no mechanism offers that, said in words
                    response = PlainTextResponse(str(error), 400)
            response.headers.update(_HEADERS)
            return response

        return guarded

    def _opens(self, token: str) -> bool:
        """Return whether this is the token; it is used up by that."""
        if self.token is None or not secrets.compare_digest(token.encode(), self.token.encode()):
            return False
        self.token = None
        return True

    async def _page(self, request: Request) -> Response:
        from starlette.responses import HTMLResponse

        return HTMLResponse(fragments.page(self.ledger is not None))

    async def _file(self, request: Request) -> Response:
        from starlette.responses import PlainTextResponse, Response

        name = request.path_params["name"]
        if name not in _ASSETS:
            return PlainTextResponse("There is no such file.", 404)
        content = files("dpconvex.words.studio").joinpath(name).read_bytes()
        return Response(content, media_type=_ASSETS[name])

    async def _timeline(self, request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import HTMLResponse

        if self.ledger is None:
            raise InputError("This studio was started without --ledger.")
        return HTMLResponse(await run_in_threadpool(fragments.ledger_timeline, self.ledger))

    async def _forecast(self, request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import HTMLResponse

        sent = fragments.as_object(await _body(request))
        return HTMLResponse(await run_in_threadpool(fragments.forecast, sent))

    async def _schema(self, request: Request) -> Response:
        from starlette.responses import HTMLResponse

        text = (await _body(request)).decode("utf-8", errors="replace")
        return HTMLResponse(fragments.schema(text))

    async def _model(self, request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import JSONResponse

        content = await _body(request)
        return JSONResponse(await run_in_threadpool(fragments.verified, content))


async def _body(request: Request) -> bytes:
    """Return what was sent, or raise if it is too much to be what the page sends."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST:
            raise InputError(f"What was sent is larger than {LARGEST // 2**20} MiB.")
        parts.append(part)
    return b"".join(parts)


def serve(
    ledger: Ledger | None = None,
    port: int = 0,
    opened: Callable[[str], None] = print,
) -> None:
    """Serve the studio until it is interrupted.

    Parameters
    ----------
    ledger : Ledger, optional
        Whose timeline is shown.
    port : int, default=0
        Where to listen on 127.0.0.1; 0 takes a free one.
    opened : callable
        Told the address, once the studio listens.
    """
    import uvicorn

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        studio = Studio(listener.getsockname()[1], ledger)
        opened(studio.address)
        config = uvicorn.Config(studio.app(), log_level="warning", access_log=False, lifespan="off")
        uvicorn.Server(config).run(sockets=[listener])

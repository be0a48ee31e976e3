"""Server of the studio: on the loopback address, behind a token that works once, with a page that
loads nothing else.

Starlette and uvicorn are small and maintained. The page has a script of its own: a library for it
would be larger, and would have to be shipped.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Awaitable, Callable
from importlib.resources import files

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dpconvex.inputs import InputError
from dpconvex.privacy.ledger import Ledger
from dpconvex.privacy.ledger_file import LedgerError
from dpconvex.reports import studio_pages

Handler = Callable[[Request], Awaitable[Response]]

LARGEST = 16 * 2**20  # bytes of a request
_CLOSED = "Open the address that `dpconvex studio` printed; it works once."
_ASSETS = {"studio.js": "text/javascript", "studio.css": "text/css"}
_HEADERS = {
    # Nothing but the page's own files; a report is shown in a frame that may run nothing.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src "
        "'self'; frame-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
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
    Privacy: it is given no rows, and reads none. The page itself says nothing and is for everybody.
    Whatever it asks for carries the session in a header, which the page gets for the token and
    keeps in storage of its own origin. Strangers on the same machine lack the token. There is no
    cookie: browsers send those to other ports of the machine, and with requests that pages of other
    sites make. Another site's name for this address is no known Host.
    """

    def __init__(self, port: int, ledger: Ledger | None = None) -> None:
        self.port = port
        self.ledger = ledger
        self.token: str | None = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        """The address to open, once; what follows the sign # is for the page alone, and never
        part of a request.
        """
        return f"http://127.0.0.1:{self.port}/#{self.token}"

    def app(self) -> Starlette:
        """Return the studio's web application, which a server runs."""
        return Starlette(
            routes=[
                Route("/", self._guarded_studio_page(self._page, public=True)),
                Route("/files/{name}", self._guarded_studio_page(self._file, public=True)),
                Route(
                    "/session",
                    self._guarded_studio_page(self._enter, public=True),
                    methods=["POST"],
                ),
                Route("/ledger", self._guarded_studio_page(self._timeline)),
                Route("/forecast", self._guarded_studio_page(self._forecast), methods=["POST"]),
                Route("/schema", self._guarded_studio_page(self._schema), methods=["POST"]),
                Route("/model", self._guarded_studio_page(self._model), methods=["POST"]),
            ]
        )

    def _guarded_studio_page(self, handler: Handler, public: bool = False) -> Handler:
        """Return a handler that answers the owner of this studio only, or with ``public``
        everybody on this machine.
        """

        async def guarded(request: Request) -> Response:
            allowed = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
            response: Response
            if request.headers.get("host") not in allowed:
                response = PlainTextResponse("Unknown host.", 403)
            elif not public and not _same(request.headers.get("x-studio", ""), self._session):
                response = PlainTextResponse(_CLOSED, 403)
            else:
                try:
                    response = await handler(request)
                except (InputError, LedgerError, ValueError, OverflowError) as error:
                    response = PlainTextResponse(str(error), 400)
            response.headers.update(_HEADERS)
            return response

        return guarded

    async def _enter(self, request: Request) -> Response:
        """Give the session for the token, which is used up by that."""
        if self.token is None or not _same(await _text(request, 1000), self.token):
            return PlainTextResponse(_CLOSED, 403)
        self.token = None
        return JSONResponse({"session": self._session, "ledger": self.ledger is not None})

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(studio_pages.studio_page())

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            return PlainTextResponse("There is no such file.", 404)
        content = files("dpconvex.reports").joinpath("studio", name).read_bytes()
        return Response(content, media_type=_ASSETS[name])

    async def _timeline(self, request: Request) -> Response:
        if self.ledger is None:
            raise InputError("This studio was started without --ledger.")
        return HTMLResponse(
            await run_in_threadpool(studio_pages.studio_ledger_timeline, self.ledger)
        )

    async def _forecast(self, request: Request) -> Response:
        sent = studio_pages.parse_studio_json(await _body(request))
        return HTMLResponse(await run_in_threadpool(studio_pages.studio_forecast, sent))

    async def _schema(self, request: Request) -> Response:
        return HTMLResponse(
            await run_in_threadpool(studio_pages.check_studio_schema, await _text(request))
        )

    async def _model(self, request: Request) -> Response:
        return JSONResponse(
            await run_in_threadpool(studio_pages.verify_studio_model, await _body(request))
        )


def _same(sent: str, secret: str) -> bool:
    """Compare in a time that tells nothing."""
    return secrets.compare_digest(sent.encode(errors="replace"), secret.encode())


async def _body(request: Request, largest: int = LARGEST) -> bytes:
    """Return the body of a request, or raise if it is larger than the page sends."""
    parts = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise InputError(f"What was sent is larger than {largest:,} bytes.")
        parts.append(part)
    return b"".join(parts)


async def _text(request: Request, largest: int = LARGEST) -> str:
    return (await _body(request, largest)).decode("utf-8", errors="replace")


def serve_studio(
    ledger: Ledger | None = None, port: int = 0, opened: Callable[[str], None] = print
) -> None:
    """Serve the studio on 127.0.0.1 until it is interrupted.

    ``opened`` is told the address once the studio listens; port 0 takes a free one.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        studio = Studio(listener.getsockname()[1], ledger)
        opened(studio.address)
        config = uvicorn.Config(studio.app(), log_level="warning", access_log=False, lifespan="off")
        uvicorn.Server(config).run(sockets=[listener])

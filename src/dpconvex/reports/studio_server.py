"""Server of the studio: on the loopback address, with a page that loads nothing else and keeps nothing.

Starlette and uvicorn are small and maintained. The page has a script of its own: a library for it would be larger, and
would have to be shipped.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from importlib.resources import files

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from dpconvex.inputs import InputError
from dpconvex.reports import studio_pages

Handler = Callable[[Request], Awaitable[Response]]

LARGEST = 2**16  # bytes of a request
_ASSETS = {"studio.js": "text/javascript", "studio.css": "text/css"}
_HEADERS = {
    # Nothing but the page's own files.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def studio_app(port: int) -> Starlette:
    """Return the studio's web application for a server that listens on a port.

    Privacy: it holds no rows, no model and no ledger. Whoever asks is told what follows from the numbers that were
    sent, and nothing of what others sent. Another site's name for this address is no known Host.
    """

    def guarded(handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            response: Response
            if request.headers.get("host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
                response = PlainTextResponse("Unknown host.", 403)
            else:
                try:
                    response = await handler(request)
                except (InputError, ValueError, OverflowError) as error:
                    response = PlainTextResponse(str(error), 400)
            response.headers.update(_HEADERS)
            return response

        return answer

    return Starlette(
        routes=[
            Route("/", guarded(_page)),
            Route("/files/{name}", guarded(_file)),
            Route("/forecast", guarded(_forecast), methods=["POST"]),
        ]
    )


async def _page(request: Request) -> Response:
    return HTMLResponse(studio_pages.studio_page())


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        return PlainTextResponse("There is no such file.", 404)
    content = files("dpconvex.reports").joinpath("studio", name).read_bytes()
    return Response(content, media_type=_ASSETS[name])


async def _forecast(request: Request) -> Response:
    sent = bytearray()
    async for part in request.stream():
        sent += part
        if len(sent) > LARGEST:
            raise InputError(f"What was sent is larger than {LARGEST:,} bytes.")
    return HTMLResponse(await run_in_threadpool(studio_pages.studio_forecast, studio_pages.parse_studio_json(sent)))


def serve_studio(port: int, opened: Callable[[str], None]) -> None:
    """Serve the studio on 127.0.0.1 until it is interrupted.

    ``opened`` is told the address once the studio listens; port 0 takes a free one.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        port = listener.getsockname()[1]
        opened(f"http://127.0.0.1:{port}/")
        config = uvicorn.Config(studio_app(port), log_level="warning", access_log=False, lifespan="off")
        uvicorn.Server(config).run(sockets=[listener])

"""Runs the console: uvicorn on one port, and the board beside it, until SIGINT or SIGTERM."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final

import uvicorn

from proxy.console.board import Board
from proxy.console.options import ConsoleOptions
from proxy.console.site import Site
from proxy.system.errors import StartError, system_reason
from proxy.system.logs import set_up

_CONNECTIONS_MAX: Final = 256
_IDLE_SECONDS: Final = 30
_HEAD_BYTES_MAX: Final = 128 * 1024  # an address may have a client id of 32,767 bytes, each as %XX
_END_SECONDS: Final = 3


def serve(options: ConsoleOptions, served: Callable[[str], None]) -> None:
    """Serve until a signal.

    Args:
        served: is told the page's address when the port is bound.

    Raises:
        StartError: the port cannot be bound.
    """
    set_up("info", "text")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    asyncio.run(_run(options, served))


async def _run(options: ConsoleOptions, served: Callable[[str], None]) -> None:
    bound = _bind(options)
    host, port = bound.getsockname()[:2]
    board = Board(options)
    config = uvicorn.Config(
        Site(board, options).app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http="h11",
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_END_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
    )
    shown = f"[{host}]" if ":" in host else host
    served(f"http://{shown}:{port}/")
    asking = asyncio.create_task(board.run(), name="board")
    try:
        await uvicorn.Server(config).serve(sockets=[bound])
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


def _bind(options: ConsoleOptions) -> socket.socket:
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((options.host, options.port), family=family, backlog=_CONNECTIONS_MAX)
    except OSError as error:
        raise StartError(
            f"--bind {options.host}:{options.port} cannot be bound: {system_reason(error)}"
        ) from None

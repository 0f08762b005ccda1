"""``rstar2 sandbox serve``: this machine as a sandbox node.

Without a token the node listens on loopback only: who may reach it may run programs.
"""

import asyncio
import contextlib
import ipaddress
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rstar2.errors import UserError
from rstar2.sandbox.limits import Rung, SandboxLimits, Tier
from rstar2.sandbox.messages import MAX_CALLS

if TYPE_CHECKING:
    from rstar2.sandbox.server import Runner

TOKEN_VARIABLE = "RSTAR2_SANDBOX_TOKEN"
_CLOSING_SECONDS = 2.0
_BACKLOG = 1024


class ServeError(UserError):
    """The node cannot serve as it was asked to."""


@dataclass(frozen=True, slots=True)
class Listening:
    """How a node listens.

    Attributes:
        host: Address or name to listen on.
        port: 0 takes a free one.
        queue: Calls that may wait beyond those that run; at least a whole batch.
        token: What clients must show; None is allowed on loopback only.
        drain_seconds: For what is unfinished when the node is told to stop.

    Raises:
        ServeError: If they do not go together.
    """

    host: str = "127.0.0.1"
    port: int = 8750
    queue: int = 1024
    token: str | None = None
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.queue < MAX_CALLS:
            raise ServeError(
                f"the queue holds {self.queue} calls: it must hold a batch, {MAX_CALLS}"
            )
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise ServeError(
                "the token of --token-file or RSTAR2_SANDBOX_TOKEN is empty or not one word of "
                "plain ASCII: write such a one"
            )
        if self.token is None and not _is_loopback(self.host):
            raise ServeError(
                f"{self.host!r} may be reached from other machines, and there is no token: "
                f"give --token-file or {TOKEN_VARIABLE}, or listen on 127.0.0.1"
            )


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8750,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Programs at once; two per CPU if not given.")
    ] = None,
    queue: Annotated[
        int, typer.Option(min=MAX_CALLS, help="Calls that may wait; more are sent back.")
    ] = 1024,
    isolation: Annotated[
        Rung | None, typer.Option(help="The strongest that works if not given, but never none.")
    ] = None,
    tiers: Annotated[
        list[Tier] | None, typer.Option(help="Libraries kept warm; repeat it. All if not given.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help=f"Holds what clients must show; else {TOKEN_VARIABLE}.")
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(help="File system of its own, for what programs write on rung portable."),
    ] = None,
    memory_mib: Annotated[
        int, typer.Option(min=1, help="Memory of a program beyond the interpreter's own, MiB.")
    ] = SandboxLimits().memory_mib,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="For what is unfinished at SIGTERM.")
    ] = 30.0,
) -> None:
    """Serve the code environment over HTTP: POST /run, GET /health, GET /metrics."""
    from rstar2.sandbox import Sandbox, SandboxUnavailable, SandboxUnsupported

    listening = Listening(host, port, queue, read_token(token_file), drain_seconds)
    limits = SandboxLimits(memory_mib=memory_mib)
    try:
        sandbox = Sandbox(
            limits,
            slots=slots,
            isolation=isolation,
            tiers=tiers or tuple(Tier),
            scratch=scratch,
        )
    except ValueError as error:
        raise ServeError(f"{error}: change that option or leave it out") from error

    async def run() -> None:
        with stop_on_signals() as stop:
            async with sandbox:
                await serve_until(stop, sandbox, listening, _announce)

    try:
        asyncio.run(run())
    except (SandboxUnavailable, SandboxUnsupported) as error:
        raise ServeError(f"no program can run here: {error}") from error


def read_token(file: Path | None) -> str | None:
    """The token of the file, else of the environment, else none.

    Raises:
        ServeError: If the file cannot be read.
    """
    if file is None:
        return os.environ.get(TOKEN_VARIABLE)
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServeError(f"cannot read the token file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ServeError(f"the token file {file} is not text: write one word") from error


async def serve_until(
    stop: asyncio.Event,
    runner: "Runner",
    listening: Listening,
    announce: Callable[[str], None],
) -> None:
    """Serve until ``stop`` is set and what was accepted is done.

    Args:
        stop: Ends the service.
        runner: Runs the programs; entered already.
        listening: Where and how.
        announce: Is told in one line when the node is ready, and when it drains.

    Raises:
        ServeError: If the address cannot be used.
    """
    from aiohttp import web

    from rstar2.sandbox.server import SandboxService

    service = SandboxService(runner, queue=listening.queue, token=listening.token)
    pages = web.AppRunner(
        service.application(),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_CLOSING_SECONDS,
    )
    await pages.setup()
    try:
        site = web.TCPSite(pages, listening.host, listening.port, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError as error:
            raise ServeError(
                f"cannot listen on {listening.host} port {listening.port} "
                f"({_reason(error)}): choose another --host or --port"
            ) from error
        url = _url(*pages.addresses[0][:2])
        announce(f"ready: {url}, {runner.slots} slots, queue {listening.queue}, {runner.isolation}")
        await stop.wait()
        left = service.drain()
        announce(f"draining: {left} calls left, at most {listening.drain_seconds:g} s")
        await service.finish(listening.drain_seconds)
    finally:
        await pages.cleanup()


@contextlib.contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM or SIGINT sets; a second signal has its usual effect."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def forget() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    def set_once() -> None:
        stop.set()
        forget()

    for number in signals:
        loop.add_signal_handler(number, set_once)
    try:
        yield stop
    finally:
        forget()


def _announce(line: str) -> None:
    print("rstar2 sandbox", line, flush=True)


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or not error.errno:
        return str(error.strerror)
    return os.strerror(error.errno)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

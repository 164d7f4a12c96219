"""Handshakes share the loop: one queue, a bounded time of each turn, and a cancelled one calls no callback."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from proxy.net.handshakes import TURN_MS, Handshakes
from proxy.system.hosts import handshake_problem
from proxy.system.stats import Stats
from tests.component.proxy.net.rig import until
from tests.component.proxy.net.tls_rig import Papers


class Ends:
    """Both ends of one connection, whose handshakes the same queue does.

    Args:
        failed: called when the handshake of the proxy's end fails; by default it is noted.
    """

    def __init__(
        self, papers: Papers, handshakes: Handshakes, failed: Callable[[Exception], None] | None = None
    ) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        context = papers.client_context()
        self.server = papers.broker_context().wrap_socket(
            ours, server_side=True, do_handshake_on_connect=False
        )
        self.client = context.wrap_socket(theirs, server_hostname="127.0.0.1", do_handshake_on_connect=False)
        self.done: list[str] = []
        self.failed: list[Exception] = []
        self.handshakes = [
            handshakes.begin(sock, side, lambda side=side: self.done.append(side), fails)  # type: ignore[misc]  # bound early
            for sock, side, fails in (
                (self.server, "client", failed or self.failed.append),
                (self.client, "broker", self.failed.append),
            )
        ]

    def close(self) -> None:
        self.server.close()
        self.client.close()


@pytest.fixture
def joined(papers: Papers) -> Iterator[Callable[..., Ends]]:
    """Make ends, which are closed after the test."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(closing(Ends(papers, *arguments)))


async def test_handshakes_of_both_sides_are_done_and_counted(joined: Callable[..., Ends]) -> None:
    stats = Stats()
    handshakes = Handshakes(asyncio.get_running_loop(), stats)
    all_of_them = [joined(handshakes) for _ in range(20)]
    assert not any(ends.done for ends in all_of_them), "nothing happens before the loop turns"
    await until(lambda: all(len(ends.done) == 2 for ends in all_of_them), "all are done")
    assert stats.handshakes == {"client": 20, "broker": 20}
    assert stats.handshake_us_total > 20 * 100  # no handshake costs less than a tenth of a millisecond
    assert not any(ends.failed for ends in all_of_them)


async def test_others_get_their_turn_between_steps(joined: Callable[..., Ends]) -> None:
    """200 handshakes want some 100 ms; a timer meanwhile waits for a turn of a few."""
    loop = asyncio.get_running_loop()
    handshakes = Handshakes(loop, Stats())
    all_of_them = [joined(handshakes) for _ in range(100)]
    turns = 0
    while not all(len(ends.done) == 2 for ends in all_of_them):
        await asyncio.sleep(0)
        turns += 1
    # Were they all done at once, there would be three turns: one for each flight of messages.
    assert turns > 100 * 0.1 / TURN_MS


async def test_cancelled_handshake_calls_no_callback(joined: Callable[..., Ends]) -> None:
    handshakes = Handshakes(asyncio.get_running_loop(), Stats())
    queued, waiting = joined(handshakes), joined(handshakes)
    for handshake in queued.handshakes:
        handshake.cancel()
    waiting.handshakes[1].cancel()
    await asyncio.sleep(0.01)
    waiting.handshakes[0].cancel()
    waiting.client.close()
    await asyncio.sleep(0.01)
    assert (queued.done, queued.failed, waiting.done, waiting.failed) == ([], [], [], [])


async def test_handshake_that_fails_is_told_and_not_counted(joined: Callable[..., Ends]) -> None:
    stats = Stats()
    ends = joined(Handshakes(asyncio.get_running_loop(), stats))
    ends.handshakes[1].cancel()
    ends.client.close()
    await until(lambda: len(ends.failed) == 1, "it has failed")
    (error,) = ends.failed
    assert isinstance(error, OSError)
    assert handshake_problem(error) == CLOSED
    assert not stats.handshakes


@pytest.mark.parametrize("end_fails", [False, True])
async def test_step_with_an_exception_ends_its_handshake_alone(
    joined: Callable[..., Ends], monkeypatch: pytest.MonkeyPatch, end_fails: bool
) -> None:
    """The broken one stands first in the queue, and nothing else would begin another turn."""
    stats = Stats()
    handshakes = Handshakes(asyncio.get_running_loop(), stats)
    error = ValueError("Exceeds the limit (4300 digits)")

    def step(_: Exception | None = None) -> None:
        raise error

    broken = joined(handshakes, step if end_fails else None)
    sound = joined(handshakes)
    monkeypatch.setattr(broken.server, "do_handshake", step)
    await until(lambda: len(sound.done) == 2, "the others are done")
    assert stats.handshakes == {"client": 1, "broker": 1}
    assert broken.failed == ([] if end_fails else [error])
    broken.handshakes[1].cancel()


def failure(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


CLOSED = "the peer closed the connection during the handshake"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (failure("PEER_DID_NOT_RETURN_A_CERTIFICATE"), "a client certificate is required, and none was sent"),
        (failure("TLSV1_ALERT_UNKNOWN_CA"), "the peer refused: unknown ca"),
        (failure("WRONG_VERSION_NUMBER"), "the peer does not speak TLS"),
        (failure("NO_SHARED_CIPHER"), "no shared cipher"),
        (ssl.SSLEOFError(8, "EOF"), CLOSED),
        (ConnectionResetError(104, "reset"), CLOSED),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_handshake_failure_is_explained(error: OSError, said: str) -> None:
    assert handshake_problem(error) == said

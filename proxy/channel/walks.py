"""Walks through Produce requests and Fetch responses that count the bytes of each topic."""

from typing import Protocol

from protocol.header import RequestHead
from protocol.walks.fetch import FetchWalk
from protocol.walks.produce import ProduceWalk
from protocol.walks.walk import Walk
from proxy.channel.in_flight import Buffer


class Charges(Protocol):
    """Whether requests and responses must be walked: the engine, for topic quotas, or a capture."""

    charges_produced_topics: bool
    charges_fetched_topics: bool


class FetchedDirection(Protocol):
    """The part of the response direction that is used here: `frame_bytes` is the response's size with its prefix."""

    frame_bytes: int


class Walks(Protocol):
    """Creates walks."""

    def produce(self, buf: Buffer, pos: int, end: int, body: int, head: RequestHead) -> Walk | None:
        """Return a walk through a Produce; None if it need not be walked after all."""

    def fetch(
        self, direction: FetchedDirection, buf: Buffer, pos: int, end: int, version: int
    ) -> Walk | None:
        """Return a walk through a Fetch response, with the addresses at its end; None if it need not be walked."""


class TopicWalks:
    """Walks that count the bytes of each topic."""

    __slots__ = ()

    def produce(self, _buf: Buffer, _pos: int, _end: int, _body: int, head: RequestHead) -> Walk | None:
        """Return a walk through a Produce."""
        return ProduceWalk(head[2], head[0], {})

    def fetch(
        self, direction: FetchedDirection, _buf: Buffer, _pos: int, _end: int, version: int
    ) -> Walk | None:
        """Return a walk through a Fetch response."""
        return FetchWalk(version, direction.frame_bytes - 4, {})

"""Walks through Produce and through answers to Fetch, for what each topic's part of them measures."""

from typing import Protocol

from protocol.header import RequestHead
from protocol.walks.fetch import FetchWalk
from protocol.walks.produce import ProduceWalk
from protocol.walks.walk import Walk
from proxy.channel.in_flight import Buffer

__all__ = ["Charges", "TopicWalks", "Walks"]


class Charges(Protocol):
    """Whether requests and responses have to be walked: the engine, for topics' sake, or a capture."""

    charges_produced_topics: bool
    charges_fetched_topics: bool


class Walks(Protocol):
    """Makes them."""

    def produce(self, buf: Buffer, pos: int, end: int, body: int, head: RequestHead) -> Walk | None:
        """A walk through a Produce; None where it need not be walked after all."""

    def fetch(self, version: int, length: int) -> Walk:
        """A walk through a response to a Fetch, and to the addresses at its end."""


class TopicWalks:
    """Walks that note how many bytes are each topic's."""

    __slots__ = ()

    def produce(self, _buf: Buffer, _pos: int, _end: int, _body: int, head: RequestHead) -> Walk | None:
        """A walk through a Produce."""
        return ProduceWalk(head[2], head[0], {})

    def fetch(self, version: int, length: int) -> Walk:
        """A walk through a response to a Fetch."""
        return FetchWalk(version, length, {})

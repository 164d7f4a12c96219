"""The TCP connections of a packet capture: which packet belongs to which, when they begin and end, and their bounds.

A connection that was given up, as TLS or as none of Kafka's, is kept as a marker without its packets. Memory is bounded
over all connections: those that had no packet for longest are ended first, which is counted; what comes of them later
is a connection whose beginning was not captured.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Final

from offline.imports.conversation import Conversation, Counts, Request
from offline.imports.packets import ACK, FIN, RST, SYN, Segment
from offline.imports.reassembly import Reassembly
from protocol.capture import NONE

CONNECTIONS_MAX: Final = 65_536
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
# Ended connections whose late packets are ignored.
_ENDED_MAX: Final = 65_536
_PORT_BYTES: Final = 2
_BOTH: Final = 3


@dataclass(slots=True)
class Totals(Counts):
    """What was seen of all connections; bytes are those of TCP's payload, and of Kafka's connections alone.

    Attributes:
        connections: all; kafka, tls, other: what they are.
        cut_start: Kafka's whose beginning was not captured; cut_end: Kafka's whose end was not.
        evicted: ended early, since there was no more memory.
        retransmitted: bytes that came more than once; lost: that the capture has no packet with; cut: beyond the
            snapshot length.
        payload: bytes of payload, each once.
        other_ports: packets to other ports than those that were asked for.
    """

    connections: int = 0
    kafka: int = 0
    tls: int = 0
    other: int = 0
    cut_start: int = 0
    cut_end: int = 0
    evicted: int = 0
    retransmitted: int = 0
    lost: int = 0
    cut: int = 0
    payload: int = 0
    other_ports: int = 0

    def document(self) -> dict[str, int]:
        """Return all counts by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


class _Receiver:
    """Gives the bytes of one direction to the conversation."""

    __slots__ = ("_conversation", "_index")

    def __init__(self, conversation: Conversation, index: int) -> None:
        self._conversation = conversation
        self._index = index

    def receive(self, data: bytes, time_us: int) -> None:
        self._conversation.receive(self._index, data, time_us)

    def skip(self, size: int, time_us: int) -> None:
        self._conversation.skip(self._index, size, time_us)


@dataclass(slots=True, eq=False)
class Connection:
    """One connection.

    Attributes:
        number: in the order of their first packets, from 1.
        ends: the two endpoints, address and port as bytes; the index of one is that of the direction from it.
        client: the index of the client; NONE if it is not known.
        isn: the sequence number of the SYN, NONE if the connection's beginning was not captured.
        held_bytes: the memory that it was last counted with.
        fins: a bit for each direction that has ended.
        conversation, reassembly: None when it is known to be none of Kafka's.
    """

    number: int
    ends: tuple[bytes, bytes]
    client: int
    isn: int
    conversation: Conversation | None = None
    reassembly: Reassembly | None = None
    held_bytes: int = 0
    fins: int = 0
    _origin: tuple[str, str, int] | None = None

    def origin(self) -> tuple[str, str, int]:
        """Return the client's address, and the server's address and port."""
        if self._origin is None:
            assert self.conversation is not None, "it has a request"
            client, server = self.ends if self.conversation.client == 0 else self.ends[::-1]
            port = int.from_bytes(server[-_PORT_BYTES:], "big")
            self._origin = _address(client), _address(server), port
        return self._origin


class Connections:
    """All connections of a capture.

    Args:
        ports: those of Kafka's listeners; empty to recognise Kafka by what it sends.
        emit: receives each complete request, with its connection.

    Attributes:
        names: the topics by id that Metadata responses have told.
        held_bytes: the memory of what all of them hold.
    """

    def __init__(self, ports: Collection[int], emit: Callable[[Connection, Request], None]) -> None:
        self.totals = Totals()
        self.names: dict[bytes, str] = {}
        self._ports = frozenset(port.to_bytes(_PORT_BYTES, "big") for port in ports)
        self._emit = emit
        # By both endpoints; the one without a packet for longest is the first.
        self._open: OrderedDict[bytes, Connection] = OrderedDict()
        self._ended: OrderedDict[bytes, None] = OrderedDict()
        self.held_bytes = 0

    def add(self, segment: Segment, time_us: int) -> None:
        """Add a segment that was captured at this time."""
        source, target = segment.source, segment.target
        if (
            self._ports
            and source[-_PORT_BYTES:] not in self._ports
            and target[-_PORT_BYTES:] not in self._ports
        ):
            self.totals.other_ports += 1
            return
        index = int(source > target)
        key = target + source if index else source + target
        flags = segment.flags
        connection = self._open.get(key)
        if flags & SYN and not flags & ACK and connection is not None and connection.isn != segment.sequence:
            self._end(key, connection, cut=True)
            connection = None
        if connection is None:
            if not flags & SYN and (not segment.size or key in self._ended):
                return
            connection = self._begin(key, index, segment)
        else:
            self._open.move_to_end(key)
        if flags & RST:
            self._end(key, connection, cut=False)
            return
        self._continue(key, connection, index, segment, time_us)
        while self.held_bytes > HELD_BYTES_MAX or len(self._open) > CONNECTIONS_MAX:
            self.totals.evicted += 1
            self._end(*next(iter(self._open.items())), cut=True)

    def finish(self) -> None:
        """End all connections: the capture is over."""
        for key, connection in list(self._open.items()):
            self._end(key, connection, cut=True)

    def _begin(self, key: bytes, index: int, segment: Segment) -> Connection:
        flags, source, target = segment.flags, segment.source, segment.target
        begun = bool(flags & SYN)
        if begun:
            # The answer to a SYN comes from the server; it tells the client's first number as well.
            client = 1 - index if flags & ACK else index
            isn = (segment.acknowledged - 1) % (1 << 32) if flags & ACK else segment.sequence
        else:
            client, isn = self._client_by_port(source, target, index), NONE
        self._ended.pop(key, None)
        self.totals.connections += 1
        ends = (target, source) if index else (source, target)
        connection = Connection(self.totals.connections, ends, client, isn)
        conversation = Conversation(
            client, self.totals, partial(self._emit, connection), self.names, begun=begun
        )
        connection.conversation = conversation
        connection.reassembly = Reassembly([_Receiver(conversation, 0), _Receiver(conversation, 1)])
        self._open[key] = connection
        return connection

    def _client_by_port(self, source: bytes, target: bytes, index: int) -> int:
        """Return the index of the endpoint that is no listener of Kafka's; NONE if that is not known."""
        from_server, to_server = (end[-_PORT_BYTES:] in self._ports for end in (source, target))
        if from_server == to_server:
            return NONE
        return index if to_server else 1 - index

    def _continue(
        self, key: bytes, connection: Connection, index: int, segment: Segment, time_us: int
    ) -> None:
        reassembly, conversation = connection.reassembly, connection.conversation
        if reassembly is None or conversation is None:
            # Only a marker: it ends with its FINs.
            connection.fins |= (1 << index) if segment.flags & FIN else 0
            if connection.fins == _BOTH:
                self._end(key, connection, cut=False)
            return
        reassembly.add(index, segment, time_us)
        if reassembly.closed:
            self._end(key, connection, cut=False)
            return
        if conversation.is_over:
            self._note_kind(conversation)
            connection.reassembly = connection.conversation = None
        held = 0 if conversation.is_over else reassembly.held_bytes + conversation.held_bytes
        self.held_bytes += held - connection.held_bytes
        connection.held_bytes = held

    def _end(self, key: bytes, connection: Connection, *, cut: bool) -> None:
        """End a connection.

        Args:
            cut: the capture does not have its end.
        """
        del self._open[key]
        self.held_bytes -= connection.held_bytes
        self._ended[key] = None
        if len(self._ended) > _ENDED_MAX:
            self._ended.popitem(last=False)
        conversation, reassembly = connection.conversation, connection.reassembly
        if conversation is None or reassembly is None:
            return
        reassembly.flush()
        conversation.finish()
        self._note_kind(conversation)
        if not conversation.requests:
            return
        totals = self.totals
        totals.cut_start += connection.isn == NONE
        totals.cut_end += cut and any(way.end < 0 for way in reassembly.ways)
        for way in reassembly.ways:
            totals.retransmitted += way.retransmitted
            totals.lost += way.lost
            totals.cut += way.cut
            totals.payload += way.received

    def _note_kind(self, conversation: Conversation) -> None:
        if conversation.requests:
            self.totals.kafka += 1
        elif conversation.is_tls:
            self.totals.tls += 1
        else:
            self.totals.other += 1


def _address(end: bytes) -> str:
    """Return an endpoint's address as text; one of IPv4 in IPv6 as that of IPv4."""
    found = ip_address(end[:-_PORT_BYTES])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)

"""All members: which of them respond, and their merged documents.

Every member is probed for as long as the console runs; lists are asked for when a page wants them, and for the history.
Members that a fleet names are added by themselves. Nothing here knows pages.
"""

import asyncio
import heapq
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

from console.member import LIST_SECONDS_MAX, Look, Member, MemberError, new_client
from console.merging import Divided, merge_brokers, merge_capacities, merge_clients, merge_rules, one_budget
from proxy.explain.documents import (
    CLIENTS_MAX,
    LIST_BYTES_MAX,
    MEMBERS_MAX,
    RULES_MAX,
    BrokersDocument,
    BrokerTimes,
    CapacitiesDocument,
    ClientDocument,
    ClientRow,
    ClientsDocument,
    Document,
    EventRow,
    EventsDocument,
    RuleRow,
    RulesDocument,
)
from proxy.explain.parts import NAMES
from proxy.system.admin_access import AdminAccess

# ----------------------------------------------------------------------------------------------------
# What each client's time was in the last quarter of an hour, in slots of a few seconds. Pure; bounded.
#
# A slot of a client is one byte for each part of its time, in two hundredths, and one that says whether it was seen:
# 8 bytes, 1,440 for 180 slots, 14 MB for 10,000 clients.


SECONDS: Final = 900
SLOT_SECONDS: Final = 5
_SLOTS: Final = SECONDS // SLOT_SECONDS
_WIDTH: Final = len(NAMES) + 1
_SCALE: Final = 200
_EMPTY: Final = bytes(_WIDTH)
_BROKERS_MAX: Final = 1000

Sample = tuple[float, ...] | None
_Key = tuple[str, str]


class _Ring:
    """The samples of one client, a ring with one for each slot."""

    __slots__ = ("data", "last")

    def __init__(self, slot: int) -> None:
        self.data = bytearray(_SLOTS * _WIDTH)
        self.last = slot

    def put(self, slot: int, sample: bytes) -> None:
        for skipped in range(max(self.last + 1, slot - _SLOTS + 1), slot):
            start = skipped % _SLOTS * _WIDTH
            self.data[start : start + _WIDTH] = _EMPTY
        start = slot % _SLOTS * _WIDTH
        self.data[start : start + _WIDTH] = sample
        self.last = slot

    def get(self, slot: int) -> Sample:
        if not self.last - _SLOTS < slot <= self.last:
            return None
        start = slot % _SLOTS * _WIDTH
        sample = self.data[start : start + _WIDTH]
        return tuple(part / _SCALE for part in sample[1:]) if sample[0] else None


class History:
    """The last quarter of an hour, in slots of SLOT_SECONDS: where each client's time went, and each broker's p99.

    A client's time is divided into the parts of `proxy.explain.parts`, such as muted or idle. The p99 is the response
    time that 99 % of a broker's requests do not exceed.

    >>> from proxy.explain.documents import Times
    >>> history = History()
    >>> client = ClientRow(user="", client_id="web-1", time=Times(muted=0.5, idle=0.5))
    >>> history.add([client], [], now=100.0)
    >>> history.client(("", "web-1"), now=111.0, slots=4)
    [None, (0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5), None, None]
    """

    def __init__(self, clients_max: int = CLIENTS_MAX) -> None:
        self._clients_max = clients_max
        self._clients: OrderedDict[_Key, _Ring] = OrderedDict()  # the one that was seen last is last
        self._brokers: dict[int, deque[tuple[int, float]]] = {}
        self._since: int | None = None

    def add(self, clients: Iterable[ClientRow], brokers: Iterable[BrokerTimes], now: float) -> None:
        """Store the clients' times and the brokers' p99 in the slot of `now` (seconds)."""
        slot = int(now // SLOT_SECONDS)
        if self._since is None:
            self._since = slot
        for client in clients:
            key = client.user, client.client_id
            ring = self._clients.get(key)
            if ring is None:
                if len(self._clients) >= self._clients_max:
                    self._clients.popitem(last=False)
                ring = self._clients[key] = _Ring(slot)
            else:
                self._clients.move_to_end(key)
            ring.put(slot, bytes((1, *(round(part * _SCALE) for part in client.time.parts))))
        self._forget(slot)
        for broker in brokers:
            self._add_broker(broker, slot)

    def client(self, key: _Key, now: float, slots: int = _SLOTS) -> list[Sample]:
        """Return a client's times in the last slots, the oldest slot first.

        A slot has shares of the time (0 to 1) in the order of `NAMES`; it is None if the client was not seen in it.
        """
        ring = self._clients.get(key)
        last = int(now // SLOT_SECONDS)
        return [None if ring is None else ring.get(slot) for slot in range(last - slots + 1, last + 1)]

    def broker(self, broker: int, now: float, slots: int = _SLOTS) -> list[float | None]:
        """Return a broker's p99 in ms in the last slots, the oldest first; None for a slot without a known p99."""
        found = dict(self._brokers.get(broker, ()))
        last = int(now // SLOT_SECONDS)
        return [found.get(slot) for slot in range(last - slots + 1, last + 1)]

    def seconds(self, now: float) -> int:
        """Return how far the history goes back, in seconds; at most SECONDS."""
        return (
            0
            if self._since is None
            else min(SECONDS, (int(now // SLOT_SECONDS) - self._since + 1) * SLOT_SECONDS)
        )

    def _forget(self, slot: int) -> None:
        """Remove the clients that were not seen in any of the slots that end with `slot`."""
        while self._clients:
            key = next(iter(self._clients))
            if self._clients[key].last > slot - _SLOTS:
                return
            del self._clients[key]

    def _add_broker(self, broker: BrokerTimes, slot: int) -> None:
        if broker.broker not in self._brokers:
            if len(self._brokers) >= _BROKERS_MAX:
                return
            self._brokers[broker.broker] = deque(maxlen=_SLOTS)
        samples = self._brokers[broker.broker]
        if samples and samples[-1][0] == slot:
            samples.pop()
        samples.append((slot, broker.p99_ms))


# ----------------------------------------------------------------------------------------------------
# Options and bounds of the console. Pure.


STREAMS_MAX: Final = 32  # open pages


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """The options of the command line.

    Args:
        admins: admin ports of members, as URLs without a final slash.
        host: the address that the page is served at.
        port: its port; 0 for any free one.
        refresh_seconds: the time between two requests to a member while a page is open.
        names: host names under which an operator's own proxy serves the page.
        token: the secret that a browser must send to log in; "" if no login is needed.
        access: what is trusted and sent at members' admin ports.
    """

    admins: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 9190
    refresh_seconds: float = 2.0
    names: tuple[str, ...] = ()
    token: str = ""
    access: AdminAccess = field(default_factory=AdminAccess)


LOG: Final = logging.getLogger(__name__)
EVENTS_MAX: Final = 500
_EVENTS_ASKED: Final = 200
_UNSEEN_SECONDS: Final = 30.0  # without a page, members are asked less often
_UNSEEN_REFRESH_SECONDS: Final = 10.0
_RULES_SECONDS: Final = 5.0
_Value = TypeVar("_Value", bound=Document)


class Happened(NamedTuple):
    """An event with the member that has reported it."""

    event: EventRow
    member: str


class Board:
    """Reads the documents of all members, and merges them for the pages; a member is one Sluice with its admin port.

    Args:
        options: the options, with the members that the operator has named.
    """

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        self._client = new_client(options.access)
        self._members: dict[str, Member] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._events: dict[str, list[EventRow]] = {}
        self._read_up_to: dict[str, tuple[str, int]] = {}
        self._merged: dict[int, tuple[tuple[ClientsDocument | None, ...], bool, ClientsDocument]] = {}
        self._looked_at = time.monotonic()
        self.history = History()
        self.not_asked = 0  # members beyond MEMBERS_MAX
        self.events_lost = 0

    @property
    def members(self) -> Sequence[Member]:
        """All known members: first those that the operator has named, then those that a fleet has named."""
        return tuple(self._members.values())

    @property
    def failures(self) -> int:
        """The number of requests to members without a usable response."""
        return sum(member.failures for member in self.members)

    async def run(self) -> None:
        """Probe the members every few seconds and write the history, until cancelled."""
        for admin in self._options.admins:
            self._add(admin, "", given=True)
        try:
            while True:
                await asyncio.gather(asyncio.sleep(SLOT_SECONDS), self._note_history())
        finally:
            for task in self._tasks.values():
                task.cancel()
            await self._client.aclose()

    def look(self) -> None:
        """Register that a page is open; if none has been for _UNSEEN_SECONDS, members are probed more rarely."""
        self._looked_at = time.monotonic()

    async def clients(self, window: int) -> ClientsDocument:
        """Return all members' clients, each once, over the last `window` seconds."""
        look = Look(
            f"/v1/clients?window={window}",
            ClientsDocument,
            self._options.refresh_seconds * 0.9,
            LIST_BYTES_MAX,
            LIST_SECONDS_MAX,
        )
        lists = tuple(await asyncio.gather(*(member.read(look) for member in self.members)))
        known, was_shared, merged = self._merged.get(window, ((), True, None))
        shared = self.shared
        if (
            merged is None
            or was_shared is not shared
            or len(known) != len(lists)
            or any(a is not b for a, b in zip(known, lists, strict=True))
        ):
            merge = partial(merge_clients, shared=shared)
            merged = await asyncio.to_thread(merge, [one for one in lists if one is not None])
            self._merged[window] = lists, shared, merged
        return merged

    @property
    def shared(self) -> bool:
        """Whether the members share their budgets (quotas): all are of a fleet, or there is only one."""
        return one_budget([one.status.member for one in self.members if one.status is not None])

    async def brokers(self) -> tuple[BrokerTimes, ...]:
        """Return each broker's response times, merged from all members."""
        found = await self._read(Look("/v1/brokers", BrokersDocument, self._options.refresh_seconds * 0.9))
        return merge_brokers(one.brokers for one in found)

    async def capacities(self) -> tuple[Divided, ...]:
        """Return the capacities that are divided among classes now; of a fleet, each once."""
        look = Look("/v1/capacities", CapacitiesDocument, self._options.refresh_seconds * 0.9)
        members = self.members
        found = await asyncio.gather(*(member.read(look) for member in members))
        documents = (
            (member.name, one) for member, one in zip(members, found, strict=True) if one is not None
        )
        return merge_capacities(documents)

    async def rules(self) -> tuple[RuleRow, ...] | None:
        """Return all quotas with their use; None if no member has such a document."""
        look = Look("/v1/rules", RulesDocument, _RULES_SECONDS, seconds_max=LIST_SECONDS_MAX)
        found = await self._read(look)
        return merge_rules((one.rules[:RULES_MAX] for one in found), shared=self.shared) if found else None

    async def client(self, user: str, client_id: str, window: int) -> list[ClientDocument]:
        """Return the `/v1/client` documents of a client over `window` seconds, one from each member that knows it."""
        path = f"/v1/client?{urlencode({'client_id': client_id, 'user': user, 'window': window})}"
        return await self._read(Look(path, ClientDocument, self._options.refresh_seconds * 0.9))

    def events(self, at_most: int) -> list[Happened]:
        """Return the last events of all members, the newest first; at most `at_most`."""
        found = (Happened(one, name) for name, kept in self._events.items() for one in kept)
        return heapq.nlargest(at_most, found, key=lambda happened: happened.event.at)

    def offers(self, path: str) -> bool:
        """Whether at least one responding member offers the document at this path; older versions lack some."""
        return any(member.silent_since is None and path not in member.absent for member in self.members)

    async def _read(self, look: Look[_Value]) -> list[_Value]:
        """Return the document of each member that has it."""
        found = await asyncio.gather(*(member.read(look) for member in self.members))
        return [one for one in found if one is not None]

    def _add(self, admin: str, name: str, *, given: bool) -> None:
        if len(self._members) >= MEMBERS_MAX:
            self.not_asked += 1
            return
        member = self._members[admin] = Member(admin, self._client, self._options.access, given=given)
        member.fleet_name = name
        self._tasks[admin] = asyncio.create_task(self._watch(member), name=f"member {admin}")

    async def _watch(self, member: Member) -> None:
        """Probe one member and read its events, for ever."""
        while True:
            try:
                await member.probe()
                await self._read_events(member)
                self._discover(member)
            except MemberError:
                pass  # the member has noted it
            except Exception:  # the edge of a task: one member must not end the console
                LOG.exception("internal error: member %s", member.admin)
            unseen = time.monotonic() - self._looked_at > _UNSEEN_SECONDS
            await asyncio.sleep(
                max(_UNSEEN_REFRESH_SECONDS, self._options.refresh_seconds)
                if unseen
                else self._options.refresh_seconds
            )

    async def _read_events(self, member: Member) -> None:
        run, after = self._read_up_to.get(member.admin, ("", 0))
        path = f"/v1/events?after={after}&limit={_EVENTS_ASKED}"
        found = await member.ask(Look(path, EventsDocument, 0.0))
        if found is None:
            return
        if run and found.run != run:  # the member has been started anew
            self._read_up_to[member.admin] = found.run, 0
            return
        kept = self._events.setdefault(member.name, [])
        kept += [one for one in found.events[:_EVENTS_ASKED] if one.id > after]
        del kept[:-EVENTS_MAX]
        self.events_lost += found.lost
        newest = max([after, *(one.id for one in found.events)])
        self._read_up_to[member.admin] = found.run, newest

    def _discover(self, member: Member) -> None:
        """Add the members that this one's fleet names and that are not known yet."""
        if member.fleet is None or not member.fleet.member:
            return
        known = {one.fleet.name for one in self.members if one.fleet} | {
            one.fleet_name for one in self.members
        }
        for other in member.fleet.members[:MEMBERS_MAX]:
            admin = other.admin.rstrip("/")
            if other.name not in known and admin not in self._members and _is_url(admin):
                self._add(admin, other.name, given=False)
                known.add(other.name)

    async def _note_history(self) -> None:
        found, times = await asyncio.gather(self.clients(10), self.brokers())
        self.history.add(found.clients, times, time.monotonic())


def _is_url(admin: str) -> bool:
    try:
        parts = urlsplit(admin)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        return False

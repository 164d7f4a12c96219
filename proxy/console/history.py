"""What each client's time was in the last quarter of an hour, in slots of a few seconds. Pure; bounded.

A slot of a client is one byte for each part of its time, in two hundredths, and one that says whether it was seen: 8
bytes, 1,440 for 180 slots, 14 MB for 10,000 clients.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from proxy.explain.parts import NAMES
from proxy.v1.bounds import CLIENTS_MAX
from proxy.v1.documents import Broker, Client

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
    """One client's slots."""

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
    """The last quarter of an hour.

    >>> history = History()
    >>> client = Client("", "web-1", 1, (0, 0.5, 0, 0, 0, 0, 0.5), (), None, (), ())
    >>> history.add([client], [], now=100.0)
    >>> history.client(("", "web-1"), now=111.0, slots=4)
    [None, (0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5), None, None]
    """

    def __init__(self, clients_max: int = CLIENTS_MAX) -> None:
        self._clients_max = clients_max
        self._clients: OrderedDict[_Key, _Ring] = OrderedDict()  # the one that was seen last is last
        self._brokers: dict[int, deque[tuple[int, float]]] = {}
        self._since: int | None = None

    def add(self, clients: Iterable[Client], brokers: Iterable[Broker], now: float) -> None:
        """Note the clients' times of the last seconds, and the brokers' p99."""
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
            ring.put(slot, bytes((1, *(round(part * _SCALE) for part in client.times))))
        self._forget(slot)
        for broker in brokers:
            self._add_broker(broker, slot)

    def client(self, key: _Key, now: float, slots: int = _SLOTS) -> list[Sample]:
        """Return a client's last samples, the oldest first; None where it was not seen."""
        ring = self._clients.get(key)
        last = int(now // SLOT_SECONDS)
        return [None if ring is None else ring.get(slot) for slot in range(last - slots + 1, last + 1)]

    def broker(self, broker: int, now: float, slots: int = _SLOTS) -> list[float | None]:
        """Return a broker's last p99, in ms."""
        found = dict(self._brokers.get(broker, ()))
        last = int(now // SLOT_SECONDS)
        return [found.get(slot) for slot in range(last - slots + 1, last + 1)]

    def seconds(self, now: float) -> int:
        """The time that it goes back, SECONDS at most."""
        return (
            0
            if self._since is None
            else min(SECONDS, (int(now // SLOT_SECONDS) - self._since + 1) * SLOT_SECONDS)
        )

    def _forget(self, slot: int) -> None:
        """Forget clients that were not seen for the whole of it."""
        while self._clients:
            key = next(iter(self._clients))
            if self._clients[key].last > slot - _SLOTS:
                return
            del self._clients[key]

    def _add_broker(self, broker: Broker, slot: int) -> None:
        if broker.broker not in self._brokers:
            if len(self._brokers) >= _BROKERS_MAX:
                return
            self._brokers[broker.broker] = deque(maxlen=_SLOTS)
        samples = self._brokers[broker.broker]
        if samples and samples[-1][0] == slot:
            samples.pop()
        samples.append((slot, broker.p99_ms))

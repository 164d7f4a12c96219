"""The quota engine: returns the throttles of a client; applies definitions and options live (KIP-13).

State per client is created at the first look-up, refreshed lazily (each throttle compares one reference), and removed
after an hour without traffic, as Kafka expires its sensors. So an update costs the same with ten clients and with
200,000.

Memory is bounded. Beyond `client_ids_max` identities, clients without an entry of their own share one object,
`<other>`, with one default client's quota for all of them. A client with an entry always has its own object, since the
number of entries is bounded; a user with an entry keeps its quota, and the user's further client ids share one
`<other>`. A client id longer than CLIENT_ID_CHARACTERS_MAX without an entry counts as `<other>`. Names that are in a
group by a prefix stay in it: those of `web-*` share `web-<other>`. The same applies beyond `client_bytes_max`, the
memory of all clients with their limiters. While more than three quarters of either bound are in use, a client without
debt and without recent traffic is removed early.

The scope is fixed at the start: a budget cannot be split while it is in use. The engine belongs to one thread; `now_ms`
is an argument everywhere. `proxy.metrics.exposition` shows its figures.
"""

from collections import deque
from collections.abc import Container, Iterator
from dataclasses import replace
from itertools import islice
from sys import getsizeof
from typing import Final

from quotas.definitions.classes import NEWCOMERS, Capacity, Terms, promised
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import BY_KEY, CATCH_UP, CLIENT_KEYS, FETCH, MUTATION, PRODUCE, REQUEST, TOPIC
from quotas.limiters.limiter import Borrowing, Budgets, Lendable, Limiter, LimiterKey
from quotas.limiters.savings import Savings
from quotas.limiters.schedule import ScheduledLimiter
from quotas.options import EngineOptions
from quotas.throttles import figures
from quotas.throttles.bandwidth import Throttle, limiter_in_force
from quotas.throttles.client import ClientQuota
from quotas.throttles.connections import UserConnections
from quotas.throttles.figures import GATEWAY, ClientThrottle, QuotaView
from quotas.throttles.mutation import MutationQuotas
from quotas.throttles.request import RequestQuotas
from quotas.throttles.topic_quotas import TopicQuotas

OTHER: Final = "<other>"
CLIENT_ID_CHARACTERS_MAX: Final = 1024
NEWCOMERS_AT_ONCE: Final = 500
EXPIRE_MS: Final = 3_600_000  # Kafka's sensors live as long
EXPIRE_AT_ONCE: Final = 1_000  # clients checked in one call, about a millisecond's work
EXPIRE_SOON_MS: Final = 60_000  # where room is short; never before all windows are empty
_EVICTION_CHECKS_MAX: Final = 16  # clients that one new client may displace


class Engine:
    """All quotas of one process, and the throttles of its clients.

    Attributes:
        options, definitions: those in force; `update` replaces them.
        lends: whether capacities hold; False where their classes would have several lessors (`quotas.sharing.parts`).
        relaying: whether all enforcement is turned off (SIGUSR1), so that nothing needs to be counted.
        limits_catch_up: whether any client has a limit of what it reads behind the log's end.

    >>> from quotas.definitions.definitions import StaticQuotas
    >>> engine = Engine(EngineOptions(policy="kip13"), Definitions(static=StaticQuotas(producer_default=2_000_000)))
    >>> throttle = engine.client("", "a", broker=1).produce
    >>> flow = throttle.flow()
    >>> [throttle.produce(flow, 6_000_000, now_ms).throttle_ms for now_ms in (0, 1000, 2000, 3000)]  # 24 / 2 - 10 s
    [0, 0, 0, 2000]
    """

    def __init__(self, options: EngineOptions, definitions: Definitions) -> None:
        self.options = options
        self.definitions = definitions
        self._gateway = options.scope == "cluster"
        self.relaying = False
        self.enforcing = options.mode == "enforce"
        self.version = object()  # replaced by every change; throttles compare it
        self.budgets: Budgets | None = None
        self.lease_until_ms: int | None = None
        self._clients: dict[tuple[str, str, int], ClientQuota] = {}
        self._expiry_queue: deque[tuple[str, str, int]] = deque()  # the order in which expiry looks at them
        self._limiters: dict[LimiterKey, Limiter] = {}
        # Names whose first bytes another class pays for, and what each had counted before these.
        self._newcomers: dict[Throttle, int] = {}
        # The same of those that have sent something: they get limiters of their own at their next use.
        self._admitted: dict[Throttle, int] = {}
        # What limiters have to pay for: how many bytes, which limiter of new names has paid them first, and what the
        # limiter itself had counted with them.
        self._advanced: dict[ScheduledLimiter, tuple[ScheduledLimiter, int, int]] = {}
        # The saved bytes that have passed last, and when, by quota key and broker.
        self._spent: dict[tuple[str, int], tuple[int, int]] = {}
        self._names_bytes = 0  # of users and client ids
        self._now_ms = 0  # when clients were last looked at
        self.mutations = MutationQuotas(self)
        self.requests = RequestQuotas(self)
        self.topics = TopicQuotas(self)
        self.connections = UserConnections(self)
        # Whether requests and responses have to be walked through: nothing else of topics' quotas, and of those of
        # catch-up reads, is asked per frame.
        self.charges_produced_topics = self.charges_fetched_topics = self.limits_catch_up = False
        self._update_flags()

    def client(self, user: str, client_id: str, broker: int) -> ClientQuota:
        """Return the throttles of this client at this broker; the same object until it expires."""
        key = (user, client_id, GATEWAY if self._gateway else broker)
        found = self._clients.get(key)
        return found if found is not None else self._add(key)

    def update(self, options: EngineOptions, definitions: Definitions, now_ms: int) -> None:  # noqa: ARG002 - applied lazily
        """Replace options and definitions; recorded bytes stay. A changed scope needs a restart and is ignored."""
        if options.scope != self.options.scope:
            options = replace(options, scope=self.options.scope)
        self.options = options
        self.definitions = definitions
        self._apply_change()

    def switch_enforcement(self, on: bool) -> None:
        """Turn all enforcement off, or on again (SIGUSR1), whatever the mode is."""
        self.relaying = not on
        self._apply_change()

    def share(self, budgets: Budgets) -> None:
        """Make every limiter use only this process's share of its quota (`quotas.sharing`).

        It must be called before a client has sent its first request, since limiters in use have their whole quotas.
        """
        assert not self._limiters, "a limiter that is in use has its whole quota"
        self.budgets = budgets

    def lend(self, budgets: Budgets) -> None:
        """Make classes of capacities borrow (`quotas.sharing.capacities`), where every quota is this process's own."""
        self.budgets = budgets
        self.version = object()

    def names(self, limiter_key: LimiterKey) -> bool:
        """Whether an entry is about exactly the clients of this limiter (`Definitions.names_bucket`)."""
        return self.definitions.names_bucket(limiter_key[0], limiter_key[1])

    def capacity(self, limiter_key: LimiterKey) -> float:
        """Return the capacity in bytes/s that the class of a limiter shares; 0 if none is stated."""
        found = self.definitions.capacity(limiter_key[0]) if self._lent else None
        return 0.0 if found is None else found.rate

    def refresh(self, lease_until_ms: int | None) -> None:
        """Make every limiter read its share again before its next use, and once more when the lease ends.

        Args:
            lease_until_ms: the end of the lease of this process's shares; None if there is none.
        """
        self.lease_until_ms = lease_until_ms
        self.version = object()

    def end_lease(self, now_ms: int) -> None:
        """If the lease of this process's shares has ended, make every limiter read its share again."""
        if self.lease_until_ms is not None and now_ms >= self.lease_until_ms:
            self.refresh(None if self.budgets is None else self.budgets.leased_until_ms(now_ms))

    def expire(self, now_ms: int) -> int:
        """Remove clients without a channel that had no traffic for an hour, or never had any; returns their number.

        Call it about once a second: each call checks a bounded number of clients, round robin.
        """
        self._now_ms = now_ms
        short = not self._has_room(4 / 3)
        windows_ms = self._windows_ms
        forgotten = 0
        for _ in range(min(len(self._expiry_queue), EXPIRE_AT_ONCE)):
            forgotten += self._check_expiry(now_ms, windows_ms, soon=short)
        self.topics.expire(now_ms)
        return forgotten

    @property
    def client_bytes(self) -> int:
        """The memory of all clients with their limiters, in bytes."""
        limiter_bytes = figures.LIMITER_BYTES + (0 if self.enforcing else figures.PREDICTION_BYTES)
        return (
            self._names_bytes
            + len(self._clients) * figures.CLIENT_BYTES
            + len(self._limiters) * limiter_bytes
            + len(self.requests) * figures.REQUEST_LIMITER_BYTES
            + len(self.mutations) * figures.MUTATION_LIMITER_BYTES
        )

    @property
    def _windows_ms(self) -> int:
        """The length of all windows of a quota together, in ms."""
        return int(self.options.window_samples * self.options.window_seconds * 1000)

    @property
    def kept_bytes(self) -> int:
        """The memory of all clients, topics and users, in bytes."""
        return (
            self.client_bytes
            + len(self.topics) * figures.TOPIC_BYTES
            + len(self.connections) * figures.USER_CONNECTIONS_BYTES
        )

    def views(self, now_ms: int, series: str = PRODUCE.series) -> Iterator[QuotaView]:
        """Yield the figures of all clients, or all topics, for one metric series (`Kind.series`).

        A client has one view for each kind of quota that it has used, a topic one for each direction. There may be
        hundreds of thousands: iterate a limited number at a time.
        """
        if series == TOPIC.series:
            yield from self._topic_views(now_ms)
        elif series == MUTATION.series:  # of all brokers together
            for throttle in self.mutations.clients():
                yield self._view(throttle, GATEWAY, now_ms)
        else:
            for client in list(self._clients.values()):
                for one in client.throttles():
                    if one.kind.series == series and (
                        one.kind is not REQUEST or one.total or one.limit is not None
                    ):
                        yield self._view(one, client.broker, now_ms)

    def rates(
        self, now_ms: int, wanted: Container[tuple[str, str]]
    ) -> Iterator[tuple[str, str, tuple[float, ...]] | None]:
        """Yield user, client id and rates (`ClientQuota.rates`) of each client, once for each of its brokers.

        Args:
            wanted: pairs of user and client id; for every other client None is yielded, without computing its rates.
        """
        for client in list(self._clients.values()):
            if (client.user, client.client_id) in wanted:
                yield client.user, client.client_id, client.rates(now_ms)
            else:
                yield None

    def cluster_tokens(self, now_ms: int) -> float | None:
        """Return the partition mutations that all clients together may make now; None without such a limit."""
        return self.mutations.cluster_tokens(now_ms)

    def attach(self, throttle: Throttle, now_ms: int) -> tuple[float | None, Limiter | None]:
        """Return a client's limit in bytes/s and the limiter of all clients that share it; both None: unlimited.

        Called by the client's `Throttle`; the limiter is created or updated if necessary.
        """
        key, broker = throttle.key, throttle.broker
        counted = self._newcomers.pop(throttle, self._admitted.pop(throttle, throttle.total))
        lent = self._lent
        limit, bucket = self.definitions.limit(key, throttle.user, throttle.client_id, lent=lent)
        capacity = self.definitions.capacity(key) if lent else None
        if capacity is not None:
            return limit, self._class_limiter(throttle, counted, capacity, limit, bucket, now_ms)
        if limit is None:
            return None, None
        found = self._limiter((key, bucket, broker), limit, None, now_ms)
        if isinstance(found, ScheduledLimiter):
            found.savings = None  # it may have shared a capacity before
        return limit, found

    @property
    def _lent(self) -> bool:
        """Whether capacities hold in this process."""
        return self.budgets is not None and self.options.policy == "schedule"

    def _class_limiter(
        self,
        throttle: Throttle,
        counted: int,
        capacity: Capacity,
        limit: float | None,
        bucket: BucketKey,
        now_ms: int,
    ) -> Limiter:
        """Return the limiter of a client's class.

        What a new name below a default sends first counts against the class of newcomers: otherwise each new name would
        be another request that passes at once, whatever is left of the capacity. It counts against its own when the
        name sends more; once that has paid for it, the newcomers have it back (`admit_newcomers`). Names that are
        exempt have nothing to wait for.

        Args:
            counted: what the throttle had counted when it became a newcomer, if it is one.
        """
        key, broker = throttle.key, throttle.broker
        bucket = self.definitions.class_of(key, limit, bucket)
        terms = self.definitions.terms(key, bucket)
        named = terms.exempt or self.definitions.names_bucket(key, bucket)
        new = not named and (key, bucket, broker) not in self._limiters
        charged = throttle.total - counted
        if new and charged <= 0:
            self._newcomers[throttle] = counted
            bucket = NEWCOMERS
            terms = self.definitions.terms(key, bucket)
        found = self._limiter((key, bucket, broker), promised(terms, capacity), terms, now_ms)
        if isinstance(found, ScheduledLimiter):
            if named or bucket == NEWCOMERS:
                found.savings = None
            elif found.savings is None:
                found.savings = Savings(self)
            if new and charged > 0:
                found.use_up_burst(now_ms)
                found.delivered(charged, now_ms)
                newcomers = self._limiters.get((key, NEWCOMERS, broker))
                if isinstance(newcomers, ScheduledLimiter):
                    self._advanced[found] = newcomers, charged, found.used()
        return found

    def _limiter(self, limiter_key: LimiterKey, rate: float, terms: Terms | None, now_ms: int) -> Limiter:
        """Return the limiter with this key, created or updated if necessary."""
        limiter = self._limiters.get(limiter_key)
        found = limiter_in_force(limiter, rate, self, limiter_key, now_ms, terms=terms)
        if found is not limiter:
            self._limiters[limiter_key] = found
        return found

    def advance(self, limiter: Lendable, part: int, size: int, now_ms: int) -> bool:
        """Let new names pay first for a part of a request of `size` bytes; False if they have no room."""
        newcomers = self._newcomers_of(limiter, now_ms)
        if (
            newcomers is None
            or newcomers.waits(now_ms)
            or newcomers.room_in_ms(0, now_ms, consumes=False, alone=True)
        ):
            return False
        self._pay_first(newcomers, limiter, part, int(limiter.used()) + size, now_ms)
        return True

    def spend(self, limiter: Lendable, part: int, now_ms: int) -> float:
        """Let what a limiter has saved pass, at the rate of the capacity; returns in how many ms it may, or 0."""
        assert limiter.limiter_key is not None, "a limiter of a class has a key"
        key, _, broker = limiter.limiter_key
        capacity = self.definitions.capacity(key)
        if capacity is None:
            return 0.0
        spent, spent_ms = self._spent.get((key, broker), (0, now_ms))
        wait_ms = spent_ms + spent * 1000 / capacity.rate - now_ms
        if wait_ms > 0:
            return wait_ms
        if part:
            self._spent[key, broker] = part, now_ms
        return 0.0

    def charge(self, limiter: Lendable, part: int, now_ms: int) -> None:
        """Let new names pay first for bytes that a limiter has counted and not paid for."""
        newcomers = self._newcomers_of(limiter, now_ms)
        if newcomers is not None:
            self._pay_first(newcomers, limiter, part, int(limiter.used()), now_ms)

    def _newcomers_of(self, limiter: Lendable, now_ms: int) -> ScheduledLimiter | None:
        """Return the limiter of new names beside another one."""
        assert limiter.limiter_key is not None, "a limiter of a class has a key"
        key, _, broker = limiter.limiter_key
        capacity = self.definitions.capacity(key)
        if capacity is None:
            return None
        terms = self.definitions.terms(key, NEWCOMERS)
        found = self._limiter((key, NEWCOMERS, broker), promised(terms, capacity), terms, now_ms)
        return found if isinstance(found, ScheduledLimiter) else None

    def _pay_first(
        self, newcomers: ScheduledLimiter, limiter: Lendable, part: int, counted: int, now_ms: int
    ) -> None:
        assert isinstance(limiter, ScheduledLimiter), "only these save"
        before = self._advanced.pop(limiter, None)
        if before is not None:  # it has paid for that: otherwise it would not have come to its slot
            _repay(*before[:2], now_ms)
        newcomers.delivered(part, now_ms)
        newcomers.uncounted += part
        self._advanced[limiter] = newcomers, part, counted

    def return_missing(self, limiter: Limiter, before: Limiter, size: int, counted: int, now_ms: int) -> None:
        """Take `size` bytes of a request that did not arrive off what a limiter pays for new names."""
        if not isinstance(limiter, ScheduledLimiter):
            return
        advanced = self._advanced.get(limiter)
        if advanced is not None and advanced[0] is before:
            limiter.pay(size, now_ms)
            self._advanced[limiter] = advanced[0], max(0, advanced[1] - size), advanced[2] - size + counted

    def admit_newcomers(self, now_ms: int) -> None:
        """Give new names that have sent something a limiter of their own, from their next use on.

        What limiters have paid for is given back to the newcomers.
        """
        for own, (newcomers, size, counted) in list(islice(self._advanced.items(), NEWCOMERS_AT_ONCE)):
            del self._advanced[own]
            own.take_back(now_ms)  # of what was announced and has not come, nothing is to be paid
            credit = own.credit_bytes(now_ms)
            if credit < 0 and own.used() - counted + credit < 0:  # some of its debt of then is left
                self._advanced[own] = newcomers, size, counted
            else:
                _repay(newcomers, size, now_ms)
        for throttle, counted in list(islice(self._newcomers.items(), NEWCOMERS_AT_ONCE)):
            del self._newcomers[throttle]
            if throttle.total > counted:
                throttle.attach_again()
                self._admitted[throttle] = counted
            else:
                self._newcomers[throttle] = counted  # the next ones have their turn

    def forget_newcomers(self, limiter: Borrowing, limiter_key: LimiterKey, now_ms: int) -> None:
        """Remove the limiter of new names, of which none is left, if its burst is full or no capacity is stated."""
        if not self.capacity(limiter_key) or limiter.unpaid_bytes(now_ms) <= 0:
            assert isinstance(limiter, ScheduledLimiter), "only these borrow"
            self._remove_limiter(limiter)

    def release(self, limiter: Limiter, throttle: Throttle) -> None:
        """Detach a throttle from its limiter, which is removed with its last throttle. Called by the `Throttle`."""
        limiter.throttles.discard(throttle)
        limiter.uncounted += throttle.total
        limiter_key = limiter.limiter_key
        if limiter_key is not None and limiter_key[1] == NEWCOMERS:
            self._newcomers.pop(throttle, None)
            self._admitted.pop(throttle, None)
            if self.capacity(limiter_key):
                return  # another one would begin with another burst (`forget_newcomers`)
        if not limiter.throttles:
            self._remove_limiter(limiter)

    def _remove_limiter(self, limiter: Limiter) -> None:
        """Remove a limiter without throttles."""
        limiter_key = limiter.limiter_key
        if limiter_key is not None and self._limiters.get(limiter_key) is limiter:
            del self._limiters[limiter_key]
            if isinstance(limiter, ScheduledLimiter):
                self._advanced.pop(limiter, None)
            if self.budgets is not None:
                self.budgets.end(limiter)

    def __len__(self) -> int:
        return len(self._clients)

    def _apply_change(self) -> None:
        self.enforcing = not self.relaying and self.options.mode == "enforce"
        self.version = object()
        self._update_flags()

    def _update_flags(self) -> None:
        self.limits_catch_up = not self.relaying and self.definitions.has(CATCH_UP.key)
        limits = self.definitions.limits_topics
        self.charges_produced_topics = not self.relaying and limits(PRODUCE.key)
        self.charges_fetched_topics = not self.relaying and limits(FETCH.key)
        # Whether a channel may have one Fetch with a broker at a time for topics' sake.
        self.weighs_fetched_topics = self.charges_fetched_topics and self.enforcing
        if self.charges_produced_topics or self.charges_fetched_topics:
            self.topics.names.wake()  # for the ids of those that have limits now

    def _add(self, key: tuple[str, str, int]) -> ClientQuota:
        user, client_id, broker = key
        long = len(client_id) > CLIENT_ID_CHARACTERS_MAX
        room = self._has_room() or self._evict_idle()
        if (long or not room) and not self._has_own_entry(user, client_id):
            user_begin, client_begin = self.definitions.beginnings(user, client_id)
            client_id = client_begin + OTHER
            if user and not room and not self.definitions.names_user(user):
                user = user_begin + OTHER
            found = self._clients.get((user, client_id, broker))
            if found is not None:
                return found
            key = (user, client_id, broker)
        client = ClientQuota(self, user, client_id, broker, self.mutations, self.requests)
        self._clients[key] = client
        self._expiry_queue.append(key)
        self._names_bytes += getsizeof(user) + getsizeof(client_id)
        return client

    def _has_room(self, times: float = 1) -> bool:
        """Whether another client fits; `times`: as if there were that many times as many clients and bytes."""
        options = self.options
        return (
            len(self._clients) * times < options.client_ids_max
            and self.client_bytes * times < options.client_bytes_max
        )

    def _evict_idle(self) -> bool:
        """Remove an idle client if one is among the next in the round; returns whether there is room now."""
        now_ms = self._now_ms
        for _ in range(min(len(self._expiry_queue), _EVICTION_CHECKS_MAX)):
            key = self._expiry_queue[0]
            client = self._clients[key]
            idle = client.activity() == client.last_activity and not client.in_use(now_ms)
            if idle and self._may_expire(client, now_ms, soon=True):
                self._expiry_queue.popleft()
                self._remove(key, client)
                return self._has_room()
            self._expiry_queue.rotate(-1)
        return False

    def _check_expiry(self, now_ms: int, windows_ms: int, *, soon: bool) -> bool:
        """Check the client whose last check is the oldest; returns whether it was removed."""
        key = self._expiry_queue.popleft()
        client = self._clients[key]
        client.mark(now_ms, windows_ms)
        activity = client.activity()
        if activity != client.last_activity or client.in_use(now_ms):
            client.last_activity = activity
            client.last_active_ms = now_ms
        elif not activity or self._may_expire(client, now_ms, soon=soon):
            self._remove(key, client)
            return True
        self._expiry_queue.append(key)
        return False

    def _may_expire(self, client: ClientQuota, now_ms: int, *, soon: bool) -> bool:
        """Whether an idle client may be removed: after EXPIRE_MS, or, if `soon`, once a new one would be in the same
        state.
        """
        idle_ms = now_ms - client.last_active_ms
        if not soon or idle_ms < EXPIRE_SOON_MS:
            return idle_ms >= EXPIRE_MS
        return idle_ms >= self._windows_ms and not any(
            throttle.debt_bytes(now_ms) for throttle in client.throttles()
        )

    def _has_own_entry(self, user: str, client_id: str) -> bool:
        names = self.definitions.names
        return any(names(key, user, client_id) for key in CLIENT_KEYS)

    def _remove(self, key: tuple[str, str, int], client: ClientQuota) -> None:
        del self._clients[key]
        self._names_bytes -= getsizeof(client.user) + getsizeof(client.client_id)
        client.detach()

    def _view(self, throttle: ClientThrottle, broker: int, now_ms: int) -> QuotaView:
        limit, _ = self.definitions.limit(throttle.key, throttle.user, throttle.client_id, lent=self._lent)
        return throttle.view(limit, broker, now_ms)

    def _topic_views(self, now_ms: int) -> Iterator[QuotaView]:
        """Yield a view for each topic with a limit and traffic, by direction; `client_id` is the topic's name."""
        for throttle in self.topics.throttles():
            yield QuotaView(
                "",
                throttle.topic,
                BY_KEY[throttle.key].type,
                0.0,
                throttle.limit_now(),
                throttle.total,
                *throttle.totals(),
                throttle.debt_bytes(now_ms),
            )


def _repay(newcomers: ScheduledLimiter, size: int, now_ms: int) -> None:
    """Give new names back what they have paid first: it was never their use."""
    newcomers.uncounted -= newcomers.pay(size, now_ms)

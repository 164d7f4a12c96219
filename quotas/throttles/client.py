"""All throttles of one client at one broker (KIP-13, KIP-599, the request quota, catch-up reads).

Produce and Fetch bytes are counted for every client; the other throttles are created at their first use. `engine` holds
these objects, and removes them when they are idle.
"""

from dataclasses import dataclass, field

from quotas.definitions.kinds import CATCH_UP, FETCH, MUTATION, PRODUCE
from quotas.throttles.bandwidth import Source, Throttle
from quotas.throttles.figures import ClientThrottle
from quotas.throttles.mutation import MutationQuotas, MutationThrottle
from quotas.throttles.request import RequestQuotas, RequestThrottle


@dataclass(slots=True, eq=False)
class ClientQuota:
    """All throttles of one client at one broker, one for each kind of quota; that of mutations is for all brokers."""

    _source: Source
    user: str
    client_id: str
    broker: int
    _mutation_quotas: MutationQuotas
    _request_quotas: RequestQuotas
    produce: Throttle = field(init=False)
    fetch: Throttle = field(init=False)
    _mutations: MutationThrottle | None = field(default=None, init=False)  # at its first use: few need it
    _requests: RequestThrottle | None = field(default=None, init=False)  # likewise
    _catch_up: Throttle | None = field(default=None, init=False)  # likewise
    _catches_up: bool = field(
        default=False, init=False
    )  # whether it has a limit, at this version of the engine
    _catch_up_version: object = field(default=None, init=False)
    catch_up_lag: int = field(default=0, init=False)  # in records, at this version too
    last_activity: int = field(default=-1, init=False)  # `activity` at the last check for expiry
    last_active_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.produce = Throttle(self._source, PRODUCE, self.user, self.client_id, self.broker)
        self.fetch = Throttle(self._source, FETCH, self.user, self.client_id, self.broker)

    @property
    def mutations(self) -> MutationThrottle:
        """The throttle of the client's partition mutations."""
        if self._mutations is None:
            self._mutations = self._mutation_quotas.client(self.user, self.client_id)
        return self._mutations

    @property
    def requests(self) -> RequestThrottle:
        """The throttle of the client's request time."""
        if self._requests is None:
            self._requests = self._request_quotas.client(self.user, self.client_id, self.broker)
        return self._requests

    def catch_up(self, now_ms: int) -> Throttle | None:
        """Return the throttle of what the client reads behind the log's end; None if it has no limit for that.

        Ask only if any client has such a limit (`Engine.limits_catch_up`).
        """
        source = self._source
        if self._catch_up_version is not source.version:
            self._catch_up_version = source.version
            limit, _ = source.definitions.limit(CATCH_UP.key, self.user, self.client_id)
            self._catches_up = limit is not None
            if limit is not None:
                self.catch_up_lag = source.definitions.catch_up_lag(self.user, self.client_id)
            if self._catch_up is not None:
                self._catch_up.refresh(now_ms)  # without a limit it leaves its limiter
            elif limit is not None:
                self._catch_up = Throttle(source, CATCH_UP, self.user, self.client_id, self.broker)
        return self._catch_up if self._catches_up else None

    def by_kind(self) -> tuple[ClientThrottle | None, ...]:
        """Return the throttle of each kind in the order of CLIENT_KINDS; None before its first use."""
        return self.produce, self.fetch, self._requests, self._mutations, self._catch_up

    def throttles(self) -> list[ClientThrottle]:
        """Return the throttles that have been used."""
        return [throttle for throttle in self.by_kind() if throttle is not None]

    def taken(self) -> tuple[int, ...]:
        """Return the count for each kind of quota (`ClientThrottle.total`), in the order of CLIENT_KINDS.

        Bytes and request time are those at `broker`, since this object was created. Mutations are those at all brokers
        together, since the client's throttle for them was created: it is shared by the client's objects for all brokers
        and removed with the last of them. A kind whose throttle has not been used has 0.
        """
        return tuple(0 if throttle is None else throttle.total for throttle in self.by_kind())

    def rates(self, now_ms: int) -> tuple[float, ...]:
        """Return the rate for each kind of quota, in its unit, in the order of CLIENT_KINDS.

        It is 0 for mutations, which are not counted by broker.
        """
        return tuple(
            0.0 if throttle is None or throttle.kind is MUTATION else throttle.rate(now_ms)
            for throttle in self.by_kind()
        )

    def in_use(self, now_ms: int) -> bool:
        """Whether a channel is attached, or the client owes partition mutations."""
        return any(throttle.in_use(now_ms) for throttle in self.throttles())

    def mark(self, now_ms: int, windows_ms: int) -> None:
        """Store the current counts, from which `rates` are computed. Call it about once a second.

        Args:
            windows_ms: the length of all windows of a quota together.
        """
        for throttle in self.throttles():
            throttle.mark(now_ms, windows_ms)

    def activity(self) -> int:
        """Return a number that changes with every counted byte, mutation or request."""
        return sum(self.taken())

    def detach(self) -> None:
        """Detach the client from the limiters of its quotas, which are removed with their last client."""
        self.produce.detach()
        self.fetch.detach()
        if self._mutations is not None:
            self._mutation_quotas.leave(self._mutations)
            self._mutations = None
        if self._requests is not None:
            self._requests.detach()
            self._requests = None
        if self._catch_up is not None:
            self._catch_up.detach()
            self._catch_up = self._catch_up_version = None

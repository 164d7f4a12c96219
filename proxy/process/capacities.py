"""The capacities of this process: sampled while it divides them, and shown for everyone that asks.

A process by itself divides them, the control process for its workers, and in a fleet the holder for all members: with
keys in several parts, that of the part which has the capacities of the direction. A member that is not this holder asks
it, so that each member's pages are those of the whole fleet.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Final

import msgspec

from proxy.events import Tell
from proxy.explain.capacities import SAMPLE_MS, CapacityWatch, class_text, rows_of, waits
from proxy.explain.documents import CapacitiesDocument, Level, Missing, encode
from proxy.explain.explanation import CAPACITIES_WITHOUT_EFFECT
from proxy.explain.parts import SECONDS
from proxy.metrics.families import Family
from proxy.metrics.series import label
from proxy.process.relay import Relay
from proxy.system.clock import now_ms
from proxy.system.supervisor import Supervisor
from proxy.system.threads import in_turns
from quotas.definitions.classes import Capacity
from quotas.definitions.entities import BucketKey
from quotas.definitions.kinds import BY_KEY, FETCH, PRODUCE, REPLICATION, capacity_key
from quotas.sharing.budgets import limiter_key_of
from quotas.sharing.capacities import CapacityState
from quotas.sharing.lease_values import rate_key
from quotas.sharing.parts import part_of_capacity

if TYPE_CHECKING:
    from proxy.fleet.fleet import Fleet

MARK: Final = b"capacities "  # how a member's question about capacities begins
ASK_SECONDS_MAX: Final = 1.0
_SERIES_SHARE: Final = 8  # one in so many of all series is for classes
_SERIES_PER_CLASS: Final = 3
_UNKNOWN: Final = "the fleet's holder does not say how capacities are divided"
_DIRECTIONS: Final = (PRODUCE.key, FETCH.key)

_LABELS: Final = ("type", "broker")
_CLASS_LABELS: Final = ("type", "broker", "class")
_OF_CAPACITIES: Final = (
    ("capacity_byte_rate", "The capacity in bytes/s; where this process divides it"),
    ("capacity_promised_byte_rate", "What classes have of their promised rates now, in bytes/s"),
    ("capacity_lent_byte_rate", "What classes have beyond their promised rates now, in bytes/s"),
    ("capacity_left_byte_rate", "What no class can use now, in bytes/s"),
    (
        "capacity_shrunk_ratio",
        "Part of its promised rate that each class has; below 1: more is promised than there is",
    ),
    ("capacity_waiting_classes", "Classes that could use more than they have"),
)
_OF_CLASSES: Final = (
    ("class_byte_rate", "What the class may use now, in bytes/s: of its rate, and lent"),
    ("class_lent_byte_rate", "What the class has beyond its promised rate now, in bytes/s"),
    ("class_demand_byte_rate", "What the class could use, at most its ceiling, in bytes/s"),
)


class _Question(msgspec.Struct, frozen=True, array_like=True):
    """A member's question to the holder: for the document; with a quota key, for the level of a class.

    Args:
        bucket: user, client id and group of the class.
        broker: of a class of replication; None for a class of clients.
    """

    key: str = ""
    bucket: tuple[str | None, ...] = (None, None, None)
    window: int = 0
    broker: int | None = None


class CapacityReports:
    """What is known of capacities: of this process if it divides them, else of the fleet's holder.

    Args:
        fleet: this process's membership in a fleet; None if it is not a member.
        name: its name in the fleet.
        series_max: the largest number of metric series of all clients together.
        missing: returns the worker processes that cannot be asked now.
        tell: takes the events.
    """

    def __init__(
        self,
        relay: Relay,
        fleet: "Fleet | None",
        name: str,
        series_max: int,
        missing: Callable[[], tuple[Missing, ...]],
        tell: Tell,
    ) -> None:
        self._relay = relay
        self._fleet = fleet
        self._name = name if fleet is not None else ""
        self._classes_max = series_max // _SERIES_SHARE // _SERIES_PER_CLASS
        self._missing = missing
        self._tell = tell
        self._watch = CapacityWatch()
        self._started = False
        if fleet is not None:
            fleet.respond_with(self._respond, MARK)

    @property
    def _held(self) -> bool:
        """Whether capacities hold in this process, if any are stated: in the topic of quotas they may be for others."""
        engine = self._relay.engine
        return engine.options.policy == "schedule" or not engine.definitions.capacities

    def _part(self, quota_key: str) -> int:
        """Return the part of the keys whose holder divides the capacities of a direction."""
        return part_of_capacity(capacity_key(quota_key), max(1, len(self._relay.capacities)))

    def _divides(self, quota_key: str) -> bool:
        """Whether this process divides the capacities of a direction: it is no member of a fleet, or their holder."""
        return self._fleet is None or self._fleet.holds(self._part(quota_key))

    def _states(self) -> list[CapacityState]:
        capacities = self._relay.capacities
        return [
            state
            for key in _DIRECTIONS
            if capacities and self._divides(key)
            for state in capacities[self._part(key)].states()
            if state.quota_key == key
        ]

    def start(self, supervisor: Supervisor) -> None:
        """Begin to sample, as soon as a capacity is stated."""
        if not self._started:
            self._started = True
            supervisor.run_forever("capacities", self._run)

    async def _run(self) -> None:
        """Sample the division of all capacities once a second, until cancelled."""
        before: list[str] = []
        while True:
            await asyncio.sleep(SAMPLE_MS / 1000)
            divided = [key for key in _DIRECTIONS if self._divides(key)]
            if divided != before:
                self._watch.forget()
                before = divided
            at_ms, states = now_ms(), self._states()
            for event in self._watch.judge(states, at_ms):
                self._tell(event)
            async for _ in in_turns(self._watch.sample(states, at_ms)):
                pass

    async def document(self) -> CapacitiesDocument:
        """Return the document of `/v1/capacities`, as of the holders that divide them."""
        enforcing = self._relay.engine.enforcing
        if not self._held:
            problem = CAPACITIES_WITHOUT_EFFECT
            return CapacitiesDocument(enforcing=enforcing, problem=problem, missing=self._missing())
        parts = dict.fromkeys(map(self._part, _DIRECTIONS))
        found = await asyncio.gather(*map(self._document_of, parts))
        return CapacitiesDocument(
            enforcing=enforcing,
            divided_by=", ".join(dict.fromkeys(one.divided_by for one in found if one.divided_by)),
            problem=next((one.problem for one in found if one.problem), ""),
            capacities=tuple(
                row
                for part, one in zip(parts, found, strict=True)
                for row in one.capacities
                if self._part(row.key) == part
            ),
            missing=self._missing(),
        )

    async def _document_of(self, part: int) -> CapacitiesDocument:
        """Return the document of the holder of a part of the keys."""
        if self._fleet is None or self._fleet.holds(part):
            return self._document()
        content = await self._ask(_Question(), part)
        try:
            return msgspec.json.decode(content, type=CapacitiesDocument)
        except (msgspec.DecodeError, ValueError):
            return CapacitiesDocument(problem=_UNKNOWN)

    async def level(self, key: str, bucket: BucketKey, broker: int | None, window: int) -> Level | None:
        """Return what has kept a class from using more of a capacity over a window.

        None: it has not waited, there is no capacity, or the holder does not say.

        Args:
            key: the quota key.
            broker: of a class of replication; None for a class of clients.
            window: TEN_SECONDS, MINUTE or QUARTER of `proxy.explain.parts`.
        """
        if self._relay.engine.definitions.capacity(key) is None or not self._held:
            return None
        if self._divides(key):
            return self._watch.level(key, bucket, broker, window, now_ms())
        content = await self._ask(_Question(key, tuple(bucket), window, broker), self._part(key))
        try:
            return msgspec.json.decode(content, type=Level | None)
        except (msgspec.DecodeError, ValueError):
            return None

    def _document(self) -> CapacitiesDocument:
        return CapacitiesDocument(divided_by=self._name, capacities=rows_of(self._states()))

    async def _ask(self, question: _Question, part: int) -> bytes:
        """Return the response of the holder of a part; BUSY if there is none."""
        from proxy.fleet.calls import BUSY, NoResponseError

        assert self._fleet is not None, "else this process divides"
        try:
            return await self._fleet.ask(MARK + msgspec.json.encode(question), ASK_SECONDS_MAX, part)
        except NoResponseError:
            return BUSY

    async def _respond(self, content: bytes) -> bytes:
        """Return the response to a member's question, as the holder; BUSY if it is none."""
        from proxy.fleet.calls import BUSY

        try:
            question = msgspec.json.decode(content, type=_Question)
        except (msgspec.DecodeError, ValueError):
            return BUSY
        if not question.key:
            return encode(self._document())
        if len(question.bucket) != len(BucketKey._fields) or question.window not in range(len(SECONDS)):
            return BUSY
        bucket = BucketKey(*question.bucket)
        found = self._watch.level(question.key, bucket, question.broker, question.window, now_ms())
        return msgspec.json.encode(found)

    def families(self) -> Iterator[Family]:
        """Yield the metrics of capacities that this process divides, of their classes, and of its own loans."""
        states = self._states()
        return families(states, self._lent(states), self._classes_max)

    def _lent(self, states: list[CapacityState]) -> dict[str, float]:
        """Return by quota key what is lent to this process, with its workers."""
        found: dict[str, float] = {}
        if self._fleet is None:
            for state in states:
                lent = sum(one.lent for one in state.classes)
                found[state.quota_key] = found.get(state.quota_key, 0.0) + lent
            return found
        capacities: dict[str, Capacity] = self._relay.engine.definitions.capacities
        for key, share in self._fleet.loans().items():
            quota_key = capacity_key(limiter_key_of(rate_key(key))[0])
            if quota_key in capacities:
                found[quota_key] = found.get(quota_key, 0.0) + share * capacities[quota_key].rate
        return found


# ----------------------------------------------------------------------------------------------------
# Metrics.


def families(
    states: Sequence[CapacityState], lent: Mapping[str, float], classes_max: int
) -> Iterator[Family]:
    """Yield the metrics of capacities and of their classes.

    Args:
        states: the capacities that this process divides.
        lent: by quota key what is lent to this process, in bytes/s.
        classes_max: how many classes have series.
    """
    values = [
        (
            (BY_KEY[one.quota_key].type, str(one.broker)),
            (
                one.rate,
                sum(each.rate for each in one.classes),
                sum(each.lent for each in one.classes),
                one.left,
                one.shrunk,
                float(sum(map(waits, one.classes))),
            ),
        )
        for one in states
    ]
    for index, (name, text) in enumerate(_OF_CAPACITIES):
        rows = [(labels, found[index]) for labels, found in values]
        yield Family(f"sluice_{name}", "gauge", text, _LABELS, rows)
    every = (one for state in states for one in state.classes if one.bucket is not None)
    classes = [
        (
            (
                BY_KEY.get(one.quota_key, REPLICATION).type,
                str(one.broker),
                label(class_text(one.bucket, one.quota_key)),
            ),
            (one.rate + one.lent, one.lent, one.demand),
        )
        for one in nlargest(classes_max, every, key=lambda one: one.demand)
    ]
    for index, (name, text) in enumerate(_OF_CLASSES):
        of_classes = [(names, found[index]) for names, found in classes]
        yield Family(f"sluice_{name}", "gauge", text, _CLASS_LABELS, of_classes)
    text = "What this process's classes may use beyond their promised rates now, in bytes/s"
    own = [((BY_KEY[key].type,), rate) for key, rate in sorted(lent.items())]
    yield Family("sluice_borrowed_byte_rate", "gauge", text, ("type",), own)

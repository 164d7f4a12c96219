"""Quotas in force against a recommendation from a new recording: what has drifted, and what to set instead. Pure.

Judged are the byte rates of the entities that are clients of the recording (`--by`), and of their default. A client
*should have* what is recommended for it; one without an override the first candidate that is at least its need with
headroom, and where a capacity is stated no more than the recommended default. Each quota is one of:

- too tight: it is less than the need, so that its clients would have waited;
- too wide: it is more than `wide` times what the client should have, or more than the stated capacity allows it;
- unused: its client has sent nothing in the recording;
- new: there is none, and the recording shows that it is needed: a client that the default throttles, or no default;
- unchanged.

No quota changes by less than `change`, so that a quota that was set by this does not change again from one recording to
the next. The two bounds of a quota are far apart for the same reason: the need, and `wide` times more than that.
A change is held back, and named, if its confidence is too low, if it lowers a quota after less than a day, or if it
removes a quota after less than `unused_days`.

Not judged, and left alone: capacities, groups and their members, entries with times, quotas of topics and addresses,
every other quota key, entities of which a recording by this `--by` says nothing, and quotas with a ceiling or an
exemption, which use more than their rate.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, get_args

from commandline.amounts import rate
from offline.advice.explain import DAY_S, HOUR_S, KEYS
from offline.advice.limits import DEFAULT_MIN, Client, client_entity, default_entity
from offline.options import GRADES, By, CompareOptions, Goal
from quotas.definitions.alterations import Quotas, text_of
from quotas.definitions.definitions import Definitions, candidates, keys_of
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.kinds import CEILINGS, EXEMPT

Drift = Literal["too tight", "new", "too wide", "unused", "unchanged"]
_ORDER: Final[tuple[Drift, ...]] = get_args(Drift)


class Need(NamedTuple):
    """What one client needs in one direction, by the table `recommend/needs`, in bytes/s.

    Args:
        need: infinite if every quota that was tried throttles the client.
        quota: what the recommendation gives it: its override, or the default.
    """

    need: float
    quota: float


class Advised(NamedTuple):
    """A recommended quota in bytes/s, and its confidence as `explain.confidence` returns it."""

    value: float
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A recommendation in one direction.

    Attributes:
        ladder: the candidates, in bytes/s, ascending.
        default: the recommended default; None if no client was recorded in this direction.
    """

    ladder: Sequence[float] = ()
    needs: Mapping[Client, Need]
    default: Advised | None = None
    overrides: Mapping[Client, Advised]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """What `recommend` has made of a recording.

    Attributes:
        recorded_s: the recorded time, in seconds.
        confidence: the lowest confidence of all of it.
        advice: by direction, produce or fetch.
    """

    by: By
    goal: Goal
    recorded_s: int
    confidence: str
    advice: Mapping[str, Advice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One quota, in force or missing, and what the recording says of it; rates are in bytes/s.

    Attributes:
        in_force: None if the entity has no such quota.
        need: what its client needs; None for a default, an unused quota, and if no quota that was tried is enough.
        proposed: what to set; None to remove the quota, and where nothing changes.
        held_back: why the change is not proposed; "" if it is.
    """

    entity: Entity
    key: str
    drift: Drift
    in_force: float | None
    need: float | None = None
    proposed: float | None = None
    reason: str = ""
    held_back: str = ""

    @property
    def changes(self) -> bool:
        """Whether a change is proposed."""
        return self.drift != "unchanged" and not self.held_back


class NotJudged(NamedTuple):
    """A quota in force of which the recording says nothing, and why."""

    entity: Entity
    key: str
    why: str


class Comparison(NamedTuple):
    """Every quota in force, and those that are missing: judged, or not."""

    judged: Sequence[Judged]
    not_judged: Sequence[NotJudged]

    def wanted(self, current: Quotas) -> Quotas:
        """Return the entities that change, each with all limits that it should have then; none: it is removed."""
        found: dict[Entity, dict[str, float]] = {}
        for one in self.judged:
            if not one.changes:
                continue
            values = found.setdefault(one.entity, dict(current.get(one.entity, {})))
            if one.proposed is None:
                del values[one.key]
            else:
                values[one.key] = one.proposed
        return found


def compare(current: Quotas, found: Recommended, options: CompareOptions) -> Comparison:
    """Compare the quotas in force with a recommendation."""
    judged: list[Judged] = []
    not_judged = list(_not_judged(current, found.by))
    for direction in KEYS:
        way = _Way(current, found, options, direction)
        judged += way.judge()
        not_judged += way.overruled
    judged.sort(key=lambda one: (_ORDER.index(one.drift), text_of(one.entity), one.key))
    return Comparison(judged, not_judged)


def _not_judged(current: Quotas, by: By) -> Iterator[NotJudged]:
    for entity, values in current.items():
        whole = _left_alone(entity, values, by)
        for key in values:
            why = whole or _key_left_alone(key, values)
            if why:
                yield NotJudged(entity, key, why)


def _left_alone(entity: Entity, values: Mapping[str, float], by: By) -> str:
    """Return why an entity is not judged; "" if it is."""
    if not values.keys() <= set(
        keys_of(entity)
    ):  # brokers may have more; a file of changes could not keep it
        return "an entity with a key that is not known here"
    if entity.capacity is not None:
        return "a capacity is stated, not measured"
    if entity.when is not None:
        return "an entry that holds at certain times"
    if entity.group is not None:
        return "a group: the recording has clients, and no groups"
    if entity.topic is not None or entity.ip is not None:
        return "a quota of a topic or an address: the recording has clients"
    if entity == default_entity(by):
        return ""
    if (
        DEFAULT in entity[:2]
        or client_entity(str(entity.user or ""), str(entity.client_id or ""), by) != entity
    ):
        return f"an entity that is no client of a recording by {by}"
    return ""


def _key_left_alone(key: str, values: Mapping[str, float]) -> str:
    """Return why a quota key of an entity is not judged; "" if it is."""
    if key not in KEYS.values():
        return "no quota of bytes: the recording recommends byte rates"
    if EXEMPT in values or CEILINGS[key] in values:
        return "a quota with a ceiling or an exemption, whose clients use more than its rate"
    return ""


class _Way:
    """Judges the quotas of one direction, produce or fetch.

    Attributes:
        overruled: the clients' own quotas that apply to no request, since another entity goes before them.
    """

    def __init__(self, current: Quotas, found: Recommended, options: CompareOptions, direction: str) -> None:
        self.overruled: list[NotJudged] = []
        self._current = current
        known = {
            entity: {key: value for key, value in values.items() if key in keys_of(entity)}
            for entity, values in current.items()
        }
        # Entries with times hold from the first call of `elapse` on: here none does.
        self._definitions = Definitions(known)
        self._found = found
        self._options = options
        self._direction = direction
        self._key = KEYS[direction]
        self._advice = found.advice[direction]
        self._capacity = found.goal.capacity(direction)
        self._default = default_entity(found.by)

    def judge(self) -> Iterator[Judged]:
        """Yield the judgement on each quota in force, and on those that are missing."""
        governing = {client: self._governing(client) for client in self._advice.needs}
        covered = [client for client, entity in governing.items() if entity in (None, self._default)]
        default = self._judge_default(covered)
        after = self._limit(self._default)
        if default is not None:
            yield default
            after = default.proposed if default.changes else after
        for entity, values in self._current.items():
            if self._key not in values or entity == self._default or not self._may_judge(entity):
                continue
            client = (str(entity.user or ""), str(entity.client_id or ""))
            before = governing.get(client, entity)
            if before == entity:
                yield self._judge_own(entity, values[self._key], client)
            elif before is not None:
                self.overruled.append(NotJudged(entity, self._key, f"{text_of(before)} goes before it"))
        for client in covered:
            missing = self._missing(client, math.inf if after is None else after)
            if missing is not None:
                yield missing

    def _may_judge(self, entity: Entity) -> bool:
        values = self._current.get(entity, {})
        return not (_left_alone(entity, values, self._found.by) or _key_left_alone(self._key, values))

    def _limit(self, entity: Entity) -> float | None:
        return self._current.get(entity, {}).get(self._key)

    def _governing(self, client: Client) -> Entity | None:
        """Return the entity whose quota limits a client now; None without one."""
        found = candidates(self._definitions, self._key, *client)
        return next((one.entity for one in found if one.decides), None)

    def _judge_own(self, entity: Entity, limit: float, client: Client) -> Judged:
        advice, change = self._advice, self._options.change
        judged = Judged(entity=entity, key=self._key, drift="unchanged", in_force=limit)
        need = advice.needs.get(client)
        if need is None:
            reason = f"no {self._direction} request in {recorded(self._found.recorded_s)}"
            return self._held(replace(judged, drift="unused", reason=reason), advice.default)
        judged = replace(judged, need=need.need if math.isfinite(need.need) else None)
        words, wanted = self._should_have(client, need)
        advised = advice.overrides.get(client, advice.default)
        if limit < min(need.need, wanted) and wanted >= limit * (1 + change):
            reason = f"its requests would have waited; {words}"
            return self._held(replace(judged, drift="too tight", proposed=wanted, reason=reason), advised)
        if self._too_wide(limit, wanted, need.need):
            reason = f"{limit / wanted:.1f} times what it should have; {words}"
            return self._held(replace(judged, drift="too wide", proposed=wanted, reason=reason), advised)
        return replace(judged, reason=words if limit < need.need else "")

    def _should_have(self, client: Client, need: Need) -> tuple[str, float]:
        """Return a client's need in words, and the quota that it should have."""
        override = self._advice.overrides.get(client)
        if override is not None:
            wanted = override.value
        else:
            least = max(need.need * self._found.goal.headroom, DEFAULT_MIN) - 1e-6
            wanted = next((one for one in self._advice.ladder if one >= least), self._advice.ladder[-1])
            if self._capacity is not None:
                wanted = min(wanted, need.quota)
        if math.isinf(need.need):
            words = (
                f"it needs more than any quota that was tried, the largest {rate(self._advice.ladder[-1])}"
            )
        else:
            words = f"it needs {rate(need.need)}"
        if self._capacity is not None and wanted < need.need:
            words += f", and the stated capacity allows {rate(wanted)}"
        return words, wanted

    def _too_wide(self, limit: float, wanted: float, need: float) -> bool:
        if math.isinf(need) and wanted >= self._advice.ladder[-1]:
            return False  # how much more than the largest candidate it needs is not known
        return limit > wanted * (self._options.wide if wanted >= need else 1 + self._options.change)

    def _judge_default(self, covered: Sequence[Client]) -> Judged | None:
        """Return the judgement on the default; None if there is none to judge.

        Args:
            covered: the clients that only the default limits.
        """
        limit, advised = self._limit(self._default), self._advice.default
        if not self._may_judge(self._default):
            return None
        judged = Judged(entity=self._default, key=self._key, drift="unchanged", in_force=limit)
        if advised is None:  # it stays, for clients to come
            reason = f"no {self._direction} request in {recorded(self._found.recorded_s)}"
            return None if limit is None else replace(judged, reason=reason)
        judged = replace(judged, proposed=advised.value)
        if limit is None:
            reason = "no default is in force: a client without a quota of its own has no limit"
            return self._held(replace(judged, drift="new", reason=reason), advised)
        change = 1 + self._options.change
        counted = [self._advice.needs[name].need for name in covered if name not in self._advice.overrides]
        waiting = sum(need > limit for need in counted)
        clients = f"{waiting:,} of {len(counted):,} clients that it covers would have waited"
        limited = self._capacity is not None and any(need > advised.value for need in counted)
        share = 0.0 if self._capacity is not None else self._found.goal.throttled_share
        allowed = int(share * len(counted) + 1e-9)
        if waiting > allowed and advised.value > limit and advised.value >= limit * change:
            return self._held(replace(judged, drift="too tight", reason=clients), advised)
        if limit > advised.value * (change if limited else self._options.wide):
            over = "what the stated capacity allows" if limited else "the recommended default"
            reason = f"{limit / advised.value:.1f} times {over}"
            return self._held(replace(judged, drift="too wide", reason=reason), advised)
        return replace(judged, proposed=None, reason=clients if waiting else "")

    def _missing(self, client: Client, default: float) -> Judged | None:
        """Return the quota that a client without one of its own needs; None if the default is enough."""
        override, need = self._advice.overrides.get(client), self._advice.needs[client]
        if override is None or need.need <= default or override.value < default * (1 + self._options.change):
            return None
        entity = client_entity(*client, self._found.by)
        if entity is None or _key_left_alone(self._key, self._current.get(entity, {})):
            return None
        words, _ = self._should_have(client, need)
        judged = Judged(
            entity=entity,
            key=self._key,
            drift="new",
            in_force=None,
            need=need.need if math.isfinite(need.need) else None,
            proposed=override.value,
            reason=f"only the default of {rate(default)} covers it; {words}",
        )
        return self._held(judged, override)

    def _held(self, judged: Judged, advised: Advised | None) -> Judged:
        """Return the judgement, with the reason why its change is held back if it is."""
        grade, _, grounds = (self._found.confidence if advised is None else advised.confidence).partition(":")
        least, recorded_s = self._options.confidence, self._found.recorded_s
        why = ""
        if grade not in GRADES or GRADES.index(grade) > GRADES.index(least):
            why = f"confidence {grade or 'low'}:{grounds or ' nothing was recorded'}"
        elif judged.drift == "unused" and recorded_s < self._options.unused_days * DAY_S:
            why = f"less than {self._options.unused_days:g} days recorded (--unused-days)"
        elif judged.drift in ("too wide", "unused") and recorded_s < DAY_S and least != GRADES[-1]:
            why = "less than a day recorded, and only a whole day shows the busiest hour"
        return replace(judged, held_back=why)


def recorded(seconds: int) -> str:
    """Return a recorded time as text.

    >>> recorded(7 * 86_400), recorded(5400), recorded(40)
    ('7.0 days', '1.5 hours', '40 s')
    """
    if seconds >= DAY_S:
        return f"{seconds / DAY_S:.1f} days"
    return f"{seconds / HOUR_S:.1f} hours" if seconds >= HOUR_S else f"{seconds} s"

"""Explains a recommendation in sentences: value, reason, expected effect and confidence. Pure.

The confidence follows from the recorded time and clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from commandline.amounts import duration, rate
from offline.advice.forecast import Forecast
from offline.advice.limits import Client, Limits, Override, client_name
from offline.advice.mutations import MutationQuota, ReplicationThrottle
from offline.options import GRADES, Goal
from quotas.definitions.kinds import FETCH, PRODUCE

HOUR_S: Final = 3600
DAY_S: Final = 86_400
WEEK_S: Final = 7 * DAY_S
CLIENTS_FEW: Final = 20


def confidence(*, seconds: int, clients: int, sample: float = 1.0, sources: Sequence[str] = ()) -> str:
    """Return how reliable a recommendation is: `high`, `medium` or `low`, with the reason.

    Args:
        seconds: the recorded time.
        clients: the number of clients.
        sample: the share of the connections that was captured, 0 to 1.
        sources: what the captures cannot know, each as "<grade>: <grounds>" (`protocol.capture.SOURCE_KEY`).

    >>> confidence(seconds=8 * 86_400, clients=500)
    'high: 8.0 days of 500 clients'
    >>> confidence(seconds=1800, clients=500, sample=0.1)
    'low: 30 minutes recorded, so no daily peak; a tenth of a sample or less, so loads are estimates'
    >>> confidence(seconds=8 * 86_400, clients=500, sources=["medium: from a packet capture"])
    'medium: from a packet capture'
    """
    doubts: list[tuple[int, str]] = []
    if seconds < DAY_S:
        length = f"{seconds} s"
        if seconds >= 2 * HOUR_S:
            length = f"{seconds / HOUR_S:.0f} hours"
        elif seconds >= 300:
            length = f"{seconds / 60:.0f} minutes"
        doubts.append((2 if seconds < HOUR_S else 1, f"{length} recorded, so no daily peak"))
    elif seconds < WEEK_S:
        doubts.append((1, f"{seconds / DAY_S:.1f} days recorded, so no weekly peak"))
    if clients < CLIENTS_FEW:
        few = "1 client" if clients == 1 else f"{clients} clients"
        doubts.append((1, f"{few}, so each is a large share"))
    if sample < 1:
        words = "a tenth of a sample or less" if sample <= 0.1 else f"a sample of {sample:.2f}"
        doubts.append((2, f"{words}, so loads are estimates"))
    doubts += map(_source_doubt, sources)
    grade = max((weight for weight, _ in doubts), default=0)
    if not doubts:
        return f"high: {seconds / DAY_S:.1f} days of {clients} clients"
    return f"{GRADES[grade]}: {'; '.join(text for _, text in doubts)}"


def _source_doubt(source: str) -> tuple[int, str]:
    """Return the number of a source's grade, the lowest if it names none, and its grounds."""
    grade, _, grounds = source.partition(": ")
    if grade in GRADES and grounds:
        return GRADES.index(grade), grounds
    return len(GRADES) - 1, source


def lowest(confidences: Sequence[str]) -> str:
    """Return the lowest confidence, the first of equal ones; "" if there is none.

    >>> lowest(["high: 8.0 days of 500 clients", "medium: 3 clients, so each is a large share"])
    'medium: 3 clients, so each is a large share'
    """
    return max(confidences, key=lambda text: GRADES.index(text.partition(":")[0]), default="")


KEYS: Final = {kind.name: kind.key for kind in (PRODUCE, FETCH)}
DEFAULT_NAME: Final = "<default>"
_NAMED_MAX: Final = 3  # clients in one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One recommended limit with its reason and effect, as a row of the table `recommend/recommendations`.

    Attributes:
        value: the limit; below 0 if no limit is recommended.
        peak_before, peak_after: the load of the busiest broker in its busiest ten seconds, in bytes/s, as recorded
            and with the recommendation; below 0 if unknown.
    """

    kind: str
    user: str = ""
    client_id: str = ""
    key: str
    value: float
    reason: str
    effect: str
    confidence: str
    clients_throttled: int = -1
    throttle_ms: int = -1
    peak_before: float = -1.0
    peak_after: float = -1.0

    @property
    def is_quota(self) -> bool:
        """Whether it belongs in a quotas file: it is of an entity, and there is a value."""
        return self.kind in ("default", "override", "capacity") and self.value > 0

    def text(self) -> str:
        """The recommendation as text for a terminal."""
        who = " ".join(filter(None, (self.user, self.client_id))) or self.kind
        value = f"{self.value:,.12g}" if self.value >= 0 else "none"
        return f"{who} {self.key} = {value}: {self.reason}. {self.effect}. Confidence {self.confidence}."


def not_in_quotas_file(lines: Sequence[Line]) -> list[str]:
    """Return as "key = value" the recommendations that do not belong in a quotas file, such as broker settings."""
    return [f"{line.key} = {line.value:,g}" for line in lines if line.value > 0 and not line.is_quota]


def amount(value: float) -> str:
    """Format a recommended rate in bytes/s; "none" for a value below 0.

    >>> amount(2_500_000.0), amount(-1.0)
    ('2.5 MB/s', 'none')
    """
    return rate(value) if value >= 0 else "none"


def settings_note(policy: str, scope: str) -> str:
    """Return a note on the policy and scope that the quotas are for, since others need other quotas.

    >>> settings_note("kip13", "broker")
    'for policy "kip13" and scope "broker": each quota holds at each broker by itself'
    """
    return f'for policy "{policy}" and scope "{scope}": each quota holds {scope_note(gateway=scope == "cluster")}'


def scope_note(*, gateway: bool) -> str:
    """Return in words where one budget counts: at each broker separately, or at all brokers together."""
    return "over all brokers together" if gateway else "at each broker by itself"


@dataclass(frozen=True, slots=True)
class Tried:
    """The quotas in bytes/s (candidates) that were tried in one direction, produce or fetch, and the goal.

    Attributes:
        gateway: whether the loads are those of all brokers together.
        sources: what the captures cannot know (`confidence`).
    """

    direction: str
    candidates: Sequence[float]
    goal: Goal
    gateway: bool = False
    sources: Sequence[str] = ()

    @property
    def within(self) -> str:
        """The capacity that the operator has stated, in words."""
        every = "all brokers together" if self.gateway else "every broker"
        return f"{every} within {rate(self.goal.capacity(self.direction) or 0.0)}"


def direction_lines(
    tried: Tried,
    limit: Limits,
    waits: Mapping[Client, int],
    peak_before: float,
    seconds: int,
    forecasts: Mapping[Client, Forecast] | None = None,
) -> list[Line]:
    """Return the lines on the recommended default and overrides of one direction, produce or fetch.

    Args:
        limit: the recommendation.
        waits: each client's throttle time with the recommendation, in ms.
        peak_before: the load of the busiest broker in its busiest ten seconds as recorded, in bytes/s.
        seconds: the recorded time.
        forecasts: what clients will need, where enough days were recorded to say.
    """
    said = forecasts or {}
    candidates, key = tried.candidates, KEYS[tried.direction]
    sure = confidence(seconds=seconds, clients=len(waits), sample=tried.goal.sample, sources=tried.sources)
    lines = [
        Line(
            kind="default",
            user=DEFAULT_NAME,
            client_id=DEFAULT_NAME,
            key=key,
            value=candidates[limit.default],
            reason=_why(tried, limit) + _without_override(tried.direction, limit),
            effect=_what(limit, sum(waits.values()), peak_before, gateway=tried.gateway),
            confidence=sure + _how_many_sure(said),
            clients_throttled=len(limit.throttled),
            throttle_ms=sum(waits.values()),
            peak_before=peak_before,
            peak_after=limit.peak,
        )
    ]
    for override in limit.overrides:
        user, client_id = name = override.client
        lines.append(
            Line(
                kind="override",
                user=user,
                client_id=client_id,
                key=key,
                value=candidates[override.index],
                reason=_why_override(tried, override) + _forecast_note(tried, said.get(name)),
                effect=f"its connections wait for {duration(waits[name] / 1000)} together, in {duration(seconds)}"
                if waits[name]
                else "not throttled",
                confidence=said[name].confidence if name in said else sure,
                clients_throttled=int(name in limit.throttled),
                throttle_ms=waits[name],
            )
        )
    return lines


def _how_many_sure(forecasts: Mapping[Client, Forecast]) -> str:
    """Return a text on the confidence of all clients' forecasts; "" without any."""
    if not forecasts:
        return ""
    sure = sum(forecast.grade == "high" for forecast in forecasts.values())
    return f"; {sure:,} of {_clients(len(forecasts))} have a forecast that is high"


def _forecast_note(tried: Tried, found: Forecast | None) -> str:
    """Return a text on what a client is expected to need; "" without a forecast."""
    if found is None:
        return ""
    days = tried.goal.horizon
    return (
        f"; of the next {days} days' needs {rate(found.expected)} is expected to be the highest"
        if days > 1
        else (f"; {rate(found.expected)} is expected on the next day")
    )


def _why(tried: Tried, limit: Limits) -> str:
    """Return the reason of the default as text, which begins with its bound."""
    own = len(limit.overrides)
    clients = _clients(limit.counted) + (f" ({own:,} with an override aside)" if own else "")
    share = f"a share of {tried.goal.throttled_share:.0%}"
    unstated = "" if tried.goal.capacity(tried.direction) is not None else "; no capacity was stated"
    match limit.bound:
        case "need":
            enough = _enough(tried, limit.least, limit.default)
            return f"bound by need: the smallest quota tried that throttles none of {clients} is {enough}{unstated}"
        case "request":
            return (
                f"bound by the size of a request: {clients} would do with less, but a smaller default would throttle "
                f"a client for one request of 1 MiB{unstated}"
            )
        case "goal":
            return (
                f"bound by the goal: at most {limit.allowed:,} of {clients} may be throttled ({share}), and each "
                f"smaller quota tried throttles more{unstated}"
            )
        case "ladder":
            more = _more_than_tried(tried.direction, limit.beyond)
            return f"bound by the ladder: the largest quota tried, and {more}"
        case "capacity":
            if not limit.fits:
                return f"bound by capacity: the smallest quota tried, and not even this keeps {tried.within}"
            wanted = rate(tried.candidates[limit.wanted])
            return f"bound by capacity: only this keeps {tried.within}; by the clients' needs it would be {wanted}"


def _why_override(tried: Tried, override: Override) -> str:
    if override.bound == "need":
        return f"bound by need: it needs {_enough(tried, override.least, override.index)}"
    if override.bound == "ladder":
        return f"bound by the ladder: the largest quota tried, and {_more_than_tried(tried.direction, 1)}"
    needs = "more than any quota tried"
    if override.need < len(tried.candidates):
        needs = rate(tried.candidates[override.need])
    return f"bound by capacity: it needs {needs}, and only this keeps {tried.within}"


def _enough(tried: Tried, least: int, taken: int) -> str:
    """Return a text on a need and its headroom, with the reason if the quota is larger."""
    need, quota = tried.candidates[least], tried.candidates[taken]
    asked = need * tried.goal.headroom
    said = rate(need) + (f", with headroom {rate(asked)}" if tried.goal.headroom > 1 else "")
    return said + (f"; the next quota tried is {rate(quota)}" if rate(quota) != rate(asked) else "")


def _more_than_tried(direction: str, clients: int, than: str = "") -> str:
    need = "needs" if clients == 1 else "need"
    return f"{_clients(clients)} {need} more{than}, with headroom; try larger ones with --{direction}-quotas"


def _without_override(direction: str, limit: Limits) -> str:
    """Return a text that names the heavy clients without an override, with the reason; "" if there are none."""
    said = ""
    if limit.no_capacity:
        need = "needs" if len(limit.no_capacity) == 1 else "need"
        said += f"; {_named(limit.no_capacity)} {need} more, and the stated capacity allows no more than the default"
    if limit.beyond and limit.bound not in ("ladder", "capacity"):
        said += f"; {_more_than_tried(direction, limit.beyond, ' than any quota tried')}"
    throttled = set(limit.throttled)
    over = tuple(name for name in limit.unnameable if name in throttled)
    covered = tuple(name for name in limit.unnameable if name not in throttled)
    if over:
        need, it = ("needs", "it") if len(over) == 1 else ("need", "them")
        said += f"; {_named(over)} {need} more, and cannot have an override because no quota can name {it}"
    if covered:
        it = "it" if len(covered) == 1 else "them"
        said += f"; the default must be sufficient for {_named(covered)}, because no quota can name {it}"
    return said


def _named(clients: Sequence[Client]) -> str:
    names = ", ".join(client_name(*name) for name in clients[:_NAMED_MAX])
    more = f" and {len(clients) - _NAMED_MAX:,} more" if len(clients) > _NAMED_MAX else ""
    return f"{_clients(len(clients))} ({names}{more})"


def _what(limit: Limits, throttle_ms: int, peak_before: float, *, gateway: bool) -> str:
    who = f"{_named(limit.throttled)} throttled" if limit.throttled else "no client throttled"
    where = "all brokers together" if gateway else "busiest broker"
    over = f"; {limit.excess:,} more than may be" if limit.excess else ""
    return (
        f"{who}{over}; connections wait for {duration(throttle_ms / 1000)} together; "
        f"{where} {rate(peak_before)} before, {rate(limit.peak)} after"
    )


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"


def mutation_lines(quota: MutationQuota | None, clients: int, sure: str) -> list[Line]:
    """Return the lines on partition mutation quotas (KIP-599): for all clients together, and the default for each.

    Args:
        quota: the recommended quotas; None without mutations.
        clients: the number of clients with mutations.
        sure: the confidence, as `confidence` returns it.
    """
    if quota is None:
        return []
    reason = f"{_clients(clients)} asked for partition mutations; this would have rejected nothing"
    return [
        Line(
            kind="mutation",
            key=key,
            value=value,
            reason=reason,
            effect=effect,
            confidence=sure,
            clients_throttled=0,
        )
        for key, value, effect in (
            ("partition_mutations_rate", quota.rate, "all clients together, steadily"),
            ("partition_mutations_burst", quota.burst, "all clients together, at once"),
            ("controller_mutation_rate", quota.client_rate, "each client; eleven times as much at once"),
        )
    ]


def replication_lines(throttle: ReplicationThrottle, goal: Goal, sure: str) -> list[Line]:
    """Return the lines on the replication throttle during a reassignment (KIP-73); `sure` as of `confidence`."""
    bounds = (
        f"IN < T < N - IN / R: {rate(throttle.lower)} < T < {rate(throttle.upper)}, "
        f"R = {goal.replication_factor:g}"
    )
    if throttle.rate is None:
        return [
            Line(
                kind="replication",
                key="replication.throttled.rate",
                value=-1.0,
                reason=f"{bounds}: no T lies between; the network is too slow for what is written",
                effect="a move at this time would never end, or starve the clients",
                confidence=sure,
            )
        ]
    return [
        Line(
            kind="replication",
            key=key,
            value=throttle.rate,
            reason=f"{bounds}; half-way between",
            effect=f"moves progress at {rate(throttle.rate - throttle.lower)} even in the busiest minute",
            confidence=sure,
        )
        for key in ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    ]


def sampled_line(kind: str, key: str, goal: Goal, sure: str, peak_before: float = -1.0) -> Line:
    """Return a line without a value: a capture of only a sample of the connections gives no recommendation."""
    name = DEFAULT_NAME if kind == "default" else ""
    load = f"; busiest load {rate(peak_before)}, scaled up" if peak_before >= 0 else ""
    return Line(
        kind=kind,
        user=name,
        client_id=name,
        key=key,
        value=-1.0,
        reason=(
            f"none: only {goal.sample:.3g} of the connections were captured, so of a client with several connections "
            "only some; what it asks for as a whole is not known"
        ),
        effect=f"nothing is changed{load}",
        confidence=sure,
        peak_before=peak_before,
        peak_after=peak_before,
    )

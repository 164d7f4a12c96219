"""The facts that members of a fleet tell of themselves, and in which of them they differ although they must not; pure.

A change reaches the members one after the other: quotas in a topic within a second, a changed file as soon as it is
copied to each member. So members *disagree* only if they have differed for `LASTS_MS`, and the fact of one of them has
not changed for that time: while quotas are altered continuously, the members' digests always differ for a moment.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from proxy.config import AdminOptions, FleetOptions, QuotaSettings, ReassignmentSettings
from proxy.config.options import LOOPBACK_HOSTS, WILDCARDS
from proxy.fleet.messages import FACT_BYTES_MAX, Facts, View
from proxy.system.errors import sluice_version
from quotas.definitions.definitions import Definitions
from quotas.options import EngineOptions
from quotas.sharing.lease_values import DEFAULT_KEY, LesseeId
from quotas.sharing.lessee import Lessee
from quotas.sharing.parts import Parts

QUOTAS: Final = "quotas"
DIGEST: Final = "quotas_digest"
ENDED: Final = "ended"  # the runs of the holders that a member has seen end, hexadecimal
PART: Final = "part"  # for which part of the keys a connection is, and of how many, if there are several
LISTENS: Final = "listens"  # the port that a member has bound, if it may be the holder


def facts_of(
    settings: QuotaSettings,
    reassignment: ReassignmentSettings,
    members_max: int,
    options: EngineOptions,
    definitions: Definitions,
) -> Facts:
    """Return the facts of this member that must be equal in all members.

    Args:
        settings, reassignment: the settings of the store and of the journal, which a reload does not change.
        members_max: `fleet.members_max`.
        options: the engine's options in force.
        definitions: the quotas in force; the facts are their number and their digest, and the terms of replication.
    """
    store = f"topic {settings.topic}" if settings.store == "topic" else settings.store
    return {
        "version": sluice_version(),
        "members_max": str(members_max),
        "scope": options.scope,
        "policy": options.policy,
        "mode": options.mode,
        "windows": f"{options.window_samples} of {options.window_seconds:g} s",
        "burst_seconds": f"{options.burst_seconds:g}",
        "partition_mutations": _mutations(options),
        "store": store[:FACT_BYTES_MAX],
        "journal": _journal(reassignment),
        "replication": _replication(definitions),
        QUOTAS: str(len(definitions)),
        DIGEST: definitions.digest,
    }


def part_of_connection(part: int, parts: int) -> Facts:
    """Return the fact that says for which part of the keys a connection is; none if there is one part.

    >>> part_of_connection(3, 8), part_of_connection(0, 1)
    ({'part': '3 of 8'}, {})
    """
    return {PART: f"{part} of {parts}"} if parts > 1 else {}


def addresses_of(fleet: FleetOptions, admin: AdminOptions) -> Facts:
    """Return the addresses of a member, as facts that may differ between members.

    Args:
        admin: the options of its admin port. A loopback address is left out, unless the other members reach this one
            on loopback too.
    """
    own = fleet.own_address
    found = {} if own is None else {"address": str(own)}
    if admin.bind is None:
        return found
    host = admin.bind.host
    if host in WILDCARDS:
        host = fleet.own_name if own is None else own.host
    if host not in LOOPBACK_HOSTS or (own is not None and own.host in LOOPBACK_HOSTS):
        found["admin"] = f"{admin.scheme}://{admin.bind._replace(host=host)}"
    return {name: value[:FACT_BYTES_MAX] for name, value in found.items()}


def _journal(reassignment: ReassignmentSettings) -> str:
    if not reassignment.batches:
        return "none"
    # A directory may be mounted elsewhere at each member.
    return f"topic {reassignment.journal_topic}"[:FACT_BYTES_MAX] if reassignment.in_topic else "file"


def _replication(definitions: Definitions) -> str:
    """Return the terms on which replication shares capacities: the holder divides by its own."""
    found = (
        f"{key.partition('.')[0]} {terms.rate:g} to {terms.ceiling:g} B/s, weight {terms.weight:g}"
        for key, terms in definitions.replication.items()
        if not terms.exempt
    )
    return ", ".join(found) or "none"


def _mutations(options: EngineOptions) -> str:
    rate, burst = options.partition_mutations_rate, options.partition_mutations_burst
    if rate is None:
        return "unlimited"
    return f"{rate:g}/s" if burst is None else f"{rate:g}/s, {burst:g} at once"


LASTS_MS: Final = 5000
TWICE_SECONDS: Final = 120  # two processes of one name for longer are no rolling upgrade
_NAMES_SHOWN_MAX: Final = 8
# Facts that are to be the same in all members, and how they are called for people.
_SAME: Final = {
    "version": "the version of Sluice differs",
    "members_max": "members_max differs",
    "scope": "the scope of quotas differs",
    "policy": "the policy differs",
    "mode": "the mode differs",
    "windows": "the windows differ",
    "burst_seconds": "the seconds of burst differ",
    "partition_mutations": "the partition mutations of all clients differ",
    "store": "the store of quotas differs",
    "journal": "the reassignment journal differs",
    "replication": "the terms of replication in a capacity differ",
    DIGEST: "the quotas differ",
}


class Disagreements:
    """Finds the settings in which members of the fleet differ for longer than a change takes to reach all of them.

    Args:
        lasts_ms: the time in ms after which a difference is a disagreement.

    Attributes:
        lasting: the present disagreements: the name of the fact, and a sentence about it.
    """

    def __init__(self, lasts_ms: int = LASTS_MS) -> None:
        self._lasts_ms = lasts_ms
        self.lasting: Mapping[str, str] = {}
        self._said: dict[tuple[LesseeId, str], tuple[str, int]] = {}  # what, and since when
        self._since: dict[str, int] = {}

    def observe(self, view: View, now_ms: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Compare the members in a view of the holder.

        Returns: the disagreements that have begun, and those that have ended; both in the form of `lasting`.
        """
        self._said = {
            (member.lessee, fact): self._since_when(member.lessee, fact, value, now_ms)
            for member in view.members
            for fact, value in member.facts.items()
        }
        found = differences((member.lessee.name, member.facts) for member in view.members)
        self._since = {fact: self._since.get(fact, now_ms) for fact in found}
        lasting = {fact: text for fact, text in found.items() if self._lasts(fact, now_ms)}
        twice = "two processes are called {!r}: each needs a name of its own"
        lasting |= {f"name {name}": twice.format(name) for name in _twice(view)}
        before, self.lasting = self.lasting, lasting
        return (
            {fact: text for fact, text in lasting.items() if fact not in before},
            {fact: text for fact, text in before.items() if fact not in lasting},
        )

    def _since_when(self, lessee: LesseeId, fact: str, value: str, now_ms: int) -> tuple[str, int]:
        said = self._said.get((lessee, fact))
        return said if said is not None and said[0] == value else (value, now_ms)

    def _lasts(self, fact: str, now_ms: int) -> bool:
        last_ms = now_ms - self._lasts_ms
        return self._since[fact] <= last_ms and any(
            since_ms <= last_ms for (_, about), (_, since_ms) in self._said.items() if about == fact
        )


def differences(members: Iterable[tuple[str, Facts]]) -> Mapping[str, str]:
    """Return a sentence for each fact in which members differ; it names the value of the fewest members first.

    Args:
        members: the name and the facts of each member.

    >>> differences([("gw-1", {"mode": "enforce"}), ("gw-2", {"mode": "observe"}), ("gw-3", {"mode": "enforce"})])
    {'mode': 'the mode differs: observe at gw-2; enforce at gw-1, gw-3'}
    """
    every = list(members)
    found = {}
    for fact, differ in _SAME.items():
        names: dict[str, list[str]] = {}
        for name, facts in every:
            if fact in facts:
                names.setdefault(_value(facts, fact), []).append(name)
        if len(names) > 1:
            groups = sorted(names.items(), key=lambda group: (len(group[1]), group[0]))
            said = "; ".join(f"{value} at {_shown(of)}" for value, of in groups)
            found[fact] = f"{differ}: {said}"
    return found


def _value(facts: Facts, fact: str) -> str:
    return f"{facts.get(QUOTAS, '?')} with digest {facts[fact]}" if fact == DIGEST else facts[fact]


def _shown(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN_MAX
    return ", ".join(islice(names, _NAMES_SHOWN_MAX)) + (f" and {more} more" if more > 0 else "")


def _twice(view: View) -> list[str]:
    """Return the names that two processes have used at the same time for longer than a rolling upgrade takes."""
    names = Counter(member.lessee.name for member in view.members if member.present_s >= TWICE_SECONDS)
    return [name for name, count in names.items() if count > 1]


_SHARES_SHOWN_MAX: Final = 64


def state_of(
    lessee: Lessee | Parts, view: View | None, disagreements: Iterable[str], now_ms: int
) -> Mapping[str, object]:
    """Return the response of `/v1/fleet`: this member's shares, and the fleet by the holder's last view.

    Args:
        view: the holder's last view; None before the first.
        disagreements: a sentence for each disagreement.
    """
    keys = sorted(key for key in lessee.named if key != DEFAULT_KEY)
    own: dict[str, object] = {
        "name": lessee.name.name,
        "run": f"{lessee.name.run:016x}",
        "leased": lessee.leased(now_ms),
        "cut_off": lessee.cut_off(now_ms),
        "lease_left_seconds": max(0, lessee.until_ms - now_ms) / 1000 if lessee.leased(now_ms) else 0,
        "default_share": lessee.share(DEFAULT_KEY, now_ms),
        "keys": len(keys),
        "shares": {key: lessee.share(key, now_ms) for key in keys[:_SHARES_SHOWN_MAX]},
        "disagreements": list(disagreements),
    }
    if view is None:
        return {**own, "learning": None, "members": [], "member_shares": {}}
    return {
        **own,
        "learning": view.learning,
        "members": [
            {
                **member.facts,  # first: a member names its facts as it likes
                "name": member.lessee.name,
                "run": f"{member.lessee.run:016x}",
                "silent_seconds": member.silent_ms / 1000,
                "present_seconds": member.present_s,
            }
            for member in view.members
        ],
        "member_shares": {key: list(shares) for key, shares in view.shares},
    }

"""The cases of `make refusals` (family, way to refuse, acks, idempotence), and the tables of docs/refusals.md."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.interop.refusals.measure import GROUP_RECORDS, Membership, Outcome, Setting
from tests.interop.refusals.script import Script, Way

CODES: Final = (7, 19, 6, 5, 56, 13, 89, 8)
BEHIND_SECONDS: Final = 0.2
_ROUNDS: Final = 3

CLOSE: Final = Script(Way.CLOSE, rounds_max=_ROUNDS)
NOTHING: Final = Script(Way.CLOSE, every=0)
RESET: Final = Script(Way.RESET, rounds_max=_ROUNDS)


def by_code(code: int, *, behind: bool) -> Script:
    """Refuse by an error code, what is pipelined behind a refused request as well or not."""
    return Script(
        Way.ERROR, error_code=code, behind_seconds=BEHIND_SECONDS if behind else 0.0, rounds_max=_ROUNDS
    )


# With default settings.
WAYS: Final = (
    NOTHING,
    CLOSE,
    RESET,
    *(by_code(code, behind=True) for code in CODES),
    by_code(7, behind=False),
    by_code(19, behind=False),
)
# With other settings.
FEWER_WAYS: Final = (CLOSE, by_code(7, behind=True), by_code(7, behind=False))

_OFF: Final = (Setting("1"), Setting("all", "off"))
# What differs from the family's defaults.
SETTINGS: Final = {
    "java": _OFF,
    "librdkafka": (Setting("all", "on"), Setting("1")),
    "aiokafka": (Setting("all"), Setting("all", "on")),
    "kafka-python": _OFF,
    "franz-go": _OFF,
    "sarama": (Setting("all"), Setting("all", "on")),
    "kafkajs": (Setting("1"), Setting("all", "on"), Setting(calls=5)),
}
DEFAULTS: Final = {
    "java": "acks=all, idempotent, 5 in flight, delivery.timeout.ms 120 s",
    "librdkafka": "acks=all, not idempotent, 1,000,000 in flight, message.timeout.ms 300 s",
    "aiokafka": "acks=1, not idempotent, 1 in flight a partition, request_timeout_ms 40 s for all retries",
    "kafka-python": "acks=all, idempotent, 5 in flight, delivery_timeout_ms 120 s",
    "franz-go": "acks=all, idempotent, 5 in flight (1 where not idempotent), no limit of retries or time",
    "sarama": "acks=1, not idempotent, 1 in flight a partition, Producer.Retry.Max 3",
    "kafkajs": "acks=all, not idempotent, one call after the other, 5 retries (idempotent: no limit)",
}

# More and smaller requests: without responses a client is soon done.
ACKS_0: Final = Setting("0", records=1000, size=50_000)
ACKS_0_WAYS: Final = tuple(
    Script(way, every=10, rounds_max=_ROUNDS, hold_seconds=0.1, pace_seconds=0.005)
    for way in (Way.CLOSE, Way.RESET)
)
# KafkaJS makes one request of a transaction's records, which is not to be larger than brokers take.
TRANSACTION: Final = Setting(transactional=True, records=30, size=30_000)
TWO_WAYS: Final = (CLOSE, by_code(7, behind=True))
TRANSACTION_WAYS: Final = tuple(dataclasses.replace(way, every=1) for way in TWO_WAYS)

# Whether a window is enough to catch what is behind, which a close needs no window for: many runs of the family that
# pipelines most and is not idempotent.
AGAIN_FAMILY: Final = "librdkafka"
AGAIN_RUNS: Final = 10
AGAIN_WAYS: Final = TWO_WAYS

ENDLESS: Final = Setting(records=30)
ENDLESS_WAYS: Final = (
    Script(Way.CLOSE, always_after=2),
    # The default of quotas.hold_seconds_max, and longer than the two minutes of most families' deadlines.
    Script(Way.CLOSE, always_after=2, hold_seconds=15.0, always_seconds=150.0),
    Script(Way.ERROR, error_code=7, behind_seconds=0.05, always_after=2),
)


SECTIONS: Final = ("defaults", "again", "settings", "transactions", "endless", "acks0", "groups")


def verdict(outcome: Outcome) -> str:
    """Return one cell: what went wrong, or that nothing did and the seconds it took.

    >>> from tests.interop.refusals.script import Counts
    >>> verdict(Outcome("java", Setting(), CLOSE, Counts(rounds=3), seconds=4.0))
    'ok, 4.0 s'
    """
    wrong = [
        f"{number} {name}"
        for name, number in (
            ("lost", outcome.lost),
            ("failed", outcome.failed),
            ("failed, yet written", outcome.failed_written),
            ("without an answer", outcome.silent),
            ("doubled", outcome.duplicated),
            ("**reordered**", outcome.reordered),
        )
        if number
    ]
    if outcome.hung:
        wrong.append(outcome.hung)
    if wrong:
        return ", ".join(wrong)
    return f"ok, {outcome.seconds:.1f} s"


def setting_name(setting: Setting) -> str:
    """Return what the tables call a setting.

    >>> setting_name(Setting("all", "off"))
    'acks=all, idempotence off'
    """
    words = [] if setting.acks == "default" else [f"acks={setting.acks}"]
    if setting.idempotence != "default":
        words.append(f"idempotence {setting.idempotence}")
    if setting.calls > 1:
        words.append(f"{setting.calls} calls at once")
    return ", ".join(words) or "defaults"


def line(outcome: Outcome) -> str:
    """Return one line for the terminal."""
    counts = outcome.counts
    return (
        f"{outcome.family:12} {setting_name(outcome.setting):28} {outcome.script.name:40} {verdict(outcome)}"
        f" | {counts.rounds} refused, {counts.behind} behind, {counts.connections} connections,"
        f" {outcome.seconds:.1f} s, {outcome.errors} errors {outcome.message[:100]}"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _by_way(outcomes: Sequence[Outcome]) -> str:
    """Ways down, families across."""
    families = list(dict.fromkeys(outcome.family for outcome in outcomes))
    ways = list(dict.fromkeys(outcome.script.name for outcome in outcomes))
    cell = {(outcome.script.name, outcome.family): verdict(outcome) for outcome in outcomes}
    return _table(
        ["", *families], [[way, *(cell.get((way, family), "") for family in families)] for way in ways]
    )


def _by_setting(outcomes: Sequence[Outcome]) -> str:
    """Settings down, ways across."""
    ways = list(dict.fromkeys(outcome.script.name for outcome in outcomes))
    rows = list(dict.fromkeys((outcome.family, setting_name(outcome.setting)) for outcome in outcomes))
    cell = {
        (outcome.family, setting_name(outcome.setting), outcome.script.name): verdict(outcome)
        for outcome in outcomes
    }
    return _table(["", "", *ways], [[*row, *(cell.get((*row, way), "") for way in ways)] for row in rows])


def _again(outcomes: Sequence[Outcome]) -> str:
    """Runs, and how many of them went wrong."""
    rows = []
    for way in dict.fromkeys(outcome.script.name for outcome in outcomes):
        runs = [outcome for outcome in outcomes if outcome.script.name == way]
        wrong = [verdict(outcome) for outcome in runs if not outcome.survived]
        rows.append([way, str(len(runs)), str(len(wrong)), "; ".join(wrong)])
    return _table(["", "runs", "not ok", ""], rows)


def _endless(outcomes: Sequence[Outcome]) -> str:
    def told(outcome: Outcome) -> str:
        rounds = outcome.refused_by_then
        if outcome.gave_up:
            return f"{rounds} in {outcome.seconds:.0f} s, then `{outcome.message[:60].strip()}`"
        return f"{rounds} in {outcome.seconds:.0f} s, still trying"

    families = list(dict.fromkeys(outcome.family for outcome in outcomes))
    rows = [
        [family, *(told(outcome) for outcome in outcomes if outcome.family == family)] for family in families
    ]
    ways = list(dict.fromkeys(outcome.script.name for outcome in outcomes))
    return _table(["", *ways], rows)


def _acks_0(outcomes: Sequence[Outcome]) -> str:
    rows = [
        [
            outcome.family,
            outcome.script.name,
            str(outcome.counts.rounds),
            str(outcome.lost),
            str(outcome.failed + outcome.silent),
            str(outcome.reordered),
            "no" if outcome.hung else "yes",
        ]
        for outcome in outcomes
    ]
    return _table(["", "way", "closed", "lost, called delivered", "failed", "reordered", "goes on"], rows)


def _members(members: Sequence[tuple[Membership, Membership]]) -> str:
    rows = [
        [
            member.family,
            "yes" if calm.fetches_with_group else "no",
            str(member.counts.rounds),
            "each once" if member.read_each_once else f"{member.records} of {GROUP_RECORDS} {member.hung}",
            f"{member.rebalances} ({calm.rebalances})",
            f"{member.errors} ({calm.errors})",
            f"{member.seconds:.1f} ({calm.seconds:.1f})",
        ]
        for calm, member in members
    ]
    head = [
        "",
        "Fetch and group on one connection",
        "closed",
        "records read",
        "rebalances (without closes)",
        "errors told",
        "s",
    ]
    return _table(head, rows)


def tables(
    outcomes: Mapping[str, Sequence[Outcome]],
    members: Sequence[tuple[Membership, Membership]],
    versions: Mapping[str, str],
    today: str,
) -> str:
    """Return all tables as Markdown."""
    named = {
        "defaults": ("Default settings", _by_way),
        "again": (f"{AGAIN_FAMILY} again and again", _again),
        "settings": ("Other settings", _by_setting),
        "transactions": ("Transactions", _by_way),
        "endless": ("Every request refused", _endless),
        "acks0": ("acks=0", _acks_0),
    }
    parts = [f"Measured {today}, Kafka 4.4.0."]
    parts.append(
        _table(
            ["family", "version", "defaults"],
            [[name, version, DEFAULTS[name]] for name, version in versions.items()],
        )
    )
    for section, (title, table) in named.items():
        if section in outcomes:
            parts += [f"### {title}", table(outcomes[section])]
    if members:
        parts += ["### A group member whose fetching connection is closed", _members(members)]
    return "\n\n".join(parts) + "\n"

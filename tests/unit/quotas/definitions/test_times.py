"""quotas.definitions.times: when an entry holds, with both changes of clocks to the minute."""

from datetime import UTC, datetime, timedelta

import pytest

from quotas.definitions.times import NEVER, When, parse, read
from quotas.errors import DefinitionError

# Germany's clocks go from 02:00 to 03:00 on 2026-03-29 at 01:00 UTC, and from 03:00 to 02:00 on 2026-10-25 at 01:00.
BERLIN = "; time_zone=Europe/Berlin"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def changes(when: When, start: str, hours: int) -> list[tuple[str, bool]]:
    """Return the minutes, in UTC, at which the entry begins or ceases to hold, looked at minute by minute."""
    at = utc(start)
    held, found = when.period(at) is not None, []
    for _ in range(hours * 60):
        at += timedelta(minutes=1)
        if (when.period(at) is not None) != held:
            held = not held
            found.append((at.strftime("%d %H:%M"), held))
    return found


@pytest.mark.parametrize(
    ("hours", "start", "expected"),
    [
        # A night over the change: it begins at 22:00 CET and ends at 06:00 CEST, an hour shorter.
        ("22:00-06:00", "2026-03-28 12:00", [("28 21:00", True), ("29 04:00", False)]),
        # The same in autumn: 22:00 CEST to 06:00 CET, an hour longer.
        ("22:00-06:00", "2026-10-24 12:00", [("24 20:00", True), ("25 05:00", False)]),
        # 02:30 is skipped: the span begins with the change.
        ("02:30-04:00", "2026-03-29 00:00", [("29 01:00", True), ("29 02:00", False)]),
        ("01:30-02:30", "2026-03-29 00:00", [("29 00:30", True), ("29 01:00", False)]),
        ("02:10-02:50", "2026-03-29 00:00", []),
        # 02:30 comes twice: the span begins at the first and ends at the second.
        ("02:30-04:00", "2026-10-25 00:00", [("25 00:30", True), ("25 03:00", False)]),
        ("01:30-02:30", "2026-10-24 23:00", [("24 23:30", True), ("25 01:30", False)]),
        ("02:00-03:00", "2026-10-24 23:00", [("25 00:00", True), ("25 02:00", False)]),
    ],
)
def test_changes_of_clocks(hours: str, start: str, expected: list[tuple[str, bool]]) -> None:
    assert changes(parse(f"hours={hours}{BERLIN}"), start, 18) == expected


@pytest.mark.parametrize(
    "text",
    [
        "hours=mon-fri 22:00-06:00, sat-sun" + BERLIN,
        "hours=02:10-02:50" + BERLIN,
        "from=2026-03-28T12:00:00Z; until=2026-03-29T02:30:00Z; hours=mon 00:00-24:00, sun 01:00-03:00"
        + BERLIN,
        "from=2026-03-28T12:00:00Z",
        "until=2026-03-28T12:00:00Z",
        "hours=00:00-12:00, 12:00-24:00",
    ],
)
def test_next_change_is_the_first_minute_that_differs(text: str) -> None:
    when = parse(text)
    at = utc("2026-03-27 00:00")
    found = changes(when, "2026-03-27 00:00", 24 * 7 - 1)
    for expected, _ in found:
        change = when.next_change(at)
        assert change is not None
        at = change
        if at.strftime("%d %H:%M") != expected:  # at the end of a week it is looked at once more
            assert text == "hours=02:10-02:50" + BERLIN
    last = when.next_change(at)
    assert last is None or last > utc("2026-04-02 22:00")


@pytest.mark.parametrize(
    ("text", "moments", "holds"),
    [
        (
            "hours=fri-mon 10:00-11:00",
            ["2026-11-27 10:00", "2026-11-30 10:59", "2026-12-01 10:30"],
            [1, 1, 0],
        ),
        ("hours=sat", ["2026-11-28 00:00", "2026-11-28 23:59", "2026-11-29 00:00"], [1, 1, 0]),
        ("hours=fri 22:00-06:00", ["2026-11-28 05:59", "2026-11-28 06:00", "2026-11-28 22:00"], [1, 0, 0]),
        ("from=2026-12-01T00:00:00+01:00", ["2026-11-30 22:59", "2026-11-30 23:00"], [0, 1]),
        ("until=2026-12-01T00:00:00Z", ["2026-11-30 23:59", "2026-12-01 00:00"], [1, 0]),
        ("from=2026-12-01T00:00:00Z; hours=mon", ["2026-11-30 12:00", "2026-12-07 12:00"], [0, 1]),
    ],
)
def test_moments(text: str, moments: list[str], holds: list[int]) -> None:
    when = parse(text)
    assert [int(when.period(utc(moment)) is not None) for moment in moments] == holds


@pytest.mark.parametrize("now", ["2026-11-27 18:00", "2026-11-29 12:00", "2026-11-30 07:59"])
def test_period_of_several_days_has_one_beginning_all_the_time(now: str) -> None:
    when = parse("hours=fri 18:00-24:00, sat-sun, mon 00:00-08:00")
    assert when.period(utc(now)) == (utc("2026-11-27 18:00"), utc("2026-11-30 08:00"))


@pytest.mark.parametrize(
    ("text", "start"),
    [("hours=mon-sun", NEVER), ("hours=mon-sun; from=2026-01-01T00:00:00Z", "2026-01-01 00:00")],
)
def test_hours_without_a_gap_began_with_the_entry(text: str, start: datetime | str) -> None:
    for day in ("2026-11-26", "2026-11-29"):
        period = parse(text).period(utc(f"{day} 12:00"))
        assert period is not None
        assert period.start == (utc(start) if isinstance(start, str) else start)


@pytest.mark.parametrize("begins", ["", "; from=2026-11-20T00:00:00Z", "; from=2026-11-25T00:00:00Z"])
def test_hours_without_a_gap_end_with_the_entry(begins: str) -> None:
    period = parse(f"hours=mon-sun{begins}").period(utc("2026-11-26 12:00"))
    assert period is not None
    assert period.end is None
    period = parse(f"hours=mon-sun{begins}; until=2027-01-01T00:00:00Z").period(utc("2026-11-26 12:00"))
    assert period is not None
    assert period.end == utc("2027-01-01 00:00")


def test_next_period_is_told_within_a_week() -> None:
    now = utc("2026-11-26 12:00")  # a Thursday
    for text, begin in (("thu 10:00-11:00", "2026-12-03 10:00"), ("thu 13:00-14:00", "2026-11-26 13:00")):
        found = parse(f"hours={text}").next_period(now)
        assert found is not None
        assert found.start == utc(begin)
    assert parse("hours=mon-sun").next_period(now) is None
    assert parse("until=2000-01-01T00:00:00Z").next_period(now) is None


def test_week_that_holds_without_a_gap_is_looked_at_again() -> None:
    when = parse("hours=mon-sun")
    at = utc("2026-11-26 12:00")
    period, change = when.period(at), when.next_change(at)
    assert period is not None
    assert change is not None
    assert at + timedelta(days=5) < change <= at + timedelta(days=10)


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("hours=MON - FRI 8:00-17:30 ,sat", "hours=mon-fri 08:00-17:30, sat"),
        ("hours=mon-sun 22:00-06:00; time_zone=UTC", "hours=22:00-06:00"),
        ("hours=mon 22:00-24:00", "hours=mon 22:00-24:00"),
        (
            "until=2026-12-24T01:00:00+01:00;from=2026-12-01T00:00Z",
            "from=2026-12-01T00:00:00Z; until=2026-12-24T00:00:00Z",
        ),
        ("hours=mon-sun", "hours=mon-sun"),
    ],
)
def test_times_have_one_spelling(text: str, spelling: str) -> None:
    assert str(parse(text)) == spelling
    assert str(parse(spelling)) == spelling


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"^x: names no time"),
        ({"from": "tomorrow"}, r"^x\.from: must be a date and time with an offset"),
        ({"from": datetime(2026, 1, 1)}, r"^x\.from: must be a date and time with an offset"),  # noqa: DTZ001
        ({"from": "1900-01-01T00:00:00Z"}, r"^x\.from: must be of a year from 1970"),
        (
            {"from": "2026-01-02T00:00:00Z", "until": "2026-01-02T00:00:00Z"},
            r"^x\.until: must be later than from",
        ),
        ({"hours": 5}, r"^x\.hours: must be as in"),
        ({"hours": "mon-fri 22-6"}, r"^x\.hours: 'mon-fri 22-6': must be as in"),
        ({"hours": "mo 22:00-06:00"}, r"^x\.hours: 'mo 22:00-06:00'"),
        ({"hours": "24:00-06:00"}, r"^x\.hours: .* a time of day is from 00:00"),
        ({"hours": "10:60-12:00"}, r"^x\.hours: .* a time of day is from 00:00"),
        ({"hours": "06:00-06:00"}, r"^x\.hours: .* begins and ends at once"),
        ({"hours": "mon,"}, r"^x\.hours: ''"),
        ({"hours": "mon", "time_zone": "Mars/Olympus"}, r"^x\.time_zone: 'Mars/Olympus' is no time zone"),
        ({"hours": "mon", "time_zone": "../etc/passwd"}, r"^x\.time_zone: .* is no time zone"),
        ({"hours": "mon", "time_zone": 1}, r"^x\.time_zone: must be a string"),
        ({"from": "2026-01-02T00:00:00Z", "time_zone": "UTC"}, r"^x\.time_zone: is the time zone of hours"),
    ],
)
def test_wrong_times_are_told(fields: dict[str, object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        read(fields, "x")


@pytest.mark.parametrize("text", ["", "hours", "hours=mon; hours=tue", "days=mon", "hours=" + "mon," * 1000])
def test_wrong_text_is_told(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"^when"):
        parse(text)

"""The times at which a quota entry holds: from, until, and hours of the week in a time zone. Pure: time is an argument.

    from = 2026-12-01T00:00:00Z             an instant; the entry holds from then on
    until = 2026-12-24T00:00:00+01:00       an instant; from then on it holds no more
    hours = "mon-fri 22:00-06:00, sat-sun"  spans of local time; one that ends before it begins ends on the next day
    time_zone = "Europe/Berlin"             the zone of `hours`, from IANA's database; UTC by default

A change of clocks: a time of day that does not exist on a day is the moment of the change, and one that occurs twice
begins a span at its first and ends one at its second occurrence. So a span has all minutes that a clock on the wall
shows within it, and no gap.

An entry with times is one of its entity's entries. Of several that hold at once, the one whose present period began
last decides, for each key by itself, and of two that began together the one that ends first; the entry without times
decides what no other one does.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from quotas.errors import DefinitionError

FROM: Final = "from"
UNTIL: Final = "until"
HOURS: Final = "hours"
TIME_ZONE: Final = "time_zone"
FIELDS: Final = (FROM, UNTIL, HOURS, TIME_ZONE)

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES: Final = 24 * 60
_SPANS_MAX: Final = 50
_TEXT_CHARACTERS_MAX: Final = 2000
_DAY: Final = "|".join(_DAYS)
_SPAN: Final = re.compile(
    rf"(?:({_DAY})(?:\s*-\s*({_DAY}))?)?\s*(?:([0-9]{{1,2}}):([0-9]{{2}})\s*-\s*([0-9]{{1,2}}):([0-9]{{2}}))?"
)
_EXAMPLE: Final = 'must be as in "mon-fri 22:00-06:00, sat-sun"'
NEVER: Final = datetime.min.replace(tzinfo=UTC)
_WEEK_DAYS: Final = 7
WEEK: Final = timedelta(_WEEK_DAYS)
_YEARS: Final = range(1970, 9000)


class Period(NamedTuple):
    """A time during which an entry holds; the end is not part of it, and None where it never ends."""

    start: datetime
    end: datetime | None


class Span(NamedTuple):
    """Hours of local time on days of the week.

    Args:
        days: the days on which it begins, 0 for Monday.
        begin: minutes after midnight.
        end: minutes after the midnight of the day on which it begins; more than 1,440 on the next day.
    """

    days: tuple[int, ...]
    begin: int
    end: int

    def __str__(self) -> str:
        first, last = _DAYS[self.days[0]], _DAYS[self.days[-1]]
        days = first if first == last else f"{first}-{last}"
        if self.begin == 0 and self.end == _DAY_MINUTES:
            return days
        end = self.end if self.end <= _DAY_MINUTES else self.end - _DAY_MINUTES
        clock = f"{_clock(self.begin)}-{_clock(end)}"
        return clock if len(self.days) == len(_DAYS) else f"{days} {clock}"


class When(NamedTuple):
    """The times at which an entry holds.

    Args:
        start: the instant from which on it holds, in UTC; None: from ever.
        end: the instant from which on it holds no more, in UTC; None: for ever.
        hours: spans of the week; empty: all of it.
        zone: the name of the time zone of `hours`.
    """

    start: datetime | None = None
    end: datetime | None = None
    hours: tuple[Span, ...] = ()
    zone: str = "UTC"

    def __str__(self) -> str:
        """Return the one spelling of these times, which `parse` reads: fields as in the file, separated by `; `."""
        return "; ".join(f"{field}={value}" for field, value in self.fields().items())

    def fields(self) -> dict[str, str]:
        """Return the fields of the quotas file that say this; instants in UTC, with `Z`."""
        found: dict[str, str] = {}
        if self.start is not None:
            found[FROM] = _instant_text(self.start)
        if self.end is not None:
            found[UNTIL] = _instant_text(self.end)
        if self.hours:
            found[HOURS] = ", ".join(map(str, self.hours))
            if self.zone != "UTC":
                found[TIME_ZONE] = self.zone
        return found

    def period(self, now: datetime) -> Period | None:
        """Return the period around `now` during which the entry holds; None if it does not hold."""
        return next(
            (one for one in _periods(self, now) if one.start <= now and (one.end is None or now < one.end)),
            None,
        )

    def next_change(self, now: datetime) -> datetime | None:
        """Return the next instant after `now` at which the entry begins or ceases to hold; None if there is none.

        Where it holds, or does not hold, for more than a week from now on, it is the end of that week.
        """
        found, following = self.period(now), self.next_period(now)
        at = found.end if found else following.start if following else None
        if at is None and self.hours and (self.end is None or now < self.end):
            return now + timedelta(_WEEK_DAYS)
        return at

    def next_period(self, now: datetime) -> Period | None:
        """Return the next period after `now` that begins within a week; None if there is none, or none is found."""
        return next((one for one in _periods(self, now) if one.start > now), None)

    def periods(self, now: datetime) -> list[Period]:
        """Return the periods around `now`, or after it, that begin within a week; in order, none touching another.

        Hours without a gap are one period, which has begun with the entry, and ends with it.
        """
        start = self.start or NEVER
        if not self.hours:
            return [Period(start, self.end)]
        found: list[Period] = []
        for span_begin, span_end in sorted(self._spans(max(now, start))):
            begin = max(span_begin, start)
            end = span_end if self.end is None else min(span_end, self.end)
            if begin >= end:
                continue  # the clocks skip it, or it is not within from and until
            last = found[-1].end if found else None
            if last is not None and begin <= last:
                found[-1] = Period(found[-1].start, max(last, end))
            else:
                found.append(Period(begin, end))
        if found and found[0].start <= now - timedelta(_WEEK_DAYS, hours=12):  # no week has a gap
            found[0] = Period(start, found[0].end)
        begin, last = found[-1] if found else (now, None)
        if last is not None and last - begin >= timedelta(_WEEK_DAYS, hours=12):
            found[-1] = Period(begin, self.end)  # nor has any later one
        return found

    def _spans(self, now: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield begin and end of the spans that begin from eight days before `now` to eight days after it."""
        zone = zone_of(self.zone)
        today = now.astimezone(zone).date()
        for span in self.hours:
            for ahead in range(-_WEEK_DAYS - 1, _WEEK_DAYS + 2):
                day = today + timedelta(ahead)
                if day.weekday() in span.days:
                    yield (
                        _instant(day, span.begin, zone, last=False),
                        _instant(day, span.end, zone, last=True),
                    )


@lru_cache(maxsize=100)
def _periods(when: When, now: datetime) -> tuple[Period, ...]:
    """Return `When.periods`; many entries have the same times, and each asks more than once for one moment."""
    return tuple(when.periods(now))


def parse(text: str, path: str = "when") -> When:
    """Parse what `str(When)` writes: the fields of the quotas file, separated by `;`.

    Raises:
        DefinitionError: a field is unknown, given twice, or invalid.

    >>> str(parse("hours=MON - fri 22:00-6:00;time_zone=Europe/Berlin"))
    'hours=mon-fri 22:00-06:00; time_zone=Europe/Berlin'
    """
    if len(text) > _TEXT_CHARACTERS_MAX:
        raise DefinitionError(path, f"more than {_TEXT_CHARACTERS_MAX} characters")
    found: dict[str, object] = {}
    for part in text.split(";"):
        field, equals, value = (one.strip() for one in part.partition("="))
        if not equals or field not in FIELDS or field in found:
            raise DefinitionError(
                path, f"{part.strip()!r}: must be one of {', '.join(FIELDS)}, with = and its value"
            )
        found[field] = value
    return read(found, path)


def read(fields: Mapping[str, object], path: str) -> When:
    """Return the times that the fields of a `[[quota]]` table say.

    Args:
        fields: `from` and `until` as datetimes or texts, `hours` and `time_zone` as texts.
        path: the place of the table, for error messages.

    Raises:
        DefinitionError: a field is invalid.
    """
    start, end = (
        _read_instant(fields[field], f"{path}.{field}") if field in fields else None
        for field in (FROM, UNTIL)
    )
    if start is not None and end is not None and end <= start:
        raise DefinitionError(f"{path}.{UNTIL}", f"must be later than {FROM}")
    if HOURS not in fields:
        if TIME_ZONE in fields:
            raise DefinitionError(f"{path}.{TIME_ZONE}", f"is the time zone of {HOURS}, which is missing")
        if start is None and end is None:
            raise DefinitionError(path, "names no time")
        return When(start, end)
    hours = _read_hours(fields[HOURS], f"{path}.{HOURS}")
    zone = fields.get(TIME_ZONE, "UTC")
    if not isinstance(zone, str):
        raise DefinitionError(f"{path}.{TIME_ZONE}", 'must be a string such as "Europe/Berlin"')
    try:
        zone_of(zone)
    except (OSError, ValueError, KeyError):
        raise DefinitionError(
            f"{path}.{TIME_ZONE}", f"{zone[:80]!r} is no time zone of IANA's database on this machine"
        ) from None
    return When(start, end, hours, zone)


@lru_cache(maxsize=100)
def zone_of(name: str) -> tzinfo:
    """Return a time zone of IANA's database by its name; UTC needs no database."""
    return UTC if name == "UTC" else ZoneInfo(name)


def _read_instant(value: object, path: str) -> datetime:
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise DefinitionError(path, "must be a date and time with an offset, such as 2026-12-01T00:00:00Z")
    if value.year not in _YEARS:
        raise DefinitionError(path, f"must be of a year from {_YEARS[0]} to {_YEARS[-1]}")
    return value.astimezone(UTC).replace(microsecond=0)


def _read_hours(value: object, path: str) -> tuple[Span, ...]:
    if not isinstance(value, str):
        raise DefinitionError(path, _EXAMPLE)
    texts = value.lower().split(",")
    if len(texts) > _SPANS_MAX:
        raise DefinitionError(path, f"more than {_SPANS_MAX} spans")
    return tuple(_read_span(text.strip(), path) for text in texts)


def _read_span(text: str, path: str) -> Span:
    match = _SPAN.fullmatch(text)
    if not text or match is None:
        raise DefinitionError(path, f"{text[:80]!r}: {_EXAMPLE}")
    first, last, *clock = match.groups()
    if first is None:
        days = tuple(range(len(_DAYS)))
    else:
        begin = _DAYS.index(first)
        count = (_DAYS.index(last or first) - begin) % len(_DAYS) + 1
        days = tuple((begin + ahead) % len(_DAYS) for ahead in range(count))
    if clock[0] is None:
        return Span(days, 0, _DAY_MINUTES)
    numbers = [int(number) for number in clock]
    begin, end = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
    if begin >= _DAY_MINUTES or end > _DAY_MINUTES or numbers[1] > 59 or numbers[3] > 59:
        raise DefinitionError(
            path, f"{text[:80]!r}: a time of day is from 00:00 to 23:59, and the end may be 24:00"
        )
    if begin == end:
        raise DefinitionError(path, f"{text[:80]!r} begins and ends at once; the whole day is 00:00-24:00")
    return Span(days, begin, end if end > begin else end + _DAY_MINUTES)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _instant_text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _instant(day: date, minutes: int, zone: tzinfo, *, last: bool) -> datetime:
    """Return the instant of a local time; `minutes` are counted from the day's midnight on the wall.

    Args:
        last: whether a time that occurs twice is its second occurrence.
    """
    wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)  # noqa: DTZ001 - time on the wall
    at = wall.replace(tzinfo=zone, fold=int(last)).astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None) == wall:
        return at
    # The clocks skip it: the moment of the change lies between what the offsets before and after it make of it.
    early, late = sorted(wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    before = early.astimezone(zone).utcoffset()
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) / 2
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late.replace(microsecond=0)

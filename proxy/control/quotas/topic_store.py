"""Quotas in a compacted topic: read to its end, followed, and altered by appending to it (`[quotas] store = "topic"`).

    alter ─► validate against memory ─► one batch of records ─► acknowledged ─► in force here ─► response

An alteration is in force here when all in-sync replicas have it, and does not wait for what others have written before
it. Records of its limits that are read later and lie before it in the topic are without effect, so memory has the order
of the topic, which is the same for all processes. Every requested change is written, even one that would change nothing
here: another process may have changed it a moment ago.

With a secret records are signed (`proxy.topics.records`), and others are counted and ignored:

- A topic of an earlier version has unsigned records only. They are taken over once: written again signed, and after
  them the record SINCE, from which on unsigned records are void. If a snapshot says that the topic was signed before,
  or is of another topic of this name, its quotas are written instead, since the signed records were removed.
- Each batch ends with the record LAST. It has the greatest stamp, so replays behind it are known as such also after
  compaction, whatever was removed.
- A record that is ignored still is the last one of its key for compaction, which would remove the genuine one. So the
  value in force is written again, a bounded number at a time.

A record that cannot be read leaves its limit as it was, and is counted; the limits whose last record is unreadable are
a gauge, since a process that starts after compaction does not know their earlier values.

Reading from the beginning, also for a second time, fills definitions of its own, which replace those in force when it
is complete. All of it blocks and belongs to the quotas' thread.
"""

import hashlib
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Protocol

from msgspec import Meta, Struct
from msgspec.json import Decoder, encode

from proxy.config import QuotaSettings
from proxy.control.quotas.store import Changers, Client, QuotaStore, StoreError, with_pauses
from proxy.system.errors import reason
from proxy.system.files import open_text, store
from proxy.system.logs import Field, event
from proxy.topics.records import TAKEN_OVER_MAX, AppendError, Portion, Problem, ReadLog, Record, Seal, Stamps
from quotas.definitions.alterations import Alteration, Outcome, alter, entity_of_parts, parts_of
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.records import (
    KEY_BYTES_MAX,
    Author,
    RecordError,
    Setting,
    event_of,
    key_of,
    read_key,
    read_setting,
    value_of,
)
from quotas.errors import DefinitionError

# The quota topic and the audit topic, as far as the store needs them; `proxy.topics` implements both.


class Log(ReadLog, Protocol):
    """The quota topic, as the store reads and appends to it."""

    @property
    def topic_id(self) -> bytes:
        """The topic's id (16 bytes) as it was last seen in the cluster; empty if it was not seen yet."""

    wanted: Callable[[Record], bool] | None
    """Whether a record is delivered; others are counted only. Called in any thread."""

    def append(self, records: list[Record]) -> "Future[int]":
        """Append records as one batch; the future has the offset after them, or an AppendError."""


class Events(Protocol):
    """The audit topic, as the store appends to it."""

    def add(self, records: list[Record]) -> None:
        """Queue events, to be appended in the background."""


# The quotas of a topic on disk: with them a process starts while Kafka is away (`[state] directory`).
#
#     {"v":1,"topic":"__sluice-quotas","topic_id":"…","offset":1234,"signed":true}   what was read, and where it ended
#     [[["user","ann"]],{"producer_byte_rate":2000000.0}]                           a line for each entity
#     {"entities":1,"sha256":"…"}                                                   of all lines before
#
# Replaced whole and atomically. A file that is damaged, cut, or of another topic is not used. All of it blocks.


NAME: Final = "quotas-of-topic.json"
_VERSION: Final = 1
_BYTES_MAX: Final = 1024**3  # a million entities are about 100 MB
_MODE: Final = 0o600


class SnapshotError(Exception):
    """The snapshot cannot be used; the text says why."""


class Place(Struct, frozen=True):
    """The first line of a snapshot: its topic, and the offset up to which the topic's records are in it.

    Attributes:
        topic_id: the topic's id in hexadecimal digits.
        offset: the offset after the last record that the snapshot contains.
        signed: whether the topic's records were signed; if so, later unsigned records are not valid.
        v: the version of the format.
    """

    topic: str
    topic_id: str
    offset: Annotated[int, Meta(ge=0)]
    signed: bool = False
    v: int = _VERSION


class _Tail(Struct):
    """The last line of a snapshot: a check of all lines before it."""

    entities: int
    sha256: str


_PLACE: Final = Decoder(Place)
_LIMITS: Final = Decoder(tuple[list[tuple[str, str | None]], dict[str, float]])
_TAIL: Final = Decoder(_Tail)


class Snapshot:
    """The file with the quotas at one offset of the topic, which are used at a start while the topic cannot be read.

    Args:
        directory: its directory, which is created.
    """

    def __init__(self, directory: Path) -> None:
        self.path: Final = directory / NAME

    def write(self, place: Place, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> None:
        """Replace the file by one with these quotas.

        Args:
            place: the topic, and the offset up to which its records are in `entries`.
            entries: the entities with their limits.

        Raises:
            OSError: the file cannot be written; the old one stays.
        """
        store(self.path, _lines(place, with_pauses(entries)), _MODE)

    def read(self, topic: str) -> tuple[Place, Definitions] | None:
        """Return the snapshot's first line, with the offset, and its quotas; None if there is no file.

        Raises:
            SnapshotError: the file is damaged, or of another topic.
        """
        try:
            with open_text(self.path, _BYTES_MAX) as file:
                return _read(file, topic)  # without pauses: before any client is served
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, DefinitionError) as error:
            raise SnapshotError(f"{self.path}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise SnapshotError(f"{self.path}: is damaged: {error}") from None


def _lines(place: Place, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    line = encode(place) + b"\n"
    digest.update(line)
    yield line
    count = 0
    for entity, values in entries:
        line = encode((parts_of(entity), values)) + b"\n"
        digest.update(line)
        count += 1
        yield line
    yield encode(_Tail(count, digest.hexdigest())) + b"\n"


def _read(lines: Iterable[str], topic: str) -> tuple[Place, Definitions]:
    digest = hashlib.sha256()
    lines = iter(lines)
    first = next(lines, "")
    digest.update(first.encode())
    place = _PLACE.decode(first)
    if place.v != _VERSION:
        raise SnapshotError(f"it has version {place.v}, which is unknown to this Sluice")
    if place.topic != topic:
        raise SnapshotError(f"it is of topic {place.topic}, not {topic}")
    found = Definitions()
    last = ""
    for line in lines:
        if last:
            digest.update(last.encode())
            parts, values = _LIMITS.decode(last)
            entity = entity_of_parts(parts)
            if entity is None:
                raise ValueError("an unknown entity")
            found.put(entity, values)
        last = line
    if _TAIL.decode(last) != _Tail(len(found), digest.hexdigest()):
        raise ValueError("its checksum differs")
    return place, found


SINCE: Final = b'{"signed":"since"}'
LAST: Final = b'{"signed":"last"}'
_MARKER_VALUE: Final = b'{"v":1}'
_APPEND_SECONDS_MAX: Final = 20.0
_PORTIONS_AT_ONCE: Final = 4  # as many as wait at most; each that comes later has another call
_OWN_MAX: Final = 200_000  # limits that were altered here and not read back yet
_RESTORED_AT_ONCE: Final = 1_000
_OVERLAID_MAX: Final = 10_000
_TAKEN_OVER_AT_ONCE: Final = 5_000
_TAKE_OVER_SECONDS: Final = 2.0  # up to this after it is known, so that members seldom do it together
_RESTORE_SECONDS: Final = (5.0, 15.0)  # between two turns; the process whose own record it is does it at once
_SNAPSHOT_SECONDS: Final = 30.0  # between two snapshots
_SKIPPED_LINE_SECONDS: Final = 60.0
_UNREADABLE_MAX: Final = 10_000  # limits whose last record is unreadable, each counted once

logger = logging.getLogger(__name__)


class _Own(NamedTuple):
    """A record that this process has appended, which is acknowledged but not read back yet."""

    offset: int
    record: Record


class _Changes:
    """The limits of entities that are to be changed in some definitions."""

    def __init__(self, target: Definitions) -> None:
        self.target = target
        self.found: dict[Entity, Mapping[str, float]] = {}

    def values(self, entity: Entity) -> Mapping[str, float]:
        """Return an entity's limits after the changes so far."""
        return self.found[entity] if entity in self.found else self.target.values(entity)

    def put(self, entity: Entity, limit: str, setting: Setting | None) -> None:
        """Change one limit; None removes it."""
        values = dict(self.values(entity))
        if setting is None:
            values.pop(limit, None)
        else:
            values[limit] = setting.value
        self.found[entity] = values


class TopicStore(QuotaStore):
    """The quotas that are kept in a compacted topic: applies its records, and appends alterations to it.

    Args:
        settings: `[quotas]`.
        quota_text: `[[quota]]` tables from the command line; they override the topic's, and cannot be altered.
        log: the quota topic.
        events: the audit topic; None for none.
        snapshot: the snapshot file; None without `[state] directory`.
        seal: signs and verifies records; None without a secret: unsigned records are valid, with unproven authors.

    Attributes:
        records: counts the records that were read by result: "applied"; "removed" for tombstones; a cause such as
            "key" or "value" for invalid ones; "unsigned" and "replayed" for those that are ignored for their signature.
        restored: the number of records that were appended again because an ignored record had the same key.
        snapshots: counts written snapshots by result: "ok", "failed".
        next_offset: the offset after the last record that was applied.
        snapshot_at: when the last snapshot was written, in seconds since the epoch; 0 for never.

    Raises:
        ConfigError: a definition is invalid.
    """

    def __init__(
        self,
        settings: QuotaSettings,
        log: Log,
        quota_text: str = "",
        events: Events | None = None,
        snapshot: Snapshot | None = None,
        seal: Seal | None = None,
    ) -> None:
        super().__init__(settings, quota_text)  # starting: no client is served before there are quotas
        self.records: Counter[str] = Counter()
        self.snapshots: Counter[str] = Counter()
        self.next_offset = 0
        self.snapshot_at = 0.0
        self.restored = 0
        self._log = log
        self._events = events
        self._snapshot = snapshot
        self._found: tuple[Place, Definitions] | None = None  # an unused snapshot
        self._from = ""  # the id of the topic whose snapshot is in force; "" if none is
        self._fresh: Definitions | None = None  # while the topic is read from its beginning
        self._complete = False
        self._topic_id = b""
        self._unreadable: set[tuple[Entity, str]] = set()
        self._announced = 0  # the version that the event loop knows
        self._saved = -1  # the version and time of the last snapshot
        self._saved_at = -_SNAPSHOT_SECONDS
        self._skipped_line_at = -_SKIPPED_LINE_SECONDS
        self._changers = Changers(settings.topic)
        self._seal = seal
        self._stamps = Stamps()
        self._signed = False  # unsigned records are void
        self._keys: set[int] = set()  # the hashes of keys whose record is signed
        self._unsigned = 0  # records that were applied without a signature
        self._foreign_signed = False
        self._own: dict[bytes, _Own] = {}
        # Keys whose last record is ignored; the own one, if it is lost.
        self._overlaid: dict[bytes, Record | None] = {}
        self._restore_at = 0.0
        self._take_over_at: float | None = None
        self._snapshot_place: Place | None = None
        if snapshot is not None:
            self._look_at(snapshot)

    @property
    def ready(self) -> bool:
        """Whether quotas are in force, from the topic or from the snapshot. Any thread may ask."""
        return self._complete or bool(self._from)

    @property
    def unreadable(self) -> int:
        """The number of limits whose last record in the topic is invalid. Any thread may ask."""
        return len(self._unreadable)

    def read(self, settings: QuotaSettings) -> Definitions:
        """Apply the static quotas of new settings; returns all quotas in force."""
        self.configure(settings)
        return self.definitions

    def alter(self, alterations: Iterable[Alteration], client: Client, /, *, validate_only: bool) -> Outcome:
        """Alter quotas; when this returns, the changes are acknowledged by the topic and in force in this process.

        Raises:
            StoreError: the topic cannot be read or appended to.
        """
        self._drain()
        problem = self._log.problem or self._log.write_problem
        if not self._complete or (problem is not None and not validate_only):
            raise StoreError(self._refusal(problem))
        if self._take_over_at is not None and not validate_only:
            self._take_over()
        requested = list(self.with_pauses(alterations))
        outcome = self.refuse_ineffective(alter(self.definitions, self.with_pauses(requested)))
        if validate_only:
            return outcome
        author = Author(client.principal, client.address, _now())
        records = list(self.with_pauses(self._asked(requested, outcome, author)))
        if records:
            if len(self._own) + len(records) > _OWN_MAX:
                raise StoreError(
                    "too many alterations wait until the topic was read; the quotas in force stay"
                )
            offset = self._write(records)
            self._changers.alters(author, outcome.changes)
            try:
                self._apply_own(records, offset, author)
            finally:
                self._changers.alters(None)
        if self._events is not None and outcome.changes:
            self._events.add(list(self.with_pauses(_events(outcome, author))))
        return outcome

    def drain(self) -> bool:
        """Apply the records that were read from the topic since the last call.

        Returns: whether quotas in force have changed since `drain`, `keep` or `use_snapshot` last returned.
        """
        self._drain()
        return self._differs()

    def keep(self) -> bool:
        """Repair the topic's records, if that is due; to be called every few seconds. Without a secret it never is.

        Unsigned records of an earlier version are appended again with a signature. If an ignored record (unsigned or
        replayed) is the last one of its key, the value in force is appended again.

        Returns: as `drain`.
        """
        now = time.monotonic()
        if self._log.problem is not None or self._log.write_problem is not None or not self._complete:
            return False
        try:
            if self._take_over_at is not None and now >= self._take_over_at:
                self._take_over()
            elif self._overlaid and self._signed and now >= self._restore_at:
                self._restore()
        except StoreError as error:
            self._say("records not signed", detail=str(error))
        return self._differs()

    def _differs(self) -> bool:
        differs = self._announced != self.version
        self._announced = self.version
        return differs

    def use_snapshot(self) -> bool:
        """Put the quotas of the snapshot in force, as the topic cannot be read; only the first call has an effect.

        Nothing is done if the topic has been read, or if the snapshot is of another topic of this name.

        Returns: as `drain`.
        """
        found, self._found = self._found, None
        if found is None or self._complete:
            return False
        place, definitions = found
        if self._log.topic_id and self._log.topic_id.hex() != place.topic_id:
            self._say("snapshot not used: it is of another topic of this name")
            return False
        self.replace(definitions)
        self.starting = False
        self._from = place.topic_id
        self._say(
            "quotas of the snapshot are in force, since the topic cannot be read",
            offset=place.offset,
            quota_entries=len(self.definitions),
        )
        return self.drain()

    def save(self) -> bool:
        """Write the snapshot file if quotas have changed since the last one, but not more often than every 30 s.

        A failed write is counted in `snapshots`, and logged the first time.

        Returns: always False, for `QuotaService.change`: no quotas have changed.
        """
        now = time.monotonic()
        if self._snapshot is None or not self._complete or self.version == self._saved:
            return False
        if now - self._saved_at < _SNAPSHOT_SECONDS:
            return False
        self._saved_at = now
        place = Place(self._log.topic, self._topic_id.hex(), self.next_offset, self._signed)
        try:
            entries = self.definitions.entries()
            own = (entry for entry in entries if not self.overrides(entry[0]))
            self._snapshot.write(place, own)
        except OSError as error:
            if not self.snapshots["failed"]:
                event(logger, logging.WARNING, "snapshot not written", detail=reason(error))
            self.snapshots["failed"] += 1
            return False
        self._saved = self.version
        self.snapshots["ok"] += 1
        self.snapshot_at = time.time()
        return False

    def _look_at(self, snapshot: Snapshot) -> None:
        try:
            self._found = snapshot.read(self._log.topic)
            self._snapshot_place = None if self._found is None else self._found[0]
        except SnapshotError as error:
            event(logger, logging.WARNING, "snapshot not used", detail=str(error))

    def _refusal(self, problem: Problem | None) -> str:
        if problem is not None:
            return f"{problem.text}; the quotas in force stay"
        return f"the quotas of topic {self._log.topic} have not been read to their end yet"

    def _asked(self, requested: list[Alteration], outcome: Outcome, author: Author) -> Iterator[Record]:
        """Yield a record for each limit that is to be set or removed, of all entities without an error."""
        refused = {tuple(sorted(parts, key=repr)) for parts, problem in outcome.results if problem}
        for parts, ops in requested:
            if tuple(sorted(parts, key=repr)) in refused:
                continue
            entity = entity_of_parts(parts)
            assert entity is not None, "it was validated"
            if self.overrides(entity):
                continue  # and not changed by the request, or it would be refused
            after = outcome.changes.get(entity)
            if after is None:
                after = self.definitions.values(entity)
            for limit, _ in ops:
                value = after.get(limit)
                key = key_of(entity, limit)
                if len(key) > KEY_BYTES_MAX:
                    raise StoreError(f"an entity's name is longer than {KEY_BYTES_MAX} bytes in the topic")
                yield Record(key, None if value is None else value_of(value, author))

    def _write(self, records: list[Record], *, now_us: int | None = None) -> int:
        """Append records, signed if there is a secret; returns the offset of the first one.

        Args:
            now_us: for the stamps; None: now.
        """
        if self._seal is not None:
            now_us = time.time_ns() // 1000 if now_us is None else now_us
            records = [*records, Record(LAST, _MARKER_VALUE)]
            records = self._stamps.sign(records, self._seal, self._topic_id, now_us)
        try:
            return self._log.append(records).result(_APPEND_SECONDS_MAX) - len(records)
        except AppendError as error:
            raise StoreError(str(error)) from error
        except TimeoutError as error:
            raise StoreError(
                "the topic did not acknowledge it in time: it may have been applied or not"
            ) from error

    def _apply_own(self, records: list[Record], offset: int, author: Author) -> None:
        """Put acknowledged records of this process in force."""
        changes = _Changes(self.definitions)
        for index, record in enumerate(self.with_pauses(records)):
            assert record.key is not None, "it is a limit's"
            self._own[record.key] = _Own(offset + index, record)
            entity, limit = read_key(record.key)
            setting = read_setting(entity, limit, record.value)
            self._unreadable.discard((entity, limit))
            changes.put(entity, limit, setting)
            self._changers.read(entity, None if setting is None else author)
            if self.noted is not None and setting is not None:
                self.noted(entity, author)
        self._change(changes.found)

    def _restore(self) -> None:
        """Write the values in force over ignored records, so that compaction removes these."""
        self._restore_at = time.monotonic() + random.uniform(*_RESTORE_SECONDS)
        chosen = list(islice(self._overlaid.items(), _RESTORED_AT_ONCE))
        author = Author("sluice", "", _now())
        records = []
        for key, own in chosen:
            record = own or self._in_force_record(key, author)
            if record is not None:
                records.append(record)
        if records:
            self._write(records)
        for key, _ in chosen:
            self._overlaid.pop(key, None)
        self.restored += len(records)
        self._say("records restored", records=len(records))

    def _in_force_record(self, key: bytes, author: Author) -> Record | None:
        """Return the record of a key as it is in force; None if this process does not know it."""
        if key in (SINCE, LAST):
            return Record(key, _MARKER_VALUE)
        entity, limit = read_key(key)
        if self.overrides(entity):
            return None
        value = self.definitions.values(entity).get(limit)
        return Record(key, None if value is None else value_of(value, author))

    def _take_over(self) -> None:
        """Write everything in force signed, and SINCE at last.

        Raises:
            StoreError: it could not be written; it is tried again.
        """
        self._take_over_at = time.monotonic() + _TAKE_OVER_SECONDS
        self._drain()
        author = Author("sluice", "", _now())
        keys = iter(
            [
                (key, limit_value)
                for entity, values in self.with_pauses(self.definitions.entries())
                if not self.overrides(entity)
                for limit, limit_value in values.items()
                if hash(key := key_of(entity, limit)) not in self._keys
            ]
        )
        written = 0
        while not self._signed:
            records = [
                Record(key, value_of(value, author)) for key, value in islice(keys, _TAKEN_OVER_AT_ONCE)
            ]
            last = len(records) < _TAKEN_OVER_AT_ONCE
            written += len(records)
            self._write([*records, Record(SINCE, _MARKER_VALUE)] if last else records, now_us=0)
            if last:
                break
            self._drain()
        self._take_over_at = None
        if written:
            self._say("unsigned quotas taken over: from now on unsigned records are ignored", records=written)

    def _drain(self) -> None:
        for _ in range(_PORTIONS_AT_ONCE):
            portion = self._log.inbox.take()
            if portion is None:
                return
            self._take(portion)

    def _take(self, portion: Portion) -> None:
        if portion.begins:
            self._fresh = Definitions()
            self._unreadable.clear()
            self._topic_id = portion.topic_id
            self._stamps.begin()
            self._keys.clear()
            self._overlaid.clear()
            self._unsigned = 0
        changes = _Changes(self.definitions if self._fresh is None else self._fresh)
        if portion.dropped:
            self._ignored("unsigned", None, portion.dropped)
        for record in self.with_pauses(portion.records):
            self._read(record, changes)
        if self._fresh is None:
            self._change(changes.found)
        else:
            for entity, values in self.with_pauses(changes.found.items()):
                self._put(self._fresh, entity, values)
        self.next_offset = portion.next_offset
        if portion.complete and self._fresh is not None:
            self._finish(self._fresh)

    def _read(self, record: Record, changes: _Changes) -> None:
        cause = self._judge(record, changes)
        if cause is not None:
            if cause:
                self._ignored(cause, record)
            return
        if record.key in self._own and self._is_of_own(record):
            self.records["removed" if record.value is None else "applied"] += 1
        else:
            self._read_limit(record, changes)

    def _is_of_own(self, record: Record) -> bool:
        """Whether a record of a limit that was altered here is this alteration, or lies before it."""
        key = record.key or b""
        offset = self._own[key].offset
        if record.offset >= offset:
            del self._own[key]
        return self._fresh is None and record.offset <= offset

    def _read_limit(self, record: Record, changes: _Changes) -> None:
        place: tuple[Entity, str] | None = None
        try:
            place = entity, limit = read_key(record.key)
            setting = read_setting(entity, limit, record.value)
        except RecordError as error:
            if place is not None and len(self._unreadable) < _UNREADABLE_MAX:
                self._unreadable.add(place)
            self._skipped(error.cause, str(error))
            return
        proven = self._seal is not None and bool(record.mark)
        if setting is not None and setting.author is not None and not proven:
            # Of a million records `_replace` takes two seconds.
            setting = Setting(setting.value, Author(*setting.author[:3], claimed=True))
        self._unreadable.discard(place)
        changes.put(entity, limit, setting)
        self.records["removed" if setting is None else "applied"] += 1
        if self._fresh is None:
            self._changers.read(entity, None if setting is None else setting.author)
        if self.noted is not None and setting is not None and setting.author is not None:
            self.noted(entity, setting.author)

    def _judge(self, record: Record, changes: _Changes) -> str | None:
        """Return why a record is ignored; "" for one that only says something of the topic; None: it is a limit's."""
        seal = self._seal
        if seal is None:
            if record.key in (SINCE, LAST) and record.mark:
                self._say_signed()
                return ""
            return None
        stamp = seal.stamp_of(record, self._topic_id)
        if stamp is None:
            if self._signed or hash(record.key) in self._keys:
                return "unsigned"
            self._unsigned += 1
            return None
        if not self._stamps.accepts(record.key, stamp):
            own = self._own.get(record.key or b"")
            if own is not None and own.offset == record.offset:
                # Another process's record before it has a greater stamp: this one counts, so it gets a greater one.
                self._overlaid[record.key or b""] = self._own.pop(record.key or b"").record
                self._restore_at = 0.0
            return "replayed"
        if record.key is not None:
            self._keys.add(hash(record.key))
            self._overlaid.pop(record.key, None)
        if not self._signed and (record.key == SINCE or stamp > TAKEN_OVER_MAX):
            self._become_signed(changes)
        return "" if record.key in (SINCE, LAST) else None

    def _become_signed(self, changes: _Changes) -> None:
        """Treat unsigned records as void from here on, those already read included."""
        self._signed = True
        self._take_over_at = None
        keys = self._keys
        self._log.wanted = lambda record: bool(record.mark) or hash(record.key) in keys
        if not self._unsigned:
            return
        known = {entity for entity, _ in self.with_pauses(changes.target.entries())}
        void = 0
        for entity in self.with_pauses(known | changes.found.keys()):
            if self.overrides(entity):
                continue
            values = changes.values(entity)
            kept = {limit: value for limit, value in values.items() if hash(key_of(entity, limit)) in keys}
            if len(kept) < len(values):
                void += len(values) - len(kept)
                changes.found[entity] = kept
        if void:
            self._ignored("unsigned", None, void)

    def _say_signed(self) -> None:
        if self._foreign_signed:
            return
        self._foreign_signed = True
        self._say(
            "records of the topic are signed, and this process has no fleet.secret_file: others ignore its alterations"
        )

    def _ignored(self, cause: str, record: Record | None, count: int = 1) -> None:
        """Count records that are ignored; later the value in force is written over each."""
        self.records[cause] += count - 1
        shown = "" if record is None or record.key is None else f": {record.key[:100]!r}"
        what = {"unsigned": "not signed with the fleet's secret", "replayed": "an earlier record again"}[
            cause
        ]
        self._skipped(cause, f"{what}{shown}")
        if record is None or record.key is None or hash(record.key) not in self._keys:
            return
        if record.key not in self._overlaid and len(self._overlaid) < _OVERLAID_MAX:
            if not self._overlaid and record.key not in self._own:
                self._restore_at = time.monotonic() + random.uniform(*_RESTORE_SECONDS)
            self._overlaid[record.key] = None

    def _change(self, changes: Mapping[Entity, Mapping[str, float]]) -> None:
        for change in self.with_pauses(changes.items()):
            try:
                self.apply((change,), self._changers.take(change[0]))
            except DefinitionError as error:  # too many entities
                self._skipped("limit", error.problem)

    def _put(self, target: Definitions, entity: Entity, values: Mapping[str, float]) -> None:
        try:
            target.put(entity, values, checked=True)  # each record was, when it was read
        except DefinitionError as error:
            self._skipped("limit", error.problem)

    def _finish(self, fresh: Definitions) -> None:
        """Put the quotas that were read from the topic's beginning in force."""
        found, self._found = self._found, None
        topic_id = self._topic_id.hex()
        if self._seal is not None and not self._signed:
            self._take_over_at = time.monotonic() + random.uniform(0.0, _TAKE_OVER_SECONDS)
            place = self._snapshot_place
            if place is not None and (place.signed or place.topic_id != topic_id):
                self._use_instead(fresh, found)
        own_changes = _Changes(fresh)
        for key, own in self._own.items():
            entity, limit = read_key(key)
            own_changes.put(entity, limit, read_setting(entity, limit, own.record.value))
        for entity, values in own_changes.found.items():
            self._put(fresh, entity, values)
        self._fresh = None
        before = self._from or (found[0].topic_id if found else "")
        if before and before != topic_id:
            self._say("snapshot not used: it is of another topic of this name")
        elif found is not None and found[0].offset > self.next_offset:
            self._say(
                "the topic ends before the snapshot does: the brokers have lost records",
                offset=self.next_offset,
                snapshot_offset=found[0].offset,
            )
        topic = self._changers.forget()
        self.replace(fresh, None if self.starting else topic)
        self.starting = False
        self._complete, self._from = True, ""
        self._say(
            "quotas read from the topic",
            offset=self.next_offset,
            quota_entries=len(self.definitions),
            skipped=sum(
                count for result, count in self.records.items() if result not in ("applied", "removed")
            ),
            level=logging.INFO,
        )

    def _use_instead(self, fresh: Definitions, found: tuple[Place, Definitions] | None) -> None:
        """Replace what was read by the snapshot: the topic was signed, and has no signed record any more."""
        source = self.definitions if found is None else found[1]
        read = len(fresh)
        for _ in self.with_pauses(fresh.drain()):
            pass
        for entity, values in self.with_pauses(source.entries()):
            if not self.overrides(entity):
                self._put(fresh, entity, values)
        self._say(
            "the topic has lost its signed records: the quotas of the snapshot are written to it",
            quota_entries=len(fresh),
            ignored=read,
            level=logging.ERROR,
        )

    def _say(self, text: str, *, level: int = logging.WARNING, **fields: Field) -> None:
        event(logger, level, text, topic=self._log.topic, **fields)

    def _skipped(self, cause: str, detail: str) -> None:
        self.records[cause] += 1
        now = time.monotonic()
        if now - self._skipped_line_at < _SKIPPED_LINE_SECONDS:
            return
        self._skipped_line_at = now
        self._say(
            "records of the topic skipped", cause=cause, detail=detail[:200], skipped=self.records[cause]
        )


def _events(outcome: Outcome, author: Author) -> Iterator[Record]:
    for entity, after in outcome.changes.items():
        before = outcome.before.get(entity, {})
        for limit in {**before, **after}:
            if before.get(limit) != after.get(limit):
                value = event_of(entity, limit, before.get(limit), after.get(limit), author)
                yield Record(None, value)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Quotas in a compacted topic: read to its end, followed, and altered by appending to it (`[quotas] store = "topic"`).

    alter ─► validate against memory ─► one batch of records ─► acknowledged ─► read back ─► in force ─► response

An alteration is in force here when its own records were read back, so memory always has the order of the topic, which
is the same for all processes. Every requested change is written, even one that would change nothing here: another
process may have changed it a moment ago.

A record that cannot be read leaves its limit as it was, and is counted; the limits whose last record is unreadable are
a gauge, since a process that starts after compaction does not know their earlier values.

Reading from the beginning, also for a second time, fills definitions of its own, which replace those in force when it
is complete. All of it blocks and belongs to the quotas' thread.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from proxy.config import QuotaSettings
from proxy.errors import reason
from proxy.events import Tell
from proxy.files import Signature
from proxy.logs import event
from proxy.quota_api.changes import Changers
from proxy.quota_api.in_force import QuotasInForce
from proxy.quota_api.log import Events, Log
from proxy.quota_api.snapshot import Place, Snapshot, SnapshotError
from proxy.quota_api.store import Client, Noted, StoreError
from proxy.topic_log.records import AppendError, Portion, Problem, Record
from quotas.definitions.alterations import Alteration, Outcome, alter, entity_of_parts
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.records import (
    KEY_BYTES_MAX,
    Author,
    RecordError,
    event_of,
    key_of,
    read_key,
    read_setting,
    value_of,
)
from quotas.errors import DefinitionError

__all__ = ["TopicStore"]

_APPEND_SECONDS_MAX: Final = 20.0
_READ_BACK_SECONDS_MAX: Final = 5.0
_SNAPSHOT_SECONDS: Final = 30.0  # between two snapshots
_SKIPPED_LINE_SECONDS: Final = 60.0
_UNREADABLE_MAX: Final = 10_000  # limits whose last record is unreadable, each counted once

logger = logging.getLogger(__name__)


class TopicStore:
    """The quotas of one topic.

    Args:
        settings: `[quotas]`.
        quota_text: `[[quota]]` tables from the command line; they override the topic's, and cannot be altered.
        log: the topic.
        events: the audit topic; None for none.
        snapshot: the file; None without `[state] directory`.

    Attributes:
        definitions: the definitions in force, always the same object.
        file_signature: of no file.
        noted: called with the author of each record that is applied; None: not called.
        records: counts records by result: "applied", "removed", and the causes of those that were skipped.
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
    ) -> None:
        self._in_force = QuotasInForce(settings, quota_text)
        self._in_force.starting = True  # no client is served before there are quotas
        self.definitions = self._in_force.definitions
        self.file_signature = Signature()
        self.noted: Noted | None = None
        self.records: Counter[str] = Counter()
        self.snapshots: Counter[str] = Counter()
        self.next_offset = 0
        self.snapshot_at = 0.0
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
        if snapshot is not None:
            self._look_at(snapshot)

    @property
    def version(self) -> int:
        """A number that grows with every changed entity."""
        return self._in_force.version

    @property
    def ready(self) -> bool:
        """Whether quotas were read, from the topic or the snapshot; in any thread."""
        return self._complete or bool(self._from)

    @property
    def unreadable(self) -> int:
        """The number of limits whose last record is unreadable; in any thread."""
        return len(self._unreadable)

    def report_to(self, tell: Tell) -> None:
        """Tell each changed limit from now on."""
        self._in_force.tell = tell

    def read(self, settings: QuotaSettings) -> Definitions:
        """Apply new static settings."""
        self._in_force.configure(settings)
        return self.definitions

    def alter(self, alterations: Iterable[Alteration], client: Client, /, *, validate_only: bool) -> Outcome:
        """Alter quotas; at the return they are in the topic and in force here.

        Raises:
            StoreError: the topic cannot be read or appended to.
        """
        self._drain()
        problem = self._log.problem or self._log.write_problem
        if not self._complete or (problem is not None and not validate_only):
            raise StoreError(self._refusal(problem))
        requested = list(self._in_force.with_pauses(alterations))
        outcome = self._in_force.refuse_overridden(
            alter(self.definitions, self._in_force.with_pauses(requested))
        )
        if validate_only:
            return outcome
        author = Author(client.principal, client.address, _now())
        records = list(self._in_force.with_pauses(self._asked(requested, outcome, author)))
        self._changers.alters(author, outcome.changes)
        try:
            if records:
                self._write(records)
        finally:
            self._changers.alters(None)
        if self._events is not None and outcome.changes:
            self._events.add(list(self._in_force.with_pauses(_events(outcome, author))))
        return outcome

    def drain(self) -> bool:
        """Apply what has arrived; return whether quotas differ from those at the last call."""
        self._drain()
        differs = self._announced != self.version
        self._announced = self.version
        return differs

    def use_snapshot(self) -> bool:
        """Put the snapshot in force, unless the topic was read or is another one; return whether quotas differ."""
        found, self._found = self._found, None
        if found is None or self._complete:
            return False
        place, definitions = found
        if self._log.topic_id and self._log.topic_id.hex() != place.topic_id:
            event(
                logger,
                logging.WARNING,
                "snapshot not used: it is of another topic of this name",
                topic=place.topic,
            )
            return False
        self._in_force.replace(definitions)
        self._in_force.starting = False
        self._from = place.topic_id
        event(
            logger,
            logging.WARNING,
            "quotas of the snapshot are in force, since the topic cannot be read",
            topic=place.topic,
            offset=place.offset,
            quota_entries=len(self.definitions),
        )
        return self.drain()

    def save(self) -> bool:
        """Write a snapshot if quotas have changed since the last one, and it is time; never changes quotas."""
        now = time.monotonic()
        if self._snapshot is None or not self._complete or self.version == self._saved:
            return False
        if now - self._saved_at < _SNAPSHOT_SECONDS:
            return False
        self._saved_at = now
        place = Place(self._log.topic, self._topic_id.hex(), self.next_offset)
        try:
            entries = self.definitions.entries()
            own = (entry for entry in entries if not self._in_force.overrides(entry[0]))
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
            if self._in_force.overrides(entity):
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

    def _write(self, records: list[Record]) -> None:
        try:
            offset = self._log.append(records).result(_APPEND_SECONDS_MAX)
        except AppendError as error:
            raise StoreError(str(error)) from error
        except TimeoutError as error:
            raise StoreError(
                "the topic did not acknowledge it in time: it may have been applied or not"
            ) from error
        deadline = time.monotonic() + _READ_BACK_SECONDS_MAX
        while not self._complete or self._fresh is not None or self.next_offset < offset:
            portion = self._log.inbox.take(max(0.0, deadline - time.monotonic()))
            if portion is None:
                raise StoreError("it is in the topic, and in force as soon as the topic can be read again")
            self._take(portion)

    def _drain(self) -> None:
        while (portion := self._log.inbox.take()) is not None:
            self._take(portion)

    def _take(self, portion: Portion) -> None:
        if portion.begins:
            self._fresh = Definitions()
            self._unreadable.clear()
            self._topic_id = portion.topic_id
        target = self.definitions if self._fresh is None else self._fresh
        changes: dict[Entity, Mapping[str, float]] = {}
        for record in self._in_force.with_pauses(portion.records):
            self._read(record, target, changes)
        if self._fresh is None:
            self._change(changes)
        else:
            for entity, values in self._in_force.with_pauses(changes.items()):
                self._put(self._fresh, entity, values)
        self.next_offset = portion.next_offset
        if portion.complete and self._fresh is not None:
            self._finish(self._fresh)

    def _read(self, record: Record, target: Definitions, changes: dict[Entity, Mapping[str, float]]) -> None:
        place: tuple[Entity, str] | None = None
        try:
            place = entity, limit = read_key(record.key)
            setting = read_setting(entity, limit, record.value)
        except RecordError as error:
            if place is not None and len(self._unreadable) < _UNREADABLE_MAX:
                self._unreadable.add(place)
            self._skipped(error.cause, str(error))
            return
        self._unreadable.discard(place)
        values = dict(changes[entity] if entity in changes else target.values(entity))
        if setting is None:
            values.pop(limit, None)
        else:
            values[limit] = setting.value
        changes[entity] = values
        self.records["removed" if setting is None else "applied"] += 1
        if self._fresh is None:
            self._changers.read(entity, None if setting is None else setting.author)
        if self.noted is not None and setting is not None and setting.author is not None:
            self.noted(entity, setting.author)

    def _change(self, changes: Mapping[Entity, Mapping[str, float]]) -> None:
        for change in self._in_force.with_pauses(changes.items()):
            try:
                self._in_force.apply((change,), self._changers.take(change[0]))
            except DefinitionError as error:  # too many entities
                self._skipped("limit", error.problem)

    def _put(self, target: Definitions, entity: Entity, values: Mapping[str, float]) -> None:
        try:
            target.put(entity, values)
        except DefinitionError as error:
            self._skipped("limit", error.problem)

    def _finish(self, fresh: Definitions) -> None:
        """Put what was read from the beginning in force."""
        self._fresh = None
        found, self._found = self._found, None
        topic_id = self._topic_id.hex()
        before = self._from or (found[0].topic_id if found else "")
        if before and before != topic_id:
            event(
                logger,
                logging.WARNING,
                "snapshot not used: it is of another topic of this name",
                topic=self._log.topic,
            )
        elif found is not None and found[0].offset > self.next_offset:
            event(
                logger,
                logging.WARNING,
                "the topic ends before the snapshot does: the brokers have lost records",
                topic=self._log.topic,
                offset=self.next_offset,
                snapshot_offset=found[0].offset,
            )
        topic = self._changers.forget()
        self._in_force.replace(fresh, None if self._in_force.starting else topic)
        self._in_force.starting = False
        self._complete, self._from = True, ""
        event(
            logger,
            logging.INFO,
            "quotas read from the topic",
            topic=self._log.topic,
            offset=self.next_offset,
            quota_entries=len(self.definitions),
            skipped=sum(
                count for result, count in self.records.items() if result not in ("applied", "removed")
            ),
        )

    def _skipped(self, cause: str, detail: str) -> None:
        self.records[cause] += 1
        now = time.monotonic()
        if now - self._skipped_line_at < _SKIPPED_LINE_SECONDS:
            return
        self._skipped_line_at = now
        event(
            logger,
            logging.WARNING,
            "records of the topic skipped",
            topic=self._log.topic,
            cause=cause,
            detail=detail[:200],
            skipped=self.records[cause],
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

"""Where quotas are kept, as the service and the responses see it: a file, a topic, or the brokers.

All of it blocks and belongs to one thread (`service`), except where it says otherwise.
"""

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns, sleep
from typing import Final, NamedTuple, TypeVar

from proxy.channel import ANONYMOUS
from proxy.config import QuotaSettings, command_line_quotas, static_quotas, terms_problem
from proxy.events import Event, Tell, untold
from proxy.events.kinds import AuditedQuotaChanged, By, QuotaChanged
from proxy.system.files import Signature
from quotas.definitions.alterations import Alteration, Outcome, entity_of_parts, text_of
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity, code, entity_of
from quotas.definitions.records import Author
from quotas.definitions.toml_file import Change

T = TypeVar("T")


class StoreError(Exception):
    """The quotas cannot be altered; nothing has changed, unless the text says that it is not known."""


class NotAllowedError(StoreError):
    """The configuration allows no alteration through the quota API; nothing has changed."""


class Client(NamedTuple):
    """The client of the quota API that sent an alteration.

    Args:
        principal: the user name, without "User:".
        address: host and port of its connection.
    """

    principal: str = ""
    address: str = ""


Noted = Callable[[Entity, Author], None]
"""Notes who has altered an entity; called in the store's thread."""


# Who changes quotas, as events tell it (`proxy.events`): a client of the quota API, a file, the brokers, a topic, or
# the times of an entry that has begun or ended.


class Changer(NamedTuple):
    """The author of a change of quotas, as events name it: a client, a file, the brokers, or a topic.

    Args:
        by: the author.
        audited: whether this process also writes the change to its audit log.
    """

    by: By
    audited: bool = False


BROKERS: Final = Changer(By("the brokers' own quotas"))
TIMES: Final = Changer(By("the times of its entries"))


def by_client(author: Author, *, audited: bool) -> Changer:
    """Convert a client of the quota API to the `Changer` of its changes; the port is removed from its address.

    >>> by_client(Author("ops", "10.0.0.4:51000", ""), audited=True).by
    By(name='User:ops', address='10.0.0.4')
    """
    return Changer(By(author.principal, author.address.rpartition(":")[0] or author.address), audited)


def changes_of(
    entity: Entity, before: Mapping[str, float], after: Mapping[str, float], changer: Changer
) -> Iterator[Event]:
    """Yield an event for each limit of the entity that differs between `before` and `after`."""
    name, changed = text_of(entity), AuditedQuotaChanged if changer.audited else QuotaChanged
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            yield changed(name, key, before.get(key), after.get(key), *changer.by)


class Changers:
    """Keeps the author of each entity's last change while records of the quota topic are applied.

    A record that sets a limit names its author; a tombstone, which removes a limit, does not. The author of a tombstone
    is known only if this process has appended it: then `alters` was called. Otherwise the topic itself is the author.

    Args:
        topic: the name of the topic.
    """

    def __init__(self, topic: str) -> None:
        self._topic = Changer(By(f"topic {topic}"))
        self._own: Author | None = None
        self._entities: Collection[Entity] = ()
        self._authors: dict[Entity, Author] = {}

    def alters(self, author: Author | None, entities: Collection[Entity] = ()) -> None:
        """Set the author of this process's own alteration, before its records are applied.

        Args:
            author: who sent the alteration; None: its records are applied, and the author is forgotten.
            entities: the entities that it changes.
        """
        self._own, self._entities = author, entities

    def read(self, entity: Entity, author: Author | None) -> None:
        """Store who has made an entity's change, before the record of the change is applied.

        Args:
            author: the author that the record names. None, as for a tombstone: the author passed to `alters` is stored
                if that alteration changes the entity; otherwise none is stored.
        """
        if author is None and entity in self._entities:
            author = self._own
        if author is None:
            self._authors.pop(entity, None)
        else:
            self._authors[entity] = author

    def take(self, entity: Entity) -> Changer:
        """Return the author of an entity's last change, and remove it from the stored ones.

        Returns: the client that `read` has stored, audited if it is the author of this process's own alteration. If
            none is stored, or its name is empty, the author is the quota topic, as "topic NAME".
        """
        author = self._authors.pop(entity, None)
        if author is None or not author.name:
            return self._topic
        return by_client(author, audited=author == self._own)

    def forget(self) -> Changer:
        """Remove all stored authors, after the topic was read again from its beginning.

        Returns: the topic itself as the author, for all changes that were found.
        """
        self._authors.clear()
        return self._topic


# Loops in a thread that yield the processor to the event loop.
#
# A computing thread of a Python process releases the interpreter only after 5 ms (`sys.getswitchinterval`), and the
# event loop may have to wait that long after each of its system calls. A loop over 100,000 quotas would delay every
# relayed frame. So such a loop works for a millisecond and then sleeps for one; a frame waits for at most a
# millisecond.
#
# Rejected: a shorter switch interval (permanently more expensive for the event loop), a helper process (unpacking its
# result would take 100 ms at once), slices on the event loop (the same delays, between waiting frames).
#
# Non-obvious:
#
# - Sluice's threads sleep half of their time. Python's threads take turns; a loop over 100,000 quotas without pauses
#   would delay the event loop by 5 ms at each system call.


_WORK_NS: Final = 1_000_000
_PAUSE_SECONDS: Final = 0.001
_ITEMS_PER_CHECK: Final = 16


def with_pauses(items: Iterable[T]) -> Iterator[T]:
    """Yield the items with a pause of 1 ms after each millisecond of work, so that the event loop can run."""
    until = monotonic_ns() + _WORK_NS
    for index, item in enumerate(items):
        yield item
        if not index % _ITEMS_PER_CHECK and monotonic_ns() > until:
            sleep(_PAUSE_SECONDS)
            until = monotonic_ns() + _WORK_NS


def drain(items: list[T]) -> Iterator[T]:
    """Yield the items and remove each from the list, with pauses: freeing 10,000 at once would stop all threads."""
    items.reverse()
    return (items.pop() for _ in with_pauses(range(len(items))))


# A store, with the definitions in force: changed in place, an entity at a time, with pauses.
#
# One `Definitions` object lives as long as the process. The event loop reads each entity either before or after its
# change. Entities that are set on the command line take precedence over a store's, and cannot be altered.


_SET_ON_COMMAND_LINE: Final = "The entity was given on the command line (--quota), which takes precedence."


class QuotaStore(ABC):
    """The base of the places where quotas are kept (file, brokers, topic), with the quotas in force in memory.

    Args:
        settings: `[quotas]`.
        quota_text: `[[quota]]` tables from the command line; they override the store's, and cannot be altered.

    Attributes:
        definitions: the quotas in force, always the same object; any thread may read it.
        version: grows with every changed entity.
        file_signature: the signature of the quotas file as last read or written here; an empty one without a file.
        starting: whether no event loop is running yet, so that loops need no pauses.
        noted: called with each altered entity and its author; None: not called.
        tell: called with an event for each changed limit.

    Raises:
        ConfigError: a definition is invalid.
    """

    def __init__(self, settings: QuotaSettings, quota_text: str = "") -> None:
        self._overrides: Mapping[Entity, Mapping[str, float]] = dict(
            command_line_quotas(quota_text).entries()
        )
        self._settings = settings
        self.definitions: Final = Definitions(static=static_quotas(settings))
        self.version = 0
        self.file_signature = Signature()
        self.starting = True
        self.noted: Noted | None = None
        self.tell: Tell = untold
        self._put_in_time(untold)
        for entity, values in self._overrides.items():
            self.definitions.put(entity, values)

    @abstractmethod
    def read(self, settings: QuotaSettings) -> Definitions:
        """Apply new settings, and read the file if it is another one or has changed; returns the definitions.

        Raises:
            ConfigError: the file cannot be read, or a definition is invalid; nothing has changed.
        """

    @abstractmethod
    def alter(self, alterations: Iterable[Alteration], client: Client, /, *, validate_only: bool) -> Outcome:
        """Alter quotas; when this returns, they are durable and in force.

        Args:
            alterations: the entities with their changed limits, as in AlterClientQuotas.
            client: the author.
            validate_only: whether to validate the alterations without applying them.

        Returns: the result of each entity, and the changed limits.

        Raises:
            StoreError: the quotas cannot be altered.
        """

    def configure(self, settings: QuotaSettings) -> None:
        """Apply the static quotas of `[quotas]` (KIP-13), such as producer_default."""
        self._settings = settings
        static = static_quotas(settings)
        if static != self.definitions.static:
            self.definitions.static = static

    def elapse(self) -> bool:
        """Put in force what holds now of the entries with times; returns whether any limit in force has changed.

        Calls `tell` with an event for each that has.
        """
        return self._put_in_time(self.tell)

    def _put_in_time(self, tell: Tell) -> bool:
        def differs(text: str, before: Mapping[str, float], after: Mapping[str, float]) -> None:
            for one in changes_of(entity_of(text), before, after, TIMES):
                tell(one)

        changed = self.definitions.elapse(datetime.now(UTC), self.with_pauses, differs)
        self.version += changed
        return changed

    def next_change(self) -> float | None:
        """Return after how many seconds `elapse` has something to do; None if nothing is to come."""
        at = self.definitions.next_change
        return None if at is None else max(0.0, (at - datetime.now(UTC)).total_seconds())

    def apply(self, changes: Iterable[Change], changer: Changer | None = None) -> None:
        """Put new limits of entities in force, except those of entities that the command line sets.

        Args:
            changes: entities with all their new limits; no limits remove the entity.
            changer: the author, for events; None: no events, since the quotas are read for the first time.
        """
        self.elapse()
        for entity, values in self.with_pauses(changes):
            if entity in self._overrides:
                continue
            before = self.definitions.values(entity)
            if values != before:
                events = () if changer is None else tuple(changes_of(entity, before, values, changer))
                self.definitions.put(entity, values)
                self.version += 1
                for event in events:
                    self.tell(event)

    def replace(self, found: Definitions, changer: Changer | None = None) -> bool:
        """Put exactly the quotas of `found` in force; return whether any limit differed. `found` is empty afterwards.

        Args:
            changer: see `apply`.
        """
        before = self.version
        if self.starting and not before:
            self._fill(found)
            return self.version != before
        gone = self.removed_entities(found)
        self.apply(found.entries(), changer)
        deque(self.with_pauses(found.drain()), 0)
        self.remove(gone, changer)
        return self.version != before

    def _fill(self, found: Definitions) -> None:
        """Put the quotas of `found` in force where none are yet but those that the command line sets."""
        self.version += len(found)
        for entity in self._overrides:
            self.definitions.put(entity, {})
        self.definitions.take(found)
        for entity, values in self._overrides.items():
            self.definitions.put(entity, values)
        self._put_in_time(untold)

    def removed_entities(self, found: Definitions) -> list[str]:
        """Return the codes (`quotas.definitions.entities.code`) of the entities in force that are not in `found`."""
        known = self.with_pauses(self.definitions.entries())
        return [code(*entity) for entity, _ in known if entity not in found]

    def remove(self, gone: Iterable[str], changer: Changer | None = None) -> None:
        """Remove the limits of the entities with these codes; `changer` as in `apply`."""
        self.apply(((entity_of(name), {}) for name in gone), changer)

    def overrides(self, entity: Entity) -> bool:
        """Whether the command line sets this entity's quotas, so that they cannot be altered."""
        return entity in self._overrides

    def refuse_ineffective(self, outcome: Outcome) -> Outcome:
        """Return the outcome with an error, and without a change, for each entity whose change would have no effect.

        That is one that the command line sets, which takes precedence; or a term of a capacity that the settings of
        quotas do not allow.
        """
        refused = {entity: _SET_ON_COMMAND_LINE for entity in self._overrides if entity in outcome.changes}
        for entity, after in self.with_pauses(outcome.changes.items()):
            changed = after.items() - outcome.before.get(entity, {}).items()
            problems = (terms_problem(self._settings, entity, key) for key, _ in sorted(changed))
            problem = next(filter(None, problems), "")
            if problem:
                refused.setdefault(entity, problem)
        if not refused:
            return outcome
        results = [
            (parts, problem or refused.get(entity_of_parts(parts) or Entity(), ""))
            for parts, problem in outcome.results
        ]
        changes = {entity: values for entity, values in outcome.changes.items() if entity not in refused}
        return Outcome(results, changes, outcome.before)

    def with_pauses(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items as the function `with_pauses` does; without pauses while no event loop runs."""
        return iter(items) if self.starting else with_pauses(items)


# Messages of refused alterations: what is missing, and what to write into which file.
#
# The message for a principal names no path, since a client without rights reads it.


def no_quotas_file(config: Path | None) -> str:
    """Return the error message for alterations without a quotas file; it says how to configure one.

    >>> no_quotas_file(None)
    'no quotas file is configured, so quotas cannot be altered: start sluice serve with --quotas-file FILE'
    """
    problem = "no quotas file is configured, so quotas cannot be altered"
    if config is None:
        return f"{problem}: start sluice serve with --quotas-file FILE"
    return f'{problem}: write file = "quotas.toml" under [quotas] in {config}, and create that file'


# Why a member of a fleet does not alter its quotas file: the other members have files of their own.
NOT_IN_A_FLEET: Final = (
    'quotas are in a file at each member of the fleet ([quotas] store = "file"), so they cannot be altered through '
    'one of them: set store = "topic", or change the file at every member'
)


def not_writable(path: Path, error: OSError) -> str:
    """Return the error message for a quotas file that cannot be replaced; it says what has to be writable."""
    return (
        f"{path} cannot be written: {error.strerror or error}; it is replaced, not written into, so [quotas] file "
        "must be in a directory that Sluice may write to"
    )


def not_named(user: str, key: str) -> str:
    """Return the advice in the error message for a user without the permission to alter or describe quotas.

    An unauthenticated client is never advised to add ANONYMOUS: that would be every client.

    Args:
        key: `alter_principals` or `describe_principals`.
    """
    if user in ("", ANONYMOUS):
        return (
            f"Log in as a user that {key} names, or connect on Sluice's own machine to a listener with "
            'bind = "127.0.0.1".'
        )
    return f"To allow it, add {json.dumps(user)} to {key} under [quotas] in Sluice's configuration file."

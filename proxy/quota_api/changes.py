"""Who changes quotas, as events tell it (`proxy.events`): a client of the quota API, a file, the brokers, a topic."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from proxy.events import Event
from proxy.events.kinds import By, quota_changed
from quotas.definitions.alterations import text_of
from quotas.definitions.entities import Entity
from quotas.definitions.records import Author


class Changer(NamedTuple):
    """The author of a change of quotas.

    Args:
        audited: whether the audit log has a line for it.
    """

    by: By
    audited: bool = False


BROKERS: Final = Changer(By("the brokers' own quotas"))


def by_client(author: Author, *, audited: bool) -> Changer:
    """Return a client of the quota API.

    >>> by_client(Author("ops", "10.0.0.4:51000", ""), audited=True).by
    By(name='User:ops', address='10.0.0.4')
    """
    return Changer(By(author.principal, author.address.rpartition(":")[0] or author.address), audited)


def by_file(name: str) -> Changer:
    """Return the quotas file, which was edited."""
    return Changer(By(name))


def changes_of(
    entity: Entity, before: Mapping[str, float], after: Mapping[str, float], changer: Changer
) -> Iterator[Event]:
    """Yield an event for each limit that differs."""
    name = text_of(entity)
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            yield quota_changed(
                name, key, before.get(key), after.get(key), changer.by, audited=changer.audited
            )


class Changers:
    """The author of changes in a topic. A record that removes a limit does not say it; this process knows its own.

    Args:
        topic: its name.
    """

    def __init__(self, topic: str) -> None:
        self._topic = Changer(By(f"topic {topic}"))
        self._own: Author | None = None
        self._entities: Collection[Entity] = ()
        self._authors: dict[Entity, Author] = {}

    def alters(self, author: Author | None, entities: Collection[Entity] = ()) -> None:
        """An alteration of this process is under way; None: it has ended."""
        self._own, self._entities = author, entities

    def read(self, entity: Entity, author: Author | None) -> None:
        """A record was read, of this author."""
        if author is None and entity in self._entities:
            author = self._own
        if author is None:
            self._authors.pop(entity, None)
        else:
            self._authors[entity] = author

    def take(self, entity: Entity) -> Changer:
        """Return the author of the last record of an entity, and forget it."""
        author = self._authors.pop(entity, None)
        if author is None or not author.name:
            return self._topic
        return by_client(author, audited=author == self._own)

    def forget(self) -> Changer:
        """Forget all authors: the topic was read from its beginning; returns the topic itself."""
        self._authors.clear()
        return self._topic

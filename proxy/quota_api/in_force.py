"""The definitions in force, for every store: changed in place, an entity at a time, with pauses.

One `Definitions` object lives as long as the process. The event loop reads each entity either before or after its
change. Entities that are set on the command line take precedence over a store's, and cannot be altered.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from proxy.config import QuotaSettings, command_line_quotas, static_quotas
from proxy.events import Tell, untold
from proxy.quota_api.changes import Changer, changes_of
from proxy.quota_api.cooperative import with_pauses
from quotas.definitions.alterations import Outcome, entity_of_parts
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity, code, entity_of
from quotas.definitions.toml_file import Change

T = TypeVar("T")

_SET_ON_COMMAND_LINE: Final = "The entity was given on the command line (--quota), which takes precedence."


class QuotasInForce:
    """The definitions, and how a store changes them.

    Args:
        settings: `[quotas]`.
        quota_text: `[[quota]]` tables from the command line; they override the store's.

    Attributes:
        definitions: always the same object.
        version: grows with every changed entity.
        starting: no event loop is running yet, so loops need no pauses.
        tell: takes an event for each changed limit.

    Raises:
        ConfigError: a definition is invalid.
    """

    def __init__(self, settings: QuotaSettings, quota_text: str = "") -> None:
        self._overrides: Mapping[Entity, Mapping[str, float]] = dict(
            command_line_quotas(quota_text).entries()
        )
        self.definitions: Final = Definitions(static=static_quotas(settings))
        self.version = 0
        self.starting = False
        self.tell: Tell = untold
        for entity, values in self._overrides.items():
            self.definitions.put(entity, values)

    def configure(self, settings: QuotaSettings) -> None:
        """Apply the static settings."""
        static = static_quotas(settings)
        if static != self.definitions.static:
            self.definitions.static = static

    def apply(self, changes: Iterable[Change], changer: Changer | None = None) -> None:
        """Set the limits of entities to the store's, overridden by the command line's.

        Args:
            changer: who changes them; None: they are read for the first time, which is no event.
        """
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
        """Set all limits to `found`, which is emptied; return whether any differed."""
        gone = self.removed_entities(found)
        before = self.version
        self.apply(found.entries(), changer)
        deque(self.with_pauses(found.drain()), 0)
        self.remove(gone, changer)
        return self.version != before

    def removed_entities(self, found: Definitions) -> list[str]:
        """The codes of the entities in force that are not in `found`."""
        known = self.with_pauses(self.definitions.entries())
        return [code(*entity) for entity, _ in known if entity not in found]

    def remove(self, gone: Iterable[str], changer: Changer | None = None) -> None:
        """Remove entities, by their codes."""
        self.apply(((entity_of(name), {}) for name in gone), changer)

    def overrides(self, entity: Entity) -> bool:
        """Whether the command line sets this entity's quotas."""
        return entity in self._overrides

    def refuse_overridden(self, outcome: Outcome) -> Outcome:
        """Refuse entities with quotas on the command line: these would override what is altered."""
        refused = {entity for entity in self._overrides if entity in outcome.changes}
        if not refused:
            return outcome
        results = [
            (parts, _SET_ON_COMMAND_LINE if not problem and entity_of_parts(parts) in refused else problem)
            for parts, problem in outcome.results
        ]
        changes = {entity: values for entity, values in outcome.changes.items() if entity not in refused}
        return Outcome(results, changes, outcome.before)

    def with_pauses(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate with pauses, where an event loop is running."""
        return iter(items) if self.starting else with_pauses(items)

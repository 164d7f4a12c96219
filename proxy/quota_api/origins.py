"""Who has set a limit, and when, as far as it is known: for explanations (`proxy.explain`)."""

from collections import OrderedDict
from datetime import UTC, datetime
from typing import Final

from proxy.config import Config
from proxy.explain.explanation import Origin
from quotas.definitions.entities import Entity
from quotas.definitions.records import Author

ALTERED_MAX: Final = 10_000  # entities; the one altered longest ago is forgotten first


class Origins:
    """The origins of limits: alterations that were seen here, else the place where quotas are kept.

    Any thread may call it.
    """

    def __init__(self, config: Config) -> None:
        self._settings = config.quotas
        self._config_name = "" if config.source.path is None else config.source.path.name
        self._altered: OrderedDict[Entity, Origin] = OrderedDict()

    def note(self, entity: Entity, author: Author) -> None:
        """Note an alteration; without a time it is now."""
        altered = self._altered
        host = author.address.rpartition(":")[0] or author.address
        by = f"{author.principal}{f' from {host}' if host else ''}"
        altered[entity] = Origin(by, author.at or iso(datetime.now(UTC).timestamp()))
        altered.move_to_end(entity)
        while len(altered) > ALTERED_MAX:
            altered.popitem(last=False)

    def __call__(self, entity: Entity | None, setting: str) -> Origin:
        """Return the origin of an entity's limit, or of a setting of `[quotas]`."""
        if setting:
            return Origin(f"quotas.{setting} in {self._config_name or 'the command line'}", "")
        found = None if entity is None else self._altered.get(entity)
        if found is not None:
            return found
        settings = self._settings
        if settings.store == "cluster":
            return Origin("the brokers' own quotas", "")
        if settings.store == "topic":
            return Origin(f"topic {settings.topic}", "")
        if settings.file is None:
            return Origin("the command line", "")
        try:
            changed = iso(settings.file.stat().st_mtime)
        except OSError:
            changed = ""
        return Origin(settings.file.name, changed)


def iso(seconds: float) -> str:
    """Return a time in ISO 8601, UTC, to the second.

    >>> iso(0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

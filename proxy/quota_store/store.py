"""The quotas file and what it says, in memory: read when it has changed, altered text and disk first (KIP-546).

An alteration is checked, put into the text, and the new text replaces the file; then the definitions in force are
changed, one entity after another. Who asks is answered after that, so what was acknowledged survives a kill. What
others have written meanwhile is read before anything is altered, so it is not lost; a file that is just being
written is waited for.

One object of definitions lives as long as the process: a re-read file changes what differs. Its reader on the event
loop finds each entity as it was or as it is. Everything here blocks and belongs to one thread (`desk`).
"""

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from proxy.config import QuotaSettings, given_quotas, static_quotas
from proxy.config.loader import FILE_BYTES_MAX, begun
from proxy.errors import ConfigError
from proxy.files import Signature, locked, open_text, replace, signature
from proxy.logs import event
from proxy.quota_store.advice import no_quotas_file, not_writable
from proxy.quota_store.pace import paced
from quotas.alterations import Alteration, Outcome, Parts, alter, entity_of_parts
from quotas.definitions import Definitions, keys_of
from quotas.definitions_edit import Change, Document
from quotas.definitions_file import parse
from quotas.entities import Entity, code, entity_of
from quotas.errors import DefinitionError, FormError

__all__ = ["QuotaStore", "StoreError"]

T = TypeVar("T")

_REST_SECONDS: Final = 0.2  # a file that was the same for so long is not being written
_REST_SECONDS_MAX: Final = 2.0

logger = logging.getLogger(__name__)


_GIVEN: Final = "The entity was given on the command line (--quota), which takes precedence over the file."


class StoreError(Exception):
    """Why the quotas cannot be altered now; they are as they were."""


class QuotaStore:
    """The quotas of one configuration.

    Args:
        settings: `[quotas]`.
        quota_text: `[[quota]]` tables from the command line; they beat those of the file, and are not altered.
        config_path: the configuration file, for errors that say what to write into it; None without one.

    Attributes:
        definitions: those in force; the same object for ever.
        seen: the file as it was last read or written here.

    Raises:
        ConfigError: the file can not be read, or a definition can not be.
    """

    def __init__(
        self, settings: QuotaSettings, quota_text: str = "", config_path: Path | None = None
    ) -> None:
        self._config_path = config_path
        self._path: Path | None = None
        self._document: Document | None = Document()
        self._form = ""  # why the text can not be edited, where it can not
        self._given: Mapping[Entity, Mapping[str, float]] = dict(given_quotas(quota_text).entries())
        self.definitions = Definitions(static=static_quotas(settings))
        self.seen = Signature()
        for entity, values in self._given.items():
            self.definitions.put(entity, values)
        self._differ = 0  # how many entities were ever changed
        self._alone = True  # there is no event loop yet, and nobody to leave the processor to
        self.read(settings)
        self._alone = False

    @property
    def version(self) -> int:
        """Grows with every entity that changes."""
        return self._differ

    def read(self, settings: QuotaSettings) -> Definitions:
        """Take new settings, and read the file if it is another one or has changed.

        Raises:
            ConfigError: the file can not be read, or a definition can not be; everything is as it was.
        """
        static = static_quotas(settings)
        if settings.file is None:
            if self._path is not None:
                self._forget_file()
        else:
            self._read_file(settings.file)
        if static != self.definitions.static:
            self.definitions.static = static
        return self.definitions

    def alter(self, alterations: Iterable[Alteration], *, validate_only: bool) -> Outcome:
        """Alter quotas; when this returns they are on the disk and in force.

        Raises:
            StoreError: nothing could be altered, and nothing was.
        """
        if self._path is None:
            raise StoreError(no_quotas_file(self._config_path))
        try:
            with locked(self._path):
                self._catch_up(self._path)
                outcome = alter(self.definitions, alterations)
                outcome = self._without_given(outcome)
                if outcome.changes and not validate_only:
                    self._write(self._path, outcome)
        except OSError as error:
            raise StoreError(not_writable(self._path, error)) from error
        return outcome

    def mirror(self, entries: Iterable[tuple[Parts, Mapping[str, float]]]) -> bool:
        """Have the quotas be those of the brokers; tell whether anything differed.

        What can not be here (a key or a kind of entity that a newer Kafka has) is left out, and no more than that.
        """
        found = Definitions()
        left_out = 0
        for parts, values in paced(entries):
            entity = entity_of_parts(parts)
            try:
                if entity is not None:
                    known = keys_of(entity)
                    found.put(entity, {key: value for key, value in values.items() if key in known})
            except DefinitionError:
                entity = None
            left_out += entity is None
        if left_out:
            event(logger, logging.WARNING, "quotas of the brokers left out", entities=left_out)
        gone = self._gone(found)
        before = self._differ
        self._apply(found.entries())
        deque(self._pace(found.drain()), 0)
        self._apply((entity_of(name), {}) for name in gone)
        return self._differ != before

    def _write(self, path: Path, outcome: Outcome) -> None:
        document = self._document
        if document is None:
            raise StoreError(f"{path} cannot be altered: {self._form}; write it as [[quota]] tables")
        edit = document.edit(self._pace(outcome.changes.items()))
        self.seen = replace(path, document.text(edit, self._pace), FILE_BYTES_MAX)
        document.apply(edit)
        self._apply(outcome.changes.items())

    def _without_given(self, outcome: Outcome) -> Outcome:
        """Refuse entities of the command line's: what it says would beat what the file is made to say."""
        refused = {entity for entity in self._given if entity in outcome.changes}
        if not refused:
            return outcome
        results = [
            (parts, _GIVEN if not problem and entity_of_parts(parts) in refused else problem)
            for parts, problem in outcome.results
        ]
        changes = {entity: values for entity, values in outcome.changes.items() if entity not in refused}
        return Outcome(results, changes, outcome.before)

    def _catch_up(self, path: Path) -> None:
        """Read what others have written, when they have finished."""
        now = signature(path)
        if now == self.seen:
            return
        deadline = time.monotonic() + _REST_SECONDS_MAX
        while True:
            time.sleep(_REST_SECONDS)
            now, before = signature(path), now
            if now == before:
                break
            if time.monotonic() > deadline:
                raise StoreError(f"{path} is being written by another process")
        try:
            self._read_file(path)
        except ConfigError as error:
            raise StoreError(f"another process has changed it, and it cannot be read: {error}") from error

    def _read_file(self, path: Path) -> None:
        now = signature(path)
        if path == self._path and now == self.seen:
            return
        try:
            document, changed, gone = self._parsed(path)
        except DefinitionError as error:
            where = f"{path}: {error.path}" if error.path else str(path)
            raise ConfigError(where, error.problem) from None
        except OSError as error:
            raise ConfigError(str(path), f"cannot be read: {error.strerror or error}{begun(path)}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(str(path), f"is not UTF-8: byte {error.start}") from None
        old = self._document
        self._path, self._document, self.seen = path, document, now
        if old is not None:
            old.empty(self._pace)
        self._apply(changed.entries())
        self._apply((entity_of(name), {}) for name in gone)

    def _parsed(self, path: Path) -> tuple[Document | None, Definitions, list[str]]:
        try:
            with open_text(path, FILE_BYTES_MAX) as file:
                document, changed, gone = Document.read(self._pace(file), self._document, self._pace)
                return document, changed, self._gone(changed) if self._document is None else gone
        except FormError as error:
            self._form = str(error)
        # TOML in another form: nobody keeps 100,000 entities so, and all that comes out is compared.
        with open_text(path, FILE_BYTES_MAX) as file:
            found = parse(file.read())
        return None, found, self._gone(found)

    def _gone(self, found: Definitions) -> list[str]:
        """Which entities are not defined any more, where there is no text to compare with."""
        known = self._pace(self.definitions.entries())
        return [code(*entity) for entity, _ in known if entity not in found]

    def _forget_file(self) -> None:
        event(logger, logging.WARNING, "no quotas file any more", path=str(self._path))
        self._path, self._document, self.seen = None, Document(), Signature()
        self._apply([(entity, {}) for entity, _ in self._pace(self.definitions.entries())])

    def _apply(self, changes: Iterable[Change]) -> None:
        """Have the definitions say what the file says, except where the command line says otherwise."""
        for entity, values in self._pace(changes):
            if entity not in self._given and values != self.definitions.values(entity):
                self.definitions.put(entity, values)
                self._differ += 1

    def _pace(self, items: Iterable[T]) -> Iterator[T]:
        return iter(items) if self._alone else paced(items)

"""The quotas file and its definitions in memory: read again when it changes; an alteration is written first (KIP-546).

An alteration is validated and edited into the text, and the new text replaces the file; then the definitions in force
are changed, one entity after another. The response follows after that, so an acknowledged alteration survives a kill.
Changes of the file by others are read before an alteration, so they are not lost; if the file is just being written,
the alteration waits.

One `Definitions` object lives as long as the process: reading the file again changes the entities that differ. The
event loop reads each entity either before or after its change. Everything here blocks and belongs to one thread
(`service`).
"""

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from proxy.config import Config, QuotaSettings, check_terms, unenforced
from proxy.config.parser import FILE_BYTES_MAX, missing_file_hint
from proxy.control.quotas.store import (
    BROKERS,
    NOT_IN_A_FLEET,
    Changer,
    Client,
    NotAllowedError,
    QuotaStore,
    StoreError,
    by_client,
    no_quotas_file,
    not_writable,
    with_pauses,
)
from proxy.events.kinds import By
from proxy.system.errors import ConfigError
from proxy.system.files import Signature, locked, open_text, replace, signature
from proxy.system.logs import event
from quotas.definitions.alterations import Alteration, Outcome, Parts, alter, entity_of_parts
from quotas.definitions.definitions import Definitions, keys_of
from quotas.definitions.entities import code
from quotas.definitions.records import Author
from quotas.definitions.toml_file import Change, Document, parse
from quotas.errors import DefinitionError, FormError

logger = logging.getLogger(__name__)


REST_SECONDS: Final = 0.2  # a file without a change for this time is complete
REST_SECONDS_MAX: Final = 2.0


class FileStore(QuotaStore):
    """The quotas of one configuration that are kept in the quotas file, or mirrored from the brokers.

    Args:
        settings: `[quotas]`.
        quota_text: `[[quota]]` tables from the command line; they override the file's, and cannot be altered.
        config_path: the configuration file, for error messages; None without one.
        in_fleet: whether this process is a member of a fleet; `alter` is then refused, as each member has its own file.

    Raises:
        ConfigError: the file cannot be read, or a definition is invalid.
    """

    def __init__(
        self,
        settings: QuotaSettings,
        quota_text: str = "",
        config_path: Path | None = None,
        *,
        in_fleet: bool = False,
    ) -> None:
        super().__init__(settings, quota_text)
        self._config_path = config_path
        self._in_fleet = in_fleet
        self._path: Path | None = None
        self._document: Document | None = Document()
        self._not_editable = ""  # why the text cannot be edited; "" if it can
        self._mirrored = False  # the brokers' quotas were taken once
        self.read(settings)
        self.starting = False

    def read(self, settings: QuotaSettings) -> Definitions:
        """Apply new settings, and read the file if it is another one or has changed.

        Raises:
            ConfigError: the file cannot be read, or a definition is invalid; nothing has changed.
        """
        if settings.file is None:
            check_terms(
                settings,
                ((entity, key) for entity, key in self.definitions.term_keys() if self.overrides(entity)),
            )
            if self._path is not None:
                self._forget_file()
        else:
            self._read_file(settings.file, settings)
        self.configure(settings)
        return self.definitions

    def alter(
        self, alterations: Iterable[Alteration], client: Client | None = None, /, *, validate_only: bool
    ) -> Outcome:
        """Alter quotas; when this returns, they are on the disk and in force.

        Args:
            client: the author; None: no author is stored for explanations.

        Raises:
            NotAllowedError: this process is a member of a fleet, whose members have quotas files of their own.
            StoreError: the file cannot be altered; nothing has changed.
        """
        if self._in_fleet:
            raise NotAllowedError(NOT_IN_A_FLEET)
        if self._path is None:
            raise StoreError(no_quotas_file(self._config_path))
        try:
            with locked(self._path):
                self._catch_up(self._path)
                outcome = alter(self.definitions, alterations)
                outcome = self.refuse_ineffective(outcome)
                if outcome.changes and not validate_only:
                    self._write(self._path, outcome, client or Client())
                    self._note(outcome, client)
        except OSError as error:
            raise StoreError(not_writable(self._path, error)) from error
        return outcome

    def _note(self, outcome: Outcome, client: Client | None) -> None:
        """Call `noted` with the author of each altered entity."""
        if self.noted is not None and client is not None:
            author = Author(client.principal, client.address, "")
            for entity in self.with_pauses(outcome.changes):
                self.noted(entity, author)

    def mirror(self, entries: Iterable[tuple[Parts, Mapping[str, float]]]) -> bool:
        """Replace all quotas by those of the brokers; returns whether any limit differed.

        Keys and entity types that are unknown here (of a newer Kafka) are left out.
        """
        found = Definitions()
        left_out = 0
        for parts, values in with_pauses(entries):
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
        changer, self._mirrored = (BROKERS if self._mirrored else None), True
        return self.replace(found, changer)

    def _write(self, path: Path, outcome: Outcome, client: Client) -> None:
        document = self._document
        if document is None:
            raise StoreError(f"{path} cannot be altered: {self._not_editable}; write it as [[quota]] tables")
        edit = document.edit(self.with_pauses(outcome.changes.items()))
        self.file_signature = replace(path, document.text(edit, self.with_pauses), FILE_BYTES_MAX)
        document.apply(edit)
        changer = by_client(Author(client.principal, client.address, ""), audited=True)
        self.apply(outcome.changes.items(), changer)

    def _catch_up(self, path: Path) -> None:
        """Read the file if others have changed it; wait until it is complete."""
        now = signature(path)
        if now == self.file_signature:
            return
        deadline = time.monotonic() + REST_SECONDS_MAX
        while True:
            time.sleep(REST_SECONDS)
            now, before = signature(path), now
            if now == before:
                break
            if time.monotonic() > deadline:
                raise StoreError(f"{path} is being written by another process")
        try:
            self._read_file(path, self._settings)
        except ConfigError as error:
            raise StoreError(f"another process has changed it, and it cannot be read: {error}") from error

    def _read_file(self, path: Path, settings: QuotaSettings) -> None:
        now = signature(path)
        if path == self._path and now == self.file_signature:
            check_terms(settings, self.definitions.term_keys())
            return
        try:
            document, changed, gone = self._parse(path)
        except DefinitionError as error:
            where = f"{path}: {error.path}" if error.path else str(path)
            raise ConfigError(where, error.problem) from None
        except OSError as error:
            raise ConfigError(
                str(path), f"cannot be read: {error.strerror or error}{missing_file_hint(path)}"
            ) from None
        except UnicodeDecodeError as error:
            raise ConfigError(str(path), f"is not UTF-8: byte {error.start}") from None
        removed = set(gone)
        stay = (
            (entity, key)
            for entity, key in self.definitions.term_keys()
            if entity not in changed and code(*entity) not in removed
        )
        check_terms(settings, (*changed.term_keys(), *stay))
        old = self._document
        self._path, self._document, self.file_signature = path, document, now
        if old is not None:
            old.empty(self.with_pauses)
        if self.starting:
            self.replace(changed)
            return
        changer = Changer(By(path.name))
        self.apply(changed.entries(), changer)
        self.remove(gone, changer)

    def _parse(self, path: Path) -> tuple[Document | None, Definitions, list[str]]:
        try:
            with open_text(path, FILE_BYTES_MAX) as file:
                document, changed, gone = Document.read(
                    self.with_pauses(file), self._document, self.with_pauses
                )
                return (document, changed, self.removed_entities(changed) if self._document is None else gone)
        except FormError as error:
            self._not_editable = str(error)
        # TOML in another form, which is not used for 100,000 entities: all entities are compared.
        with open_text(path, FILE_BYTES_MAX) as file:
            found = parse(file.read())
        return None, found, self.removed_entities(found)

    def _forget_file(self) -> None:
        assert self._path is not None, "there was one"
        changer = Changer(By(self._path.name))
        event(logger, logging.WARNING, "no quotas file any more", path=str(self._path))
        self._path, self._document, self.file_signature = None, Document(), Signature()
        gone: list[Change] = [(entity, {}) for entity, _ in self.with_pauses(self.definitions.entries())]
        self.apply(gone, changer)


# Opens the quotas of a configuration, before the event loop runs.


def open_store(config: Config) -> FileStore | None:
    """Read the quotas file, and log which of its quotas have no effect; None if quotas are kept in a topic.

    Raises:
        ConfigError: the file cannot be read, or a definition is invalid.
    """
    if config.quotas.store == "topic":
        return None
    source = config.source
    store = FileStore(config.quotas, source.quota_text, source.path, in_fleet=config.fleet.configured)
    for warning in unenforced(store.definitions.entries(), config.quotas.file):
        event(logger, logging.WARNING, "configuration warning", warning=warning)
    return store

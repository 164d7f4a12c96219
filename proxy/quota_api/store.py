"""Where quotas are kept, as the service and the responses see it: a file, a topic, or the brokers.

All of it blocks and belongs to one thread (`service`), except where it says otherwise.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from proxy.config import QuotaSettings
from proxy.events import Tell
from proxy.system.files import Signature
from quotas.definitions.alterations import Alteration, Outcome
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.records import Author


class StoreError(Exception):
    """The quotas cannot be altered; nothing has changed, unless the text says that it is not known."""


class NotAllowedError(StoreError):
    """The configuration allows no alteration through the quota API; nothing has changed."""


class Client(NamedTuple):
    """The author of an alteration: the principal, and the address of the connection."""

    principal: str = ""
    address: str = ""


Noted = Callable[[Entity, Author], None]
"""Notes who has altered an entity; called in the store's thread."""


class QuotaStore(Protocol):
    """The quotas of one configuration.

    Attributes:
        noted: called for each altered entity; None: not called.
    """

    noted: Noted | None

    @property
    def definitions(self) -> Definitions:
        """The definitions in force, always the same object; any thread may read it."""

    @property
    def version(self) -> int:
        """A number that grows with every changed entity."""

    @property
    def file_signature(self) -> Signature:
        """The signature of the quotas file when it was last read or written here; of no file without one."""

    def report_to(self, tell: Tell) -> None:
        """Tell each changed limit from now on."""

    def read(self, settings: QuotaSettings) -> Definitions:
        """Apply new settings, and read the file if it is another one or has changed.

        Raises:
            ConfigError: the file cannot be read, or a definition is invalid; nothing has changed.
        """

    def alter(self, alterations: Iterable[Alteration], client: Client, /, *, validate_only: bool) -> Outcome:
        """Alter quotas; at the return they are durable and in force.

        Raises:
            StoreError: they cannot be altered.
        """

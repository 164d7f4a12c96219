"""`[leases]`: the sharing of a follower's quota among the processes that it fetches through (KIP-73).

Without `peers` the section has no effect, and this process uses the whole quota of every follower. Shares are computed
in `quotas.sharing.book`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from proxy.config import readers
from proxy.config.keys import key
from proxy.config.readers import Address
from proxy.errors import ConfigError
from quotas.sharing.terms import PEERS_MAX, LeaseTerms

_NAME_CHARACTERS_MAX: Final = 64


def _name(path: str, value: object) -> str:
    if not isinstance(value, str) or not (value.isascii() and value.isprintable() and value.strip() == value):
        raise ConfigError(path, "must be a name of printable ASCII", value)
    if not 1 <= len(value) <= _NAME_CHARACTERS_MAX:
        raise ConfigError(path, f"must have 1 to {_NAME_CHARACTERS_MAX} characters", value)
    return value


def _names(path: str, value: object) -> tuple[str, ...]:
    parts: list[object] = [part.strip() for part in value.split(",")] if isinstance(value, str) else []
    if isinstance(value, list):
        parts = value
    if not 2 <= len(parts) <= PEERS_MAX:
        raise ConfigError(path, f"must be 2 to {PEERS_MAX} names", value)
    names = tuple(_name(f"{path}[{index}]", part) for index, part in enumerate(parts))
    if len(set(names)) < len(names):
        raise ConfigError(path, "each peer must have its own name", value)
    return names


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """`[leases]`."""

    peers: tuple[str, ...] = field(
        default=(), metadata=key(_names, "name, or several", default="none: quotas are not shared")
    )
    name: str = field(
        default="", metadata=key(_name, "name", default="none; needed with a replication listener")
    )
    holder: Address | None = field(
        default=None,
        metadata=key(
            readers.address, "host:port", live=True, default="none; needed with a replication listener"
        ),
    )
    bind: Address | None = field(
        default=None,
        metadata=key(
            readers.optional_address, 'host:port, or "" for none', default="none: another one holds them"
        ),
    )
    seconds: float = field(default=5.0, metadata=key(readers.seconds(1, 60), "number", unit="seconds"))
    secret_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none: nothing is signed")
    )

    @property
    def terms(self) -> LeaseTerms:
        """The terms that are common to all peers."""
        return LeaseTerms(self.peers, int(self.seconds * 1000))

    def check(self, *, replicates: bool) -> None:
        """Check the keys against each other.

        Args:
            replicates: whether brokers replicate through this process.

        Raises:
            ConfigError: the configuration cannot work.
        """
        if not self.peers:
            for name in ("name", "holder", "bind", "secret_file"):
                if getattr(self, name):
                    raise ConfigError("leases.peers", f"is needed with leases.{name}")
            return
        if replicates and not self.name:
            raise ConfigError("leases.name", "must be this process's name in leases.peers")
        if replicates and self.holder is None:
            raise ConfigError("leases.holder", "must be the lease holder's address, its leases.bind")
        if self.name and self.name not in self.peers:
            raise ConfigError("leases.name", "is not one of leases.peers", self.name)

    def warnings(self, *, replicates: bool, policy: str) -> Iterator[str]:
        """Yield warnings about valid keys that are probably mistakes."""
        if not self.peers:
            return
        if not replicates and self.bind is None:
            yield 'leases: has no effect without a listener of kind "replication", and without leases.bind'
        if replicates and policy == "kip73":
            yield (
                "leases: with replication.policy kip73 shares hold on an average of all windows only, and a share"
                ' that grows brings what its windows have room for; "schedule" is exact'
            )
        if self.bind is not None and self.secret_file is None and not _loopback(self.bind):
            yield "leases.bind: whoever reaches it may take leases in a peer's name; leases.secret_file prevents that"


def _loopback(address: Address) -> bool:
    return address.host in ("127.0.0.1", "::1", "localhost")

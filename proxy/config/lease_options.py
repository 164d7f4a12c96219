"""`[leases]`: what `[fleet]` was called while processes shared followers' quotas only (KIP-73). Pure.

The section is still read. Its keys become those of `[fleet]`, with a warning that names them; a process that cannot be
told to be the holder is none, since two holders would each lease the whole of a quota.
"""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from proxy.config import readers
from proxy.config.fleet_options import LOOPBACK, WILDCARDS, FleetOptions, member_name
from proxy.config.keys import key
from proxy.config.readers import Address
from proxy.errors import ConfigError

PEERS_MAX: Final = 64


def _names(path: str, value: object) -> tuple[str, ...]:
    parts: list[object] = [part.strip() for part in value.split(",")] if isinstance(value, str) else []
    if isinstance(value, list):
        parts = value
    if not 2 <= len(parts) <= PEERS_MAX:
        raise ConfigError(path, f"must be 2 to {PEERS_MAX} names", value)
    names = tuple(member_name(f"{path}[{index}]", part) for index, part in enumerate(parts))
    if len(set(names)) < len(names):
        raise ConfigError(path, "each peer must have its own name", value)
    return names


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """`[leases]`; `seconds` and the names in `peers` have no equivalent in `[fleet]`."""

    peers: tuple[str, ...] = field(default=(), metadata=key(_names, "name, or several"))
    name: str = field(default="", metadata=key(member_name, "name"))
    holder: Address | None = field(default=None, metadata=key(readers.address, "host:port"))
    bind: Address | None = field(
        default=None, metadata=key(readers.optional_address, 'host:port, or "" for none')
    )
    seconds: float | None = field(default=None, metadata=key(readers.seconds(1, 60), "number"))
    secret_file: Path | None = field(default=None, metadata=key(readers.file_path, "path"))

    def as_fleet(self, fleet: FleetOptions, *, replicates: bool) -> tuple[FleetOptions, list[str]]:
        """Return the options of the fleet that this section stands for, and warnings.

        Args:
            fleet: those of `[fleet]`, which come first if they make this process a member.
            replicates: whether brokers replicate through this process.

        Raises:
            ConfigError: the section could not work before either.
        """
        self._check(replicates=replicates)
        if not self.peers:
            return fleet, []
        if fleet.configured:
            return fleet, ["leases: has no effect with [fleet], which shares followers' quotas too"]
        if not replicates and self.bind is None:
            problem = 'has no effect without a listener of kind "replication", and without leases.bind'
            return fleet, [f"leases: {problem}"]
        found = replace(
            fleet,
            name=self.name,
            members_max=len(self.peers),
            bind=self.bind,
            holder=self.holder,
            secret_file=self.secret_file,
        )
        if self.holder is None:
            found = replace(found, holder=found.own_address)
        elif self._holds(self.holder):
            found = replace(found, advertised=self.holder)
        return found, list(self._warnings(found))

    def _check(self, *, replicates: bool) -> None:
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

    def _holds(self, holder: Address) -> bool:
        """Whether the holder's address is certainly this process's; names are not resolved."""
        bind = self.bind
        if bind is None or bind.port != holder.port:
            return False
        host = socket.gethostname()
        if holder.host in LOOPBACK and bind.host in (*WILDCARDS, *LOOPBACK):
            return True
        return holder.host in (bind.host, self.name, host, host.partition(".")[0])

    def _warnings(self, fleet: FleetOptions) -> Iterator[str]:
        keys: Mapping[str, object] = {
            "name": fleet.name,
            "members_max": fleet.members_max,
            "bind": fleet.bind if fleet.holds_by_name else None,
            "advertised": None if fleet.advertised == fleet.bind else fleet.advertised,
            "holder": fleet.holder,
            "secret_file": fleet.secret_file,
        }
        written = ", ".join(
            f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"'
            for name, value in keys.items()
            if value
        )
        yield f"leases: is replaced by [fleet], which shares clients' quotas too; write there {written}"
        if self.seconds is not None:
            yield "leases.seconds: has no equivalent: leases of a fleet last 15 s"
        if self.bind is not None and not fleet.holds_by_name:
            yield (
                f"leases.bind: has no effect: leases.holder, {fleet.holder}, is not known to be this process; if it "
                f'is, write [fleet] with advertised = "{fleet.holder}"'
            )

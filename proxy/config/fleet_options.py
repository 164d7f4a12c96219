"""`[fleet]`: the processes that share every client's budget, and how the one is found that leases the shares.

Without `bind` and `holder` the section has no effect, and this process uses the whole of each quota. Shares are
computed in `quotas.sharing`.
"""

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from proxy.config import readers
from proxy.config.cluster_options import ClusterOptions, read_login
from proxy.config.keys import key
from proxy.config.readers import Address
from proxy.config.tls_options import FleetTls, read_fleet_tls
from proxy.errors import ConfigError

MEMBERS_MAX: Final = 256
_NAME_CHARACTERS_MAX: Final = 64
WILDCARDS: Final = ("0.0.0.0", "::")
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def member_name(path: str, value: object) -> str:
    """Read the name of a member."""
    if not isinstance(value, str) or not (value.isascii() and value.isprintable() and value.strip() == value):
        raise ConfigError(path, "must be a name of printable ASCII", value)
    if not 1 <= len(value) <= _NAME_CHARACTERS_MAX:
        raise ConfigError(path, f"must have 1 to {_NAME_CHARACTERS_MAX} characters", value)
    return value


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """`[fleet]`."""

    name: str = field(default="", metadata=key(member_name, "name", default="the host's name"))
    members_max: int = field(
        default=8, metadata=key(readers.count(1, MEMBERS_MAX), "number", unit="members", live=True)
    )
    bind: Address | None = field(
        default=None,
        metadata=key(
            readers.optional_address,
            'host:port, or "" for none',
            default="none; needed without `holder`",
        ),
    )
    advertised: Address | None = field(
        default=None,
        metadata=key(
            readers.address, "host:port", default="`bind`; `name` and its port where it is a wildcard"
        ),
    )
    group: str = field(default="__sluice", metadata=key(readers.text, "text"))
    bootstrap: tuple[Address, ...] = field(
        default=(), metadata=key(readers.addresses, "host:port, or several", default="`cluster.bootstrap`")
    )
    cluster: ClusterOptions | None = field(
        default=None, metadata=key(read_login, "table", default="with `bootstrap`: no SASL, plaintext")
    )
    holder: Address | None = field(
        default=None,
        metadata=key(readers.address, "host:port", default="none: the group chooses it"),
    )
    secret_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none: nothing is signed")
    )
    tls: FleetTls | None = field(
        default=None, metadata=key(read_fleet_tls, "table", default="none: plaintext")
    )
    cut_off: str = field(
        default="share", metadata=key(readers.choice("share", "least"), '"share" or "least"')
    )

    @property
    def configured(self) -> bool:
        """Whether this process is a member of a fleet."""
        return self.bind is not None or self.holder is not None

    @property
    def own_name(self) -> str:
        """The name of this member."""
        return self.name or socket.gethostname()[:_NAME_CHARACTERS_MAX] or "sluice"

    @property
    def own_address(self) -> Address | None:
        """The address at which other members reach this one; None: it cannot be the holder."""
        if self.advertised is not None or self.bind is None:
            return self.advertised
        return Address(self.own_name, self.bind.port) if self.bind.host in WILDCARDS else self.bind

    @property
    def holds_by_name(self) -> bool:
        """Whether this member is the holder that `holder` names."""
        return self.bind is not None and self.holder is not None and self.holder == self.own_address

    @property
    def may_hold(self) -> bool:
        """Whether this member may be the holder: it is named, or a group may choose it."""
        return self.holds_by_name or (self.holder is None and self.bind is not None)

    @property
    def has_group(self) -> bool:
        """Whether this member joins a group that chooses the holder."""
        return self.bind is not None and self.holder is None

    def settled(self, base: Path) -> "FleetOptions":
        """Make paths absolute, and complete `cluster`: None, or all that is known of the fleet's own cluster.

        Raises:
            ConfigError: there is a login and no cluster.
        """
        cluster = self.cluster
        if self.bootstrap:
            cluster = replace(cluster or ClusterOptions(), bootstrap=self.bootstrap).with_absolute_paths(base)
        elif cluster is not None:
            raise ConfigError("fleet.bootstrap", "must name the brokers for which [fleet.cluster] is")
        secret = None if self.secret_file is None else base / self.secret_file
        tls = None if self.tls is None else self.tls.with_absolute_paths(base)
        return replace(self, cluster=cluster, secret_file=secret, tls=tls)

    def check(self) -> None:
        """Check the keys against each other.

        Raises:
            ConfigError: the configuration cannot work.
        """
        if self.cluster is not None:
            self.cluster.check("fleet.cluster")
        if not self.configured:
            for name in ("name", "advertised", "tls"):  # the secret also signs records of topics
                if getattr(self, name):
                    raise ConfigError("fleet.bind", f"is needed with fleet.{name}, or fleet.holder")
            return
        if self.advertised is not None and self.bind is None:
            raise ConfigError("fleet.bind", "is needed with fleet.advertised")
        if self.may_hold and self.tls is not None and self.tls.cert_file is None:
            raise ConfigError(
                "fleet.tls.cert_file", "must name the certificate of this member's port, a PEM file"
            )

    def warnings(self, *, windows: bool) -> Iterator[str]:
        """Yield warnings about valid keys that are probably mistakes.

        Args:
            windows: whether followers' quotas are measured in windows (`kip73`).
        """
        if self.configured and windows:
            yield (
                "fleet: with replication.policy kip73 shares hold on an average of all windows only, and a share"
                ' that grows brings what its windows have room for; "schedule" is exact'
            )
        if self.has_group and self.secret_file is None:
            yield (
                "fleet.group: every client that may join it can be the holder, and set what all members may use; "
                "fleet.secret_file prevents that (sluice fleet secret makes one)"
            )
        if not self.may_hold or self.bind is None:
            return
        proven = self.tls is not None and self.tls.client_auth == "required"
        if self.secret_file is None and not proven and self.bind.host not in LOOPBACK:
            yield "fleet.bind: every host that reaches it may take shares; fleet.secret_file prevents that"

"""`[cluster.tls]`, `[listeners.tls]` and `[fleet.tls]`: TLS towards brokers, clients and members of the fleet.

A table, even an empty `[cluster.tls]`, turns TLS on. Only the combination of keys is checked here; `proxy.net.tls`
reads the files, again when they change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final

from proxy.config import readers
from proxy.config.principals import DEFAULT_RULES, MappingRules, RuleError
from proxy.config.readers import build, key
from proxy.system.errors import ConfigError

CLIENT_AUTH: Final = ("none", "requested", "required")  # Kafka's ssl.client.auth


def _rules(path: str, value: object) -> str:
    text = readers.text(path, value)
    try:
        MappingRules(text)
    except RuleError as error:
        raise ConfigError(path, str(error), value) from None
    return text


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """`[listeners.tls]`: a listener's certificate, and the clients' certificates that it trusts."""

    cert_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none: it must be given")
    )
    key_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="`cert_file`")
    )
    key_password: str = field(
        default="", repr=False, metadata=key(readers.text, "text", default="none: the key is not encrypted")
    )
    key_password_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none")
    )
    client_ca_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none: no client certificates")
    )
    client_auth: str = field(
        default="",
        metadata=key(
            readers.choice(*CLIENT_AUTH),
            '"none", "requested" or "required"',
            default='"required" with `client_ca_file`, else "none"',
        ),
    )
    principal_mapping_rules: str = field(default=DEFAULT_RULES, metadata=key(_rules, "rules with commas"))

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that makes its context."""
        found = (self.cert_file, self.key_file, self.key_password_file, self.client_ca_file)
        return tuple(path for path in found if path is not None)

    def with_absolute_paths(self, base: Path) -> "ListenerTls":
        """Make its paths absolute."""
        return replace(
            self,
            cert_file=_absolute(base, self.cert_file),
            key_file=_absolute(base, self.key_file),
            key_password_file=_absolute(base, self.key_password_file),
            client_ca_file=_absolute(base, self.client_ca_file),
        )


@dataclass(frozen=True, slots=True)
class ClusterTls:
    """`[cluster.tls]`: the brokers' certificates that Sluice trusts, and its own."""

    ca_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="the system's trust")
    )
    cert_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none: no certificate is shown")
    )
    key_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="`cert_file`")
    )
    key_password: str = field(
        default="", repr=False, metadata=key(readers.text, "text", default="none: the key is not encrypted")
    )
    key_password_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none")
    )
    verify_hostname: bool = field(default=True, metadata=key(readers.boolean, "true or false"))

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that makes its context."""
        found = (self.ca_file, self.cert_file, self.key_file, self.key_password_file)
        return tuple(path for path in found if path is not None)

    def with_absolute_paths(self, base: Path) -> "ClusterTls":
        """Make its paths absolute."""
        return replace(
            self,
            ca_file=_absolute(base, self.ca_file),
            cert_file=_absolute(base, self.cert_file),
            key_file=_absolute(base, self.key_file),
            key_password_file=_absolute(base, self.key_password_file),
        )


@dataclass(frozen=True, slots=True)
class FleetTls:
    """`[fleet.tls]`: this member's certificate, for its port and towards the holder, and the others that it trusts."""

    cert_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none; needed with `fleet.bind`")
    )
    key_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="`cert_file`")
    )
    key_password: str = field(
        default="", repr=False, metadata=key(readers.text, "text", default="none: the key is not encrypted")
    )
    key_password_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none")
    )
    client_ca_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none: no certificates of members")
    )
    client_auth: str = field(
        default="",
        metadata=key(
            readers.choice(*CLIENT_AUTH),
            '"none", "requested" or "required"',
            default='"required" with `client_ca_file`, else "none"',
        ),
    )
    ca_file: Path | None = field(
        default=None,
        metadata=key(readers.file_path, "path", default="`client_ca_file`, or the system's trust"),
    )
    verify_hostname: bool = field(default=True, metadata=key(readers.boolean, "true or false"))

    @property
    def port(self) -> ListenerTls:
        """TLS at this member's port."""
        return ListenerTls(
            self.cert_file,
            self.key_file,
            self.key_password,
            self.key_password_file,
            self.client_ca_file,
            self.client_auth,
        )

    @property
    def client(self) -> ClusterTls:
        """TLS towards the holder."""
        return ClusterTls(
            self.ca_file or self.client_ca_file,
            self.cert_file,
            self.key_file,
            self.key_password,
            self.key_password_file,
            self.verify_hostname,
        )

    def with_absolute_paths(self, base: Path) -> "FleetTls":
        """Make its paths absolute."""
        return replace(
            self,
            cert_file=_absolute(base, self.cert_file),
            key_file=_absolute(base, self.key_file),
            key_password_file=_absolute(base, self.key_password_file),
            client_ca_file=_absolute(base, self.client_ca_file),
            ca_file=_absolute(base, self.ca_file),
        )


def read_listener_tls(path: str, value: object) -> ListenerTls:
    """Read the table of a listener."""
    found = build(ListenerTls, fields(ListenerTls), path, _table(path, value), {})
    if found.cert_file is None:
        raise ConfigError(f"{path}.cert_file", "must name the listener's certificate, a PEM file")
    _one_password(path, found)
    return replace(found, key_file=found.key_file or found.cert_file, client_auth=_client_auth(path, found))


def read_fleet_tls(path: str, value: object) -> FleetTls:
    """Read the table of the fleet."""
    found = build(FleetTls, fields(FleetTls), path, _table(path, value), {})
    _one_password(path, found)
    _key_with_certificate(path, found)
    return replace(found, key_file=found.key_file or found.cert_file, client_auth=_client_auth(path, found))


def read_cluster_tls(path: str, value: object) -> ClusterTls:
    """Read the table of the cluster; an empty one trusts the system's certificate authorities."""
    found = build(ClusterTls, fields(ClusterTls), path, _table(path, value), {})
    _one_password(path, found)
    _key_with_certificate(path, found)
    return replace(found, key_file=found.key_file or found.cert_file)


def _client_auth(path: str, found: ListenerTls | FleetTls) -> str:
    auth = found.client_auth or ("required" if found.client_ca_file else "none")
    if auth != "none" and found.client_ca_file is None:
        raise ConfigError(f"{path}.client_ca_file", f"must be given with client_auth = {auth!r}")
    return auth


def _key_with_certificate(path: str, found: ClusterTls | FleetTls) -> None:
    if found.cert_file is None and (found.key_file or found.key_password or found.key_password_file):
        raise ConfigError(f"{path}.cert_file", "must be given with a key")


def _one_password(path: str, found: ListenerTls | ClusterTls | FleetTls) -> None:
    if found.key_password and found.key_password_file:
        raise ConfigError(f"{path}.key_password_file", "and key_password are both given: give only one")


def _table(path: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        name = path.rpartition("].")[2] if "]." in path else path
        raise ConfigError(path, f"must be a table: [{'listeners.' if ']' in path else ''}{name}]", value)
    return value


def _absolute(base: Path, path: Path | None) -> Path | None:
    return None if path is None else base / path

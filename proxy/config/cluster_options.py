"""`[cluster]`: the brokers, and how Sluice logs in to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final

from proxy.config import readers
from proxy.config.keys import key
from proxy.config.readers import Address
from proxy.config.tables import build
from proxy.config.tls_options import ClusterTls, read_cluster_tls
from proxy.errors import ConfigError

SASL_NAMED: Final = (
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
)  # of Sluice's own login (`kafka_client.connection`)
SASL_WITH_SECRET: Final = (*SASL_NAMED, "OAUTHBEARER")
WITHOUT_GROUPS: Final = "AWS_MSK_IAM"  # aiokafka, which groups and topics need, does not have it
SASL_MECHANISMS: Final = (*SASL_WITH_SECRET, "GSSAPI", WITHOUT_GROUPS)
UNSUPPORTED_KEYS: Final[Mapping[str, str]] = {"security_protocol": "it follows from sasl_mechanism and tls"}


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """`[cluster]`: the brokers, for Sluice's own connection and for the bootstrap port."""

    bootstrap: tuple[Address, ...] = field(
        default=(),
        metadata=key(
            readers.addresses, "host:port, or several", default="the upstreams; needed without them"
        ),
    )
    sasl_mechanism: str = field(
        default="",
        metadata=key(
            readers.choice(*SASL_MECHANISMS),
            ", ".join(f'"{name}"' for name in SASL_MECHANISMS[:-1]) + f' or "{SASL_MECHANISMS[-1]}"',
            default="none: no SASL",
        ),
    )
    username: str = field(
        default="", metadata=key(readers.text, "text", default="none; needed with PLAIN and SCRAM")
    )
    password_file: Path | None = field(
        default=None,
        metadata=key(readers.file_path, "path", default="none; needed with PLAIN, SCRAM and OAUTHBEARER"),
    )
    password: str = field(
        default="", repr=False, metadata=key(readers.secret, "text", default="what `password_file` holds")
    )
    tls: ClusterTls | None = field(
        default=None, metadata=key(read_cluster_tls, "table", default="none: plaintext")
    )

    def with_absolute_paths(self, base: Path) -> "ClusterOptions":
        """Make its paths absolute."""
        return replace(
            self,
            password_file=None if self.password_file is None else base / self.password_file,
            tls=self.tls.with_absolute_paths(base) if self.tls else None,
        )

    def check(self, path: str) -> None:
        """Check that mechanism, user name and secret are complete.

        Raises:
            ConfigError: the login cannot work.
        """
        mechanism, has_secret = self.sasl_mechanism, bool(self.password or self.password_file)
        if not mechanism and (self.username or has_secret):
            raise ConfigError(f"{path}.sasl_mechanism", "is needed with a username and password")
        if mechanism in SASL_NAMED and not self.username:
            raise ConfigError(f"{path}.username", f"is needed with {mechanism}")
        if mechanism in SASL_WITH_SECRET and not has_secret:
            raise ConfigError(f"{path}.password_file", f"is needed with {mechanism}")
        if mechanism == WITHOUT_GROUPS and self.tls is None:
            raise ConfigError(f"{path}.tls", f"is needed with {WITHOUT_GROUPS}")


def read_login(path: str, value: object) -> ClusterOptions:
    """Read a table with the keys of `[cluster]`, whose brokers are named elsewhere."""
    if not isinstance(value, dict):
        raise ConfigError(path, f"must be a table: [{path}]", value)
    refused = {**UNSUPPORTED_KEYS, "bootstrap": f"it is the key {path.rpartition('.')[0]}.bootstrap"}
    known = [one for one in fields(ClusterOptions) if one.name != "bootstrap"]
    return build(ClusterOptions, known, path, value, refused)

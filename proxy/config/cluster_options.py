"""`[cluster]`: the brokers, and how Sluice logs in to them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from proxy.config import readers
from proxy.config.keys import key
from proxy.config.readers import Address
from proxy.config.tls_options import ClusterTls, read_cluster_tls

SASL_NAMED: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")  # of Sluice's own login (`kafka_client.sasl`)
SASL_WITH_SECRET: Final = (*SASL_NAMED, "OAUTHBEARER")
SASL_MECHANISMS: Final = (*SASL_WITH_SECRET, "GSSAPI", "AWS_MSK_IAM")


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

"""Sluice's own connections to brokers: whole requests and responses of Kafka's control APIs.

Used by the proxy's background tasks, the commands, and the preparation of a replay. Clients' bytes are never handled
here; `protocol` parses and patches them. docs/decisions/0010 defines which messages kafka-python encodes.
"""

from kafka_client.connection import CLIENT_ID, Connection, Login
from kafka_client.quotas import QuotaClient
from kafka_client.request import ASKING_FAILS, ClosedError, LoginError, RefusedError, Request
from kafka_client.security import PropertiesError, Security, security_of

__all__ = [
    "ASKING_FAILS",
    "CLIENT_ID",
    "ClosedError",
    "Connection",
    "Login",
    "LoginError",
    "PropertiesError",
    "QuotaClient",
    "RefusedError",
    "Request",
    "Security",
    "security_of",
]

"""Sluice's own connections to brokers: whole requests and responses of Kafka's control APIs.

Used by all that asks a cluster something: the proxy's background tasks, the commands, and a replay's preparation.
Clients' bytes never come here; what is read and patched on their way is `protocol`'s. docs/decisions/0010 says where
the border to kafka-python runs.
"""

from kafka_client.connection import CLIENT_ID, Connection
from kafka_client.errors import ASKING_FAILS, ClosedError, LoginError, RefusedError
from kafka_client.login import Login
from kafka_client.quotas import QuotaClient
from kafka_client.request import Request

__all__ = [
    "ASKING_FAILS",
    "CLIENT_ID",
    "ClosedError",
    "Connection",
    "Login",
    "LoginError",
    "QuotaClient",
    "RefusedError",
    "Request",
]

"""Sluice's own login at real brokers, with each mechanism that needs no server of its own."""

import asyncio

import pytest

from kafka_client import Connection, Login, LoginError, metadata
from tests.cluster import Cluster
from tests.cluster.sasl import SASL, bearer_token, password

USER = "sluice"


def asked(kafka: Cluster, login: Login) -> list[metadata.Broker]:
    """The brokers, asked for on a connection of its own."""

    async def ask() -> list[metadata.Broker]:
        host, _, port = kafka.bootstrap(SASL).partition(",")[0].rpartition(":")
        request = metadata.brokers()
        async with asyncio.timeout(20):
            connection = await Connection.open(host, int(port), login=login)
            try:
                return request.read(await connection.send(request))
            finally:
                connection.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_brokers_accept_it(kafka: Cluster, mechanism: str) -> None:
    secret = bearer_token(USER) if mechanism == "OAUTHBEARER" else password(USER)
    assert [broker.broker for broker in sorted(asked(kafka, Login(mechanism, USER, secret)))] == [1, 2, 3]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_refusal_is_told_in_the_brokers_words(kafka: Cluster, mechanism: str) -> None:
    secret = bearer_token(USER, -10) if mechanism == "OAUTHBEARER" else "wrong"
    with pytest.raises(LoginError, match=r"refuses the credentials \(error 58\): .*[a-z]"):
        asked(kafka, Login(mechanism, USER, secret))

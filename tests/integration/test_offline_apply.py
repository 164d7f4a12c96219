"""The pipeline's own client of the quota API, on brokers and on Sluice."""

import asyncio
import secrets
import time

import pytest

from kafka_client import QuotaClient
from offline.errors import ApplyError
from offline.jobs.apply import quota_client
from quotas.definitions.alterations import entity_of_parts, parts_of
from quotas.definitions.entities import Entity
from tests.cluster import HOST, Cluster, free_ports

KEY = "producer_byte_rate"


async def become(client: QuotaClient, entity: Entity, wanted: dict[str, float]) -> bool:
    """Whether the entity's limits are these within ten seconds: a broker learns them a moment after the controller."""
    until_s = time.monotonic() + 10
    while True:
        described = {entity_of_parts(parts): values for parts, values in await client.describe()}
        if described.get(entity, {}) == wanted:
            return True
        if time.monotonic() > until_s:
            return False
        await asyncio.sleep(0.1)


async def set_and_removed(server: str) -> None:
    entity = Entity(client_id=f"offline-{secrets.token_hex(4)}")
    async with quota_client(server) as client:
        assert await client.alter([(parts_of(entity), [(KEY, 2e6)])], validate_only=True) == []
        assert await become(client, entity, {})
        assert await client.alter([(parts_of(entity), [(KEY, 2e6)])], validate_only=False) == []
        assert await become(client, entity, {KEY: 2e6})
        refused = await client.alter([(parts_of(entity), [("no_such_key", 1.0)])], validate_only=True)
        ((parts, reason),) = refused
        assert (entity_of_parts(parts), bool(reason)) == (entity, True)
        assert await client.alter([(parts_of(entity), [(KEY, None)])], validate_only=False) == []
        assert await become(client, entity, {})


async def connected(server: str) -> None:
    async with quota_client(server):
        pass


def test_quotas_are_validated_then_set_then_removed(kafka: Cluster) -> None:
    asyncio.run(set_and_removed(kafka.bootstrap().split(",")[0]))


def test_unreachable_proxy_is_one_clear_error() -> None:
    server = f"{HOST}:{free_ports(1)[0]}"
    with pytest.raises(ApplyError, match=f"{server} cannot be reached"):
        asyncio.run(connected(server))


def test_an_address_without_a_port_is_one_clear_error() -> None:
    with pytest.raises(ApplyError, match="is not HOST:PORT"):
        asyncio.run(connected("kafka"))

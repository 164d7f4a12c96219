"""The pipeline's own client of the quota API, on brokers and on Sluice, with a login and without."""

import asyncio
import secrets
import time
from pathlib import Path

import pytest

from kafka_client import QuotaClient
from offline.errors import ApplyError
from offline.jobs.apply import in_force, quota_client
from quotas.definitions.alterations import Quotas, entity_of_parts, parts_of
from quotas.definitions.entities import Entity
from tests.cluster import HOST, Cluster, free_ports
from tests.cluster.sasl import SASL, client_properties
from tests.support.proxy_process import SluiceProcess, SluiceSettings

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


async def asked(server: str, command_config: str = "") -> Quotas:
    async with quota_client(server, command_config=command_config) as client:
        return await in_force(client)


def test_a_sluice_is_asked_for_what_no_broker_has(kafka: Cluster, tmp_path: Path) -> None:
    text = '[[group]]\nname = "web"\nclient_ids = ["web-*"]\n\n[[capacity]]\nscope = "cluster"\nin = "8M"\n'
    settings = SluiceSettings(
        kafka.bootstrap(),
        quotas={"policy": "schedule", "scope": "cluster"},
        client_quotas={"a": {KEY: 1e6}},
        quotas_text=text,
    )
    with SluiceProcess.configured(settings, tmp_path) as sluice:
        assert asyncio.run(asked(sluice.bootstrap)) == {
            Entity(client_id="a"): {KEY: 1e6},
            Entity(client_id="web-*", group="web"): {"member": 1.0},
            Entity(capacity="cluster"): {KEY: 8e6},
        }


def test_brokers_are_asked_with_a_login(kafka: Cluster, tmp_path: Path) -> None:
    login = tmp_path / "admin.properties"
    server = kafka.bootstrap(SASL).split(",")[0]
    login.write_text(client_properties("admin"))
    assert isinstance(asyncio.run(asked(server, str(login))), dict)
    login.write_text(client_properties("admin").replace("admin-secret", "wrong"))
    with pytest.raises(ApplyError, match="refuses the credentials"):
        asyncio.run(asked(server, str(login)))
    login.write_text("security.protocol=SASL\n")
    with pytest.raises(ApplyError, match=r"admin\.properties cannot be used: security\.protocol: is not"):
        asyncio.run(asked(server, str(login)))
    with pytest.raises(ApplyError, match=r"perhaps|closed the connection|does not respond"):
        asyncio.run(asked(server))


def test_unreachable_proxy_is_one_clear_error() -> None:
    server = f"{HOST}:{free_ports(1)[0]}"
    with pytest.raises(ApplyError, match=f"{server} cannot be reached"):
        asyncio.run(connected(server))


def test_an_address_without_a_port_is_one_clear_error() -> None:
    with pytest.raises(ApplyError, match="is not HOST:PORT"):
        asyncio.run(connected("kafka"))

"""The pipeline's own client of the quota API, on brokers and on Sluice."""

import secrets
import time

import pytest

from offline.errors import ApplyError
from offline.jobs.apply import QuotaApi
from quotas.definitions.alterations import entity_of_parts, parts_of
from quotas.definitions.entities import Entity
from tests.cluster import HOST, Cluster, free_ports


def become(server: str, entity: Entity, wanted: dict[str, float]) -> bool:
    """Whether the entity's limits are these within ten seconds: a broker learns them a moment after the controller."""
    until_s = time.monotonic() + 10
    with QuotaApi(server) as api:
        while {entity_of_parts(parts): values for parts, values in api.describe()}.get(entity, {}) != wanted:
            if time.monotonic() > until_s:
                return False
            time.sleep(0.1)
    return True


def test_quotas_are_validated_then_set_then_removed(kafka: Cluster) -> None:
    server = kafka.bootstrap().split(",")[0]
    entity = Entity(client_id=f"offline-{secrets.token_hex(4)}")
    key = "producer_byte_rate"
    with QuotaApi(server) as api:
        assert api.alter([(parts_of(entity), [(key, 2e6)])], validate_only=True) == []
        assert become(server, entity, {})
        assert api.alter([(parts_of(entity), [(key, 2e6)])], validate_only=False) == []
        assert become(server, entity, {key: 2e6})
        ((parts, reason),) = api.alter([(parts_of(entity), [("no_such_key", 1.0)])], validate_only=True)
        assert (entity_of_parts(parts), bool(reason)) == (entity, True)
        assert api.alter([(parts_of(entity), [(key, None)])], validate_only=False) == []
    assert become(server, entity, {})


def test_unreachable_proxy_is_one_clear_error() -> None:
    server = f"{HOST}:{free_ports(1)[0]}"
    with pytest.raises(ApplyError, match=f"{server} cannot be reached"), QuotaApi(server):
        pass


def test_an_address_without_a_port_is_one_clear_error() -> None:
    with pytest.raises(ApplyError, match="is not HOST:PORT"), QuotaApi("kafka"):
        pass

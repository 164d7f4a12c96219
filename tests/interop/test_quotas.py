"""The clients' own admin APIs for quotas, unchanged, against Sluice's quotas file (KIP-546).

Of the seven families only these have one; librdkafka, kafka-python, aiokafka and KafkaJS do not.
"""

import secrets

import pytest

from tests.interop.conftest import Target, available
from tests.interop.families import FAMILIES, JAVA_3_9, Family
from tests.interop.runs import Crowd, options

WITH_QUOTAS = {"java", "franz-go", "sarama"}
RUN_SECONDS_MAX = 60.0


@pytest.mark.parametrize(
    "client", [*(one for one in FAMILIES if one.name in WITH_QUOTAS), JAVA_3_9], ids=lambda one: one.name
)
def test_admin_client_sets_describes_and_removes(client: Family, target: Target, crowd: Crowd) -> None:
    name = f"quotas-{secrets.token_hex(4)}"
    running = crowd.start(available(client), "quotas", *options(target.bootstrap, "admin", name))
    line = running.wait(RUN_SECONDS_MAX).last("quotas")
    assert (line.number("rate"), line.text("percentage"), line.number("left")) == (1_000_000, "12.5", 0)
    assert "producer_byte_rate must be greater than 0" in line.text("refused")

"""The fixture of most modules in tests/integration: a gateway in front of `kafka`.

sluice = gateway_fixture(client_quotas={"a": {"producer_byte_rate": 1000}})
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest

from tests.cluster import Cluster
from tests.support.proxy_process import SluiceProcess, SluiceSettings


def gateway_fixture(
    scope: Literal["function", "module"] = "module", *, policies: Sequence[Any] = ("kip13",), **settings: Any
) -> Any:
    """Return a fixture that starts the gateway and ends it.

    Args:
        policies: a run of the tests with each; `pytest.param` for marks.
        settings: fields of its `SluiceSettings`.
    """

    @pytest.fixture(scope=scope, params=policies if len(policies) > 1 else None)
    def sluice(
        request: pytest.FixtureRequest, kafka: Cluster, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[SluiceProcess]:
        quotas = {"policy": getattr(request, "param", policies[0]), **settings.get("quotas", {})}
        made = SluiceSettings(kafka.bootstrap(), **{**settings, "quotas": quotas})
        with SluiceProcess.configured(made, tmp_path_factory.mktemp("gateway")) as process:
            yield process

    return sluice

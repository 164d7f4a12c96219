"""What the tests of commands share."""

import pytest

from proxy.config import Config
from tests.support.command_line import sluice

__all__ = ["sluice"]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Give the configurations that would have run; there is no environment."""
    configs: list[Config] = []

    def run(config: Config) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr("proxy.app.run", run)
    monkeypatch.setattr("os.environ", {})
    return configs

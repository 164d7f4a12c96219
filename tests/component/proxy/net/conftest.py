"""Every test here runs on uvloop, the loop that the proxy runs on."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import uvloop

from tests.component.proxy.net.rig import Rig
from tests.component.proxy.net.tls_rig import Papers


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """Make pytest-asyncio use uvloop."""
    return uvloop.EventLoopPolicy()


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates of clients, of the proxy and of brokers."""
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[Rig]:
    """A client's port, a broker's port, and the proxy's own code between them."""
    made = Rig()
    yield made
    made.close()

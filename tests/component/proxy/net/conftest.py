"""Every test here runs on uvloop, the loop that the proxy runs on."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import uvloop

from tests.component.proxy.net.rig import Rig


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """Make pytest-asyncio use uvloop."""
    return uvloop.EventLoopPolicy()


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[Rig]:
    """A client's port, a broker's port, and the proxy's own code between them."""
    made = Rig()
    yield made
    made.close()

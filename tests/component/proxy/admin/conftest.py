"""Every test here runs on uvloop, the loop that the proxy runs on."""

import pytest
import uvloop


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """Make pytest-asyncio use uvloop."""
    return uvloop.EventLoopPolicy()

"""The judge, for all tests of this directory."""

from collections.abc import Iterator

import pytest

from tests.oracle.judge import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """Kafka's own message classes, of the release that `tests/cluster/pom.xml` names."""
    with Judge.start() as started:
        yield started

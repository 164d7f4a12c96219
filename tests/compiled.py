"""A plugin of pytest that tests the compiled form of the data path: `pytest -p tests.compiled`.

It loads before any conftest, so that no module of the data path is imported yet. The processes of pytest-xdist load
their plugins later than that, except those named in the environment.
"""

import os
from typing import Final

import pytest

from proxy.system import compiled

MARKER: Final = "interpreted"
_NAMED: Final = "PYTEST_PLUGINS"

compiled.install()
if compiled.form() != compiled.COMPILED:
    raise pytest.UsageError(
        "the data path is not compiled from these sources, or SLUICE_PURE is set: `make compiled`"
    )
os.environ[_NAMED] = ",".join({*filter(None, os.environ.get(_NAMED, "").split(",")), __name__})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what only the interpreted form allows."""
    left_out = [item for item in items if item.get_closest_marker(MARKER)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

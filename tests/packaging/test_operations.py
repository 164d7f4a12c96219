"""docs/operations.md: the configuration of its first hour is right (links and paths: tests/unit/test_documents.py)."""

import re
from pathlib import Path

from tests.packaging.conftest import ROOT
from tests.packaging.test_container_files import check_configuration


def test_configuration_of_the_first_hour_is_right(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.+?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "sluice.toml").write_text(re.sub(r"^ {3}", "", found[1], flags=re.MULTILINE))
    (tmp_path / "quotas.toml").write_text('[[quota]]\nclient_id = "a"\nproducer_byte_rate = "2M"\n')

    assert "is right" in check_configuration(tmp_path / "sluice.toml", {})

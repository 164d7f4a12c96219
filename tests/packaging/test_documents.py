"""The documents: links lead somewhere, files that are named exist, and the example configuration is right."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.conftest import ROOT
from tests.packaging.test_container_files import check_configuration

_DOCUMENTS: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK: Final = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")
_PATH: Final = re.compile(r"`((?:docker|docs|requirements|tests)/[\w./-]+\.[a-z]+)`")
_MADE_LATER: Final = frozenset({"tests/cluster/libs"})


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(document: Path) -> None:
    targets = [found[1] for found in _LINK.finditer(document.read_text())]

    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(document: Path) -> None:
    named = set(_PATH.findall(document.read_text())) - _MADE_LATER

    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_configuration_of_the_first_hour_is_right(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.+?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "sluice.toml").write_text(re.sub(r"^ {3}", "", found[1], flags=re.MULTILINE))
    (tmp_path / "quotas.toml").write_text('[[quota]]\nclient_id = "a"\nproducer_byte_rate = "2M"\n')

    assert "is right" in check_configuration(tmp_path / "sluice.toml", {})

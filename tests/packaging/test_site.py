"""The site of the documents: built strictly, complete, without anything from elsewhere, and searched as files."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packaging.conftest import ROOT, bare_environment, run
from tests.support.chromium import Watched, chromium

WORD = "rebootstrap"  # of one page's measurements, and of no title
BUILD = (sys.executable, "-m", "zensical", "build", "--strict", "--clean")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the site is made of."""
    made = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", made / "docs")
    shutil.copy(ROOT / "mkdocs.yml", made)
    return made


@pytest.fixture(scope="module")
def site(source: Path) -> Path:
    run(*BUILD, cwd=source)
    return source / "build" / "site"


class Lenient(yaml.SafeLoader):
    """Reads mkdocs.yml without the functions that it names."""


Lenient.add_multi_constructor("", lambda *_: None)


def pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry if isinstance(entry, list) else entry.values():
            yield from pages(inner)


def test_each_document_is_in_the_navigation_once() -> None:
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Lenient)["nav"]
    documents = (ROOT / "docs").rglob("*.md")
    assert sorted(pages(nav)) == sorted(str(path.relative_to(ROOT / "docs")) for path in documents)


def test_wrong_link_fails_the_build(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("build", ".cache"))
    with (copy / "docs" / "tutorial.md").open("a") as page:
        page.write("\n[wrong](how-to/console.md#no-such-heading)\n")
    done = subprocess.run(
        BUILD, cwd=copy, env=bare_environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "anchor does not exist" in done.stdout + done.stderr


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    made = list(site.rglob("*.html"))
    assert len(made) > 50
    for page in made:
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text, page
        assert 'rel="stylesheet" href="http' not in text, page


def test_search_index_has_the_text_of_pages(site: Path) -> None:
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    found = {item["location"].partition("#")[0] for item in index["items"] if WORD in item["text"]}
    assert "how-to/when-a-gateway-dies.html" in found


@pytest.mark.parametrize("start", ["index.html", "decisions/0001-charge-a-produce-at-its-header.html"])
def test_search_works_in_a_file(site: Path, start: str) -> None:
    with chromium() as browser:
        page = browser.new_page()
        watched = Watched(page, "file://")
        page.goto((site / start).as_uri())
        page.keyboard.press("/")
        page.get_by_placeholder("Search").wait_for()
        page.keyboard.type(WORD)
        page.locator(f"a[href*='/how-to/when-a-gateway-dies.html?h={WORD}']").first.click()
        page.wait_for_url("**/how-to/when-a-gateway-dies.html*")
        assert WORD in page.inner_text("article")
        watched.check()

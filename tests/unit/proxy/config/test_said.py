"""What is said of each configuration of `said.md`: why it is refused, what is probably a mistake, or nothing.

To change messages, change that file first, and read it from top to bottom. `SLUICE_WRITE_SAID=1` writes it.
"""

import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from proxy.config import command_line_quotas, unenforced
from proxy.system.errors import ConfigError
from tests.support.configurations import made

GOLDEN = Path(__file__).with_name("said.md")
BLOCK = re.compile(r"^```toml\n(.*?)^```\n(.*?)\n(?=\n|\Z)", re.DOTALL | re.MULTILINE)


def warnings_of(text: str) -> Iterable[str]:
    tables: dict[str, Any] = tomllib.loads(text)
    if "quota" in tables:
        return unenforced(command_line_quotas(text).entries())
    cluster = {"bootstrap": "kafka:9092", **tables.pop("cluster", {})}
    return made(cluster=cluster, **tables).warnings


def said(text: str) -> str:
    try:
        warnings = warnings_of(text)
    except ConfigError as error:
        return f"Refused: {error}"
    return "\n".join(f"Warning: {warning}" for warning in warnings) or "Nothing."


WRITTEN = GOLDEN.read_text(encoding="utf-8")
if os.environ.get("SLUICE_WRITE_SAID"):
    WRITTEN = BLOCK.sub(lambda block: f"```toml\n{block[1]}```\n{said(block[1])}\n", WRITTEN)
    GOLDEN.write_text(WRITTEN, encoding="utf-8")
BLOCKS = [block.groups() for block in BLOCK.finditer(WRITTEN)]


def test_each_block_is_read() -> None:
    assert len(BLOCKS) == WRITTEN.count("```toml\n") > 180
    assert not [words for _, words in BLOCKS if "very-secret" in words or "hush" in words]


@pytest.mark.parametrize(("text", "words"), BLOCKS, ids=[words[:70] for _, words in BLOCKS])
def test_what_is_said_was_read_and_found_good(text: str, words: str) -> None:
    assert said(text) == words

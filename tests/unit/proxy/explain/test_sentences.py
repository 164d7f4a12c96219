"""The sentence of each situation (`tests.support.situations`), as `sentences.md` has it.

To change sentences, change that file first, and read it from top to bottom. `SLUICE_WRITE_SENTENCES=1` writes it.
"""

import os
from pathlib import Path

from proxy.explain.explanation import explain
from tests.support.situations import situations

GOLDEN = Path(__file__).with_name("sentences.md")
HEAD = "# What is said of made-up clients (`test_sentences.py`)\n"


def test_sentences_are_those_that_were_read_and_found_good() -> None:
    found = HEAD + "".join(
        f"\n**{name}**: {explain(client, context).sentence}\n" for name, client, context in situations()
    )
    if os.environ.get("SLUICE_WRITE_SENTENCES"):
        GOLDEN.write_text(found)
    assert found.split("\n") == GOLDEN.read_text().split("\n")


def test_there_are_situations_enough_and_none_twice() -> None:
    names = [name for name, _, _ in situations()]
    assert len(names) >= 40
    assert len(set(names)) == len(names)

"""What is generated of the reference is up to date, and complete."""

import json
import re
from pathlib import Path

import pytest

from tests.support.reference import DOCS, PATHS, generated

FILES = generated()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_generated_file_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == FILES[path], "run `make reference`"


def test_schema_has_every_path_of_the_document() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `((?:POST )?/v1/\w+)` \|", text, re.MULTILINE)) == set(PATHS)


def test_schema_has_what_it_refers_to() -> None:
    schema = json.loads((DOCS / "v1.schema.json").read_text(encoding="utf-8"))
    referred = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert referred <= set(schema["$defs"])
    assert set(PATHS) <= set(schema["properties"])

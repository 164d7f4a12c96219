"""No file and no function is longer than CONTRIBUTING.md allows: what grows past that holds two concepts."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ("protocol", "quotas", "commandline", "kafka_client", "proxy", "offline")
FUNCTION_LINES_MAX: Final = 69
# The composition root lists what it builds, in the order in which the parts need each other.
LONGER: Final = {("proxy/app.py", "__init__"): 86}


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in (ROOT / folder).rglob("*.py") if "libs" not in path.parts)


@pytest.mark.parametrize(("folders", "lines_max"), [(PRODUCT, 400), (("tests",), 600)])
def test_files_are_short(folders: tuple[str, ...], lines_max: int) -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(*folders)}
    assert len(lines) > 300
    assert [str(path.relative_to(ROOT)) for path, count in lines.items() if count > lines_max] == []


def test_functions_are_short() -> None:
    functions = [
        (str(path.relative_to(ROOT)), node.name, (node.end_lineno or 0) - node.lineno + 1)
        for path in modules(*PRODUCT, "tests")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > 5000
    assert [
        found for found in functions if found[2] > LONGER.get((found[0], found[1]), FUNCTION_LINES_MAX)
    ] == []

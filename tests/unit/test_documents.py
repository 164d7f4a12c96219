"""The documents name tests, files, classes and methods that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("protocol", "quotas", "commandline", "kafka_client", "proxy", "offline")
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_paths_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = re.findall(
        r"`((?:protocol|quotas|commandline|kafka_client|proxy|offline|tests|docker|docs)/[\w./-]*)`", text
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    path = ROOT / document
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def defined() -> tuple[dict[str, list[ast.ClassDef]], set[str]]:
    """Every class of the product by its name, and every function as `module.function`."""
    classes: dict[str, list[ast.ClassDef]] = {}
    functions = set()
    for path in (path for package in PRODUCT for path in (ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.add(f"{path.stem}.{node.name}")
    return classes, functions


def has(classes: dict[str, list[ast.ClassDef]], name: str, attribute: str) -> bool:
    """Whether a class of this name, or one of its bases, has such a method or attribute."""
    for cls in classes.get(name, []):
        for node in ast.walk(cls):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == attribute:
                return True
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == attribute:
                return True
        if any(has(classes, ast.unparse(base).partition("[")[0], attribute) for base in cls.bases):
            return True
    return False


def test_architecture_names_functions_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    classes, functions = defined()
    methods = re.findall(r"`(_?[A-Z]\w*)\.(\w+)`", text)
    assert len(methods) > 40, "the document names its functions otherwise than this test thinks"
    assert [f"{name}.{attribute}" for name, attribute in methods if not has(classes, name, attribute)] == []
    steps = text.partition("## Four requests, function by function")[2].partition("\n## ")[0]
    called = re.findall(r"`([a-z]\w*\.(?!py)\w+)`", steps)
    assert called
    assert set(called) - functions == set()

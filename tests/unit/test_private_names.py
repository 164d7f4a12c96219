"""No test reads, calls, replaces or imports a private name of another module: it would nail the inside down.

What a test wants to see is at the edge: bytes on the wire, what the shell sees, a figure of /metrics or /v1, a return
value. What is worth looking at and is nowhere there becomes a public, read-only property; a limit that tests vary is a
public constant.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
REPLACING: Final = frozenset(("setattr", "getattr", "delattr", "hasattr", "patch", "object"))

# Names with an underscore that are public all the same, or have no public equivalent.
ALLOWED: Final = {
    "os": {"_exit"},  # documented: ends a process without the clean-up
    "a named tuple": {"_asdict", "_fields", "_make", "_replace"},  # documented: no field can have such a name
    "argparse": {"_SubParsersAction", "_actions", "_expand_help", "_get_formatter"},  # it lists its options nowhere
    "asyncio": {"_ready", "_run_once", "_scheduled"},  # a loop whose clock jumps to what is due next
    "kafka-python": {"_class_version", "_struct", "_type_str"},  # its schemas show their fields nowhere else
}  # fmt: skip
PUBLIC: Final = frozenset().union(*ALLOWED.values())
# It puts defects into the inside on purpose.
INSIDE: Final = Path("simulation/test_seeded_defects.py")
# The client's own error codes have an underscore: `KafkaError._TIMED_OUT`.
PUBLIC_CLASSES: Final = frozenset(("KafkaError",))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def names_of(cls: ast.ClassDef) -> set[str]:
    """The methods, fields and attributes that a class defines."""
    methods = {node.name for node in cls.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    fields = {ast.unparse(node.target) for node in cls.body if isinstance(node, ast.AnnAssign)}
    fields |= {
        ast.unparse(name) for node in cls.body if isinstance(node, ast.Assign) for name in node.targets
    }
    stored = {
        node.attr
        for node in ast.walk(cls)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return methods | fields | stored


def own_names(tree: ast.Module) -> dict[ast.AST, set[str]]:
    """For every node within a class, what the class and its bases in the same module define."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    defined = {cls.name: names_of(cls) for cls in classes}
    return {
        node: defined[cls.name].union(
            *(defined.get(ast.unparse(base).partition("[")[0], set()) for base in cls.bases)
        )
        for cls in classes
        for node in ast.walk(cls)
    }


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each private name of another module."""
    own = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            receiver = ast.unparse(node.value)
            if receiver in ("self", "cls", "super()") and node.attr in own.get(node, set()):
                continue
            if receiver not in PUBLIC_CLASSES:
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from ((node.lineno, name) for name in parts if is_private(name))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in REPLACING:
            for word in node.args[:2]:
                if isinstance(word, ast.Constant) and isinstance(word.value, str):
                    yield from ((node.lineno, name) for name in word.value.split(".") if is_private(name))


def test_no_test_uses_a_private_name_of_another_module() -> None:
    paths = [
        path
        for path in sorted(TESTS.rglob("*.py"))
        if "libs" not in path.relative_to(TESTS).parts and path.relative_to(TESTS) != INSIDE
    ]
    assert len(paths) > 300
    found = {
        (str(path.relative_to(TESTS)), line, name)
        for path in paths
        if path.relative_to(TESTS) != INSIDE
        for line, name in private_names(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("pump._unsent", ["_unsent"]),
        ("rig.connection.responses._unsent", ["_unsent"]),
        ("cls._secret", ["_secret"]),
        ("from proxy.net.pump import _LIMIT", ["_LIMIT"]),
        ("from proxy._inside import LIMIT", ["_inside"]),
        ('monkeypatch.setattr(module, "_LIMIT", 1)', ["_LIMIT"]),
        ('monkeypatch.setattr("proxy.system.files._LIMIT", 1)', ["_LIMIT"]),
        ('getattr(rate, "_reserved", 0)', ["_reserved"]),
        ("class Loud(Pump):\n    def say(self):\n        return self._unsent", ["_unsent"]),
        ("class Own:\n    def __init__(self):\n        self._kept = 1\n        self._kept += 1", []),
        ("class One:\n    _kept = 1\nclass Two(One):\n    def say(self):\n        return self._kept", []),
        ("row._replace(size=1)", []),
        ("error.code() == KafkaError._TIMED_OUT", []),
        ("pump.__class__", []),
    ],
)
def test_private_names_are_found(source: str, names: list[str]) -> None:
    assert [name for _, name in private_names(ast.parse(source))] == names

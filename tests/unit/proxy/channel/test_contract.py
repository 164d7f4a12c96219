"""The shell sees verbs and verdicts of a channel, and no attribute of the machine (`proxy.channel.channel`).

mypy finds what no type of the contract has. What mypy would let pass is found here: a shell that writes a field of a
verdict, or that imports a part of the machine itself.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from proxy import channel, net
from proxy.channel import Direction, Machine, Verdict
from proxy.channel.direction import ChannelState

NET: Final = sorted(Path(net.__path__[0]).glob("*.py"))
TESTS: Final = Path(__file__).parents[3]
# What a module of the shell calls an object of the contract.
OBJECTS: Final = {"direction": Direction, "channel": Machine, "verdict": Verdict}
VERBS_MAX: Final = 15
# The machine's own classes, which the package does not offer.
MACHINE: Final = frozenset(("ChannelState", "ChannelDirection", "RequestDirection", "ResponseDirection"))


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in NET:
        yield path.name, ast.parse(path.read_text(encoding="utf-8"))


def name_of(node: ast.expr) -> str:
    """The last name of an expression such as `self.direction`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def uses() -> Iterator[tuple[str, ast.Attribute]]:
    """Every attribute of an object of the contract that a module of the shell names."""
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and name_of(node.value) in OBJECTS:
                yield f"{file}:{node.lineno} {name_of(node.value)}.{node.attr}", node


def fields(contract: type) -> set[str]:
    return {
        name for name in (*dir(contract), *getattr(contract, "__slots__", ())) if not name.startswith("_")
    }


def test_shell_uses_the_contract_alone() -> None:
    allowed = {name: fields(contract) for name, contract in OBJECTS.items()}
    found = [(place, name_of(node.value), node.attr) for place, node in uses()]
    assert len(found) > 50, "the shell calls its objects otherwise than this test thinks"
    assert [place for place, name, attr in found if attr not in allowed[name]] == []


def test_contract_is_small_and_used() -> None:
    members = {
        f"{name}.{attr}"
        for name, contract in OBJECTS.items()
        if contract is not Verdict
        for attr in fields(contract)
    } - {"direction.verdict"}  # the one result
    assert len(members) <= VERBS_MAX, members
    used = {f"{name_of(node.value)}.{node.attr}" for _, node in uses()}
    assert members <= used


def test_shell_writes_no_field_of_a_channel() -> None:
    assert [place for place, node in uses() if not isinstance(node.ctx, ast.Load)] == []


def test_shell_imports_the_package_alone() -> None:
    imports = [
        (f"{file}:{node.lineno}", node.module, alias.name)
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("proxy.channel")
        for alias in node.names
    ]
    assert imports
    assert [one for one in imports if one[1] != "proxy.channel" or one[2] in MACHINE] == []


@pytest.mark.parametrize("name", ["ChannelDirection", "ChannelState"])
def test_package_does_not_offer_the_machines_inside(name: str) -> None:
    assert name not in channel.__all__


def test_shell_makes_channels_and_knows_them_by_the_contract_alone() -> None:
    nodes = [node for _, tree in trees() for node in ast.walk(tree)]
    named = [node for node in nodes if isinstance(node, ast.Name) and node.id == "Channel"]
    made = [
        node.value.func
        for node in nodes
        if isinstance(node, ast.Assign)
        and [name_of(target) for target in node.targets] == ["channel"]
        and isinstance(node.value, ast.Call)
    ]
    assert named == made
    fields_of_type = [
        node for node in nodes if isinstance(node, ast.AnnAssign) and name_of(node.target) == "channel"
    ]
    assert [name_of(node.annotation) for node in fields_of_type] == ["Machine"]


def test_tests_do_not_look_into_a_channel() -> None:
    # What a channel was made with, and nothing that changes.
    made_with = {"settings", "engine", "sessions", "stats"}
    inside = fields(ChannelState) - fields(Machine) - made_with
    found = {
        f"{path.relative_to(TESTS.parent)}:{node.lineno} {node.attr}"
        for path in TESTS.rglob("*.py")
        if path.name != "playbook.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in inside and name_of(node.value) == "channel"
    }
    assert found == set()

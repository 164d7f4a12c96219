"""hatch_build.py: what mypyc gets to compile is the same program, with the same lines."""

import ast
import dataclasses
import inspect
from dataclasses import MISSING
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest

from hatch_build import Lowering, sources

ROOT: Final = Path(__file__).parents[2]

HEAD: Final = """\
from dataclasses import InitVar, dataclass, field
from typing import ClassVar


"""
PUMP: Final = f'''\
{HEAD}@dataclass(slots=True, eq=False)
class Pump:
    """Moves bytes.

    Args:
        size: of its view.
    """

    owner: str
    size: InitVar[int]
    most: int = 5
    kinds: ClassVar[tuple[str, ...]] = ("a", "b")
    names: list[str] = field(default_factory=list)
    _seen: dict[str, int] = field(init=False, default_factory=dict)
    _total: int = field(init=False, default=0)  # of all reads
    _view: bytes = field(init=False)

    def __post_init__(self, size: int) -> None:
        self._view = bytes(size)
'''
LOWERED_PUMP: Final = f'''\
{HEAD}
class Pump:
    """Moves bytes.

    Args:
        size: of its view.
    """
    def __init__(self, owner: str, size: int, most: int = 5, names: list[str] | None = None) -> None: \
self.owner = owner; self.most = most; self.names = (list)() if names is None else names; \
self._seen = (dict)(); self._total = 0; self.__post_init__(size)
    owner: str

    most: int
    kinds: ClassVar[tuple[str, ...]] = ("a", "b")
    names: list[str]
    _seen: dict[str, int]
    _total: int
    _view: bytes

    def __post_init__(self, size: int) -> None:
        self._view = bytes(size)
'''
SLOW_PUMP: Final = '''\
@dataclass(slots=True, eq=False)
class SlowPump(Pump):
    """Moves them slowly."""

    pause_ms: int = 9
    turns: list[int] = field(
        init=False,
        default_factory=lambda: [1],
    )

    def slower(self) -> int:
        return self.pause_ms + self.most
'''
LOWERED_SLOW_PUMP: Final = '''\

class SlowPump(Pump):
    """Moves them slowly."""
    def __init__(self, owner: str, size: int, most: int = 5, names: list[str] | None = None, \
pause_ms: int = 9) -> None: \
self.owner = owner; self.most = most; self.names = (list)() if names is None else names; \
self._seen = (dict)(); self._total = 0; self.pause_ms = pause_ms; self.turns = (lambda: [1])(); \
self.__post_init__(size)
    pause_ms: int
    turns: list[int]




    def slower(self) -> int:
        return self.pause_ms + self.most
'''


def lowered(*texts: str) -> list[str]:
    """What becomes of these modules."""
    lowering = Lowering()
    for text in texts:
        lowering.learn(text)
    return [lowering.lowered(text) for text in texts]


def run(*texts: str) -> dict[str, Any]:
    """The names of these modules, each of which sees those before it."""
    names: dict[str, Any] = {"__name__": "lowered"}
    for text in texts:
        exec(compile(text, "lowered.py", "exec"), names)
    return names


def attributes(made: object) -> dict[str, object]:
    """The values of all attributes that are no methods."""
    found = {name: getattr(made, name, None) for name in dir(made) if not name.startswith("__")}
    return {name: value for name, value in found.items() if not callable(value)}


def test_initialization_of_a_dataclass_is_written_out() -> None:
    assert lowered(PUMP) == [LOWERED_PUMP]


def test_initialization_contains_what_a_dataclass_of_an_earlier_module_has() -> None:
    assert lowered(PUMP, SLOW_PUMP) == [LOWERED_PUMP, LOWERED_SLOW_PUMP]


def test_dataclass_without_fields_is_initialized_too() -> None:
    text = 'class A:\n    """A."""\n\n    kinds: ClassVar[int] = 1\n'
    assert lowered("@dataclass(slots=True, eq=False)\n" + text) == [
        '\nclass A:\n    """A."""\n    def __init__(self) -> None: pass\n    kinds: ClassVar[int] = 1\n'
    ]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [(("a", 3), {}), (("a", 3, 7, ["b"]), {}), (("a",), {"names": ["b"], "size": 0}), (("a", 1, 2, []), {})],
)
@pytest.mark.parametrize("name", ["Pump", "SlowPump"])
def test_lowered_class_makes_the_same_objects(
    name: str, arguments: tuple[object, ...], options: dict[str, object]
) -> None:
    of_source, of_lowered = run(PUMP, SLOW_PUMP), run(*lowered(PUMP, SLOW_PUMP))
    made, same = (names[name](*arguments, **options) for names in (of_source, of_lowered))
    expected = attributes(made)
    assert expected["owner"] == "a"
    assert attributes(same) == expected
    taken = [[*inspect.signature(names[name]).parameters] for names in (of_source, of_lowered)]
    assert taken[0] == taken[1]


@pytest.mark.parametrize("name", ["Pump", "SlowPump"])
def test_objects_of_a_lowered_class_share_no_default(name: str) -> None:
    made = run(*lowered(PUMP, SLOW_PUMP))[name]
    one, two = made("a", 1), made("a", 1)
    one.names.append("b")
    assert two.names == []
    assert one != two  # as with eq=False


def test_empty_line_is_needed_behind_the_docstring() -> None:
    with pytest.raises(SystemExit, match="line 4: an empty line after the docstring of A is needed"):
        lowered('@dataclass(slots=True, eq=False)\nclass A:\n    """A."""\n    size: int\n')


@pytest.mark.parametrize(
    ("decorator", "expected"),
    [
        ("@dataclass(frozen=True, slots=True)", "@dataclass(frozen=True)"),
        ("@dataclass(slots=True)", "@dataclass"),
        ("@dataclass(frozen=True)", "@dataclass(frozen=True)"),
        ("@final", "@final"),
    ],
)
def test_other_dataclass_loses_its_slots_and_nothing_else(decorator: str, expected: str) -> None:
    rest = 'class A:\n    """A."""\n\n    size: int = 3\n    names: list[str] = field(default_factory=list)\n'
    assert lowered(f"{decorator}\n{rest}") == [f"{expected}\n{rest}"]


def test_annotations_of_a_named_tuple_are_quoted() -> None:
    text = '''\
from typing import NamedTuple


class Head(NamedTuple):
    """The head."""

    size: int
    quota: float | None = None  # bytes/s
    kind: "str" = ""
    keys: dict[str, int] = {"a": 1}

    def twice(self) -> int:
        return 2 * self.size
'''
    assert lowered(text) == [
        text.replace("NamedTuple\n", "NamedTuple, Union as _Union\n")
        .replace("size: int\n", "size: 'int'\n")
        .replace("float | None =", "'_Union[float, None]' =")
        .replace("dict[str, int] =", "'dict[str, int]' =")
    ]
    one, other = (run(each)["Head"](3) for each in (text, *lowered(text)))
    assert (other, other.twice(), other._fields) == (one, 6, one._fields)
    names = run(*lowered(text))
    assert get_type_hints(type(other), names) == get_type_hints(type(one))


def test_class_with_a_base_and_a_call_is_refused() -> None:
    with pytest.raises(SystemExit, match="B has a base class and __call__, which mypyc does not compile"):
        lowered("class A:\n    pass\nclass B(A):\n    def __call__(self) -> None:\n        pass\n")
    text = "class A:\n    def __call__(self) -> None:\n        pass\n"
    assert lowered(text) == [text]


@pytest.mark.interpreted
def test_initialization_of_each_compiled_class_is_that_of_its_dataclass() -> None:
    lowering, compared = Lowering(), 0
    for path in sources(ROOT):
        lowering.learn((ROOT / path).read_text())
    for path in sources(ROOT):
        text = (ROOT / path).read_text()
        module = import_module(path.removesuffix(".py").replace("/", "."))
        lowered = {
            node.name: node
            for node in ast.parse(lowering.lowered(text)).body
            if isinstance(node, ast.ClassDef)
        }
        for node in ast.parse(text).body:
            decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", ())]
            if not isinstance(node, ast.ClassDef) or not any("eq=False" in each for each in decorators):
                continue
            (init,) = (
                each
                for each in lowered[node.name].body
                if isinstance(each, ast.FunctionDef) and each.name == "__init__"
            )
            made = getattr(module, node.name)
            parameters = inspect.signature(made).parameters.values()
            assert [each.arg for each in init.args.args[1:]] == [each.name for each in parameters]
            defaults = len([each for each in parameters if each.default is not inspect.Parameter.empty])
            assert len(init.args.defaults) == defaults
            assert [ast.unparse(step.targets[0]) for step in init.body if isinstance(step, ast.Assign)] == [
                f"self.{each.name}"
                for each in dataclasses.fields(made)
                if each.init or each.default != MISSING or each.default_factory != MISSING
            ]
            assert hasattr(made, "__post_init__") == ("__post_init__" in ast.unparse(init.body[-1]))
            compared += 1
    assert compared > 20


def test_lines_of_what_is_compiled_stay_where_they_are() -> None:
    paths = sources(ROOT)
    texts = [(ROOT / path).read_text() for path in paths]
    for path, text, after in zip(paths, texts, lowered(*texts), strict=True):
        compile(after, path, "exec")
        assert after.count("\n") == text.count("\n"), path
        kept = [
            (number, line)
            for number, line in enumerate(text.splitlines())
            if line.lstrip().startswith(("def ", "class ", "return "))
        ]
        lines = after.splitlines()
        assert [(number, lines[number]) for number, _ in kept] == kept, path


def test_modules_that_see_every_frame_are_compiled() -> None:
    paths = sources(ROOT)
    assert {"proxy/net/pump.py", "proxy/channel/direction.py", "quotas/engine.py"} <= set(paths)
    assert not [path for path in paths if path.endswith(("__init__.py", "/errors.py", "/settings.py"))]

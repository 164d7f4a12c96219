"""Compiles the modules that see every frame, with mypyc, from the same sources that run without it.

    python hatch_build.py                          into proxy/compiled, for this checkout (`make compiled`)
    SLUICE_COMPILE=1 python -m build --wheel       a wheel with them, for one Python and platform; without, a pure one

What is compiled is closed under inheritance: an interpreted class cannot inherit from a compiled one.
`proxy.system.compiled` loads the result, unless a source has changed since (`manifest.json`).
"""

import ast
import hashlib
import json
import os
import shutil
import sys
import sysconfig
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
TARGET = Path("proxy") / "compiled"
MODULES = (
    "quotas/limiters/*.py",
    "quotas/throttles/*.py",
    "quotas/engine.py",
    "proxy/system/stats.py",
    "proxy/channel/*.py",
    "proxy/channel/handlers/*.py",
    "proxy/net/pump.py",
    "proxy/net/shared.py",
)
# Not per frame. An interpreted class inherits from one in topic_names.py; settings.py has values that cross processes,
# whose types are read at run time.
_LEFT_OUT = ("__init__.py", "errors.py", "settings.py", "topic_names.py")
# As locked: what a release of mypyc compiles wrongly is only known after all tests.
COMPILERS = ("mypy==2.4.1", "setuptools>=77")
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
_LEVEL = os.environ.get("SLUICE_COMPILE_LEVEL", "2")  # of the C compiler's optimization
# What the modules import, for its types.
_PACKAGES = ("commandline", "protocol", "proxy", "quotas")
_UNION = "_Union"


def sources(root: Path) -> list[str]:
    """Return the paths of the modules that are compiled."""
    found = [path for pattern in MODULES for path in sorted(root.glob(pattern))]
    return [path.relative_to(root).as_posix() for path in found if path.name not in _LEFT_OUT]


def build(root: Path, target: Path) -> bool:
    """Compile into `target`, which is replaced; False if it is there already, for this Python and these sources.

    Raises:
        SystemExit: mypyc refuses a module, or there is no C compiler.
    """
    paths = sources(root)
    manifest = {
        "modules": dict.fromkeys(paths, _SUFFIX),
        "sources": {path: _digest(root / path) for path in closure(root, paths)},
        "tools": {"mypy": version("mypy"), "level": _LEVEL, "hatch_build.py": _digest(Path(__file__))},
    }
    made = target / "manifest.json"
    if made.is_file() and json.loads(made.read_text()) == manifest:
        return False
    import setuptools  # noqa: F401 - imported first, so that mypyc uses it and not distutils
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="sluice-mypyc-") as name:
        work = Path(name)
        ignored = shutil.ignore_patterns("__pycache__", target.name)
        for package in _PACKAGES:
            shutil.copytree(root / package, work / package, ignore=ignored)
        shutil.copy(root / "pyproject.toml", work)
        lowering = Lowering()
        texts = {path: (root / path).read_text() for path in paths}
        for text in texts.values():
            lowering.learn(text)
        for path, text in texts.items():
            (work / path).write_text(lowering.lowered(text))
        os.chdir(work)  # mypyc finds modules from here
        try:
            options = [f"--python-version=3.{sys.version_info.minor}", f"--cache-dir={work}/cache"]
            extensions = mypycify(
                [*options, *paths],
                target_dir=f"{work}/c",
                group_name="sluice",
                debug_level="0",
                opt_level=_LEVEL,
            )
            for extension in extensions:  # no name of this directory in the result: the same bytes each time
                extension.extra_compile_args.append(f"-ffile-prefix-map={work}=.")
            command = build_ext(Distribution({"name": "sluice", "ext_modules": extensions}))
            command.build_lib, command.build_temp = f"{work}/lib", f"{work}/temp"
            command.ensure_finalized()
            command.run()
        finally:
            os.chdir(before)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(work / "lib", target)
    made.write_text(json.dumps(manifest, indent=0))
    return True


def closure(root: Path, paths: list[str]) -> list[str]:
    """Return these modules and all that they import of ours: mypyc writes constants of either into the result."""
    found: set[str] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse((root / path).read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                base = name.replace(".", "/")
                waiting += [end for end in (f"{base}.py", f"{base}/__init__.py") if (root / end).is_file()]
    return sorted(found)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class _Field:
    """A field of a dataclass, as source."""

    name: str
    annotation: str
    default: str | None = None
    factory: str | None = None
    in_init: bool = True
    init_only: bool = False


@dataclass
class _Class:
    """What a subclass has to know of a dataclass."""

    fields: list[_Field] = field(default_factory=list)
    post_init: bool = False


class Lowering:
    """Rewrites what mypyc cannot compile, or compiles badly, line by line: a traceback's line numbers stay true.

    - `@dataclass(slots=True, eq=False)`: mypyc keeps its `__init__` interpreted, and refuses slots. It is written out.
    - Other dataclasses lose their slots: a compiled class has no `__dict__` anyway.
    - Annotations of a NamedTuple are quoted, and unions written as `Union`: mypyc replaces others by a class or by
      `type`, and `proxy.process.messages` reads them.
    """

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}

    def learn(self, text: str) -> None:
        """Learn a module's dataclasses, whose subclasses may be in a later module."""
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and _lowerable(node) is not None:
                found = _Class()
                for base in node.bases:
                    known = self._classes.get(ast.unparse(base))
                    if known is not None:
                        found.fields += known.fields
                        found.post_init |= known.post_init
                found.fields += [made for _, made in _fields(node)]
                found.post_init |= any(
                    isinstance(each, ast.FunctionDef) and each.name == "__post_init__" for each in node.body
                )
                self._classes[node.name] = found

    def lowered(self, text: str) -> str:
        """Return a module that mypyc can compile, with as many lines."""
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and "NamedTuple" in {name.name for name in node.names}:
                imported = lines[node.lineno - 1]
                lines[node.lineno - 1] = imported.replace("NamedTuple", f"NamedTuple, Union as {_UNION}")
            if not isinstance(node, ast.ClassDef):
                continue
            if node.bases and any(
                isinstance(each, ast.FunctionDef) and each.name == "__call__" for each in node.body
            ):
                # mypyc 2.4 puts it before the attributes of the base class, whose methods then write over it.
                raise SystemExit(
                    f"{node.name} has a base class and __call__, which mypyc does not compile correctly"
                )
            decorator = _lowerable(node)
            if decorator is not None:
                lines[decorator.lineno - 1] = ""
                self._write_out(node, lines)
            elif any(ast.unparse(base) == "NamedTuple" for base in node.bases):
                _quote(node, lines)
            else:
                for each in node.decorator_list:
                    line = lines[each.lineno - 1]
                    lines[each.lineno - 1] = line.replace(", slots=True", "").replace("(slots=True)", "")
        return "\n".join(lines) + "\n"

    def _write_out(self, node: ast.ClassDef, lines: list[str]) -> None:
        """Replace the fields by declarations, and put `__init__` where the empty line after the docstring is."""
        for statement, made in _fields(node):
            lines[statement.lineno - 1] = "" if made.init_only else f"    {made.name}: {made.annotation}"
            for number in range(statement.lineno, statement.end_lineno or 0):
                lines[number] = ""
        after = node.body[0].end_lineno or 0
        if lines[after].strip():
            raise SystemExit(f"line {after + 1}: an empty line after the docstring of {node.name} is needed")
        lines[after] = "    " + _init(self._classes[node.name])


def _lowerable(node: ast.ClassDef) -> ast.expr | None:
    for each in node.decorator_list:
        if ast.unparse(each) == "dataclass(slots=True, eq=False)":
            return each
    return None


def _fields(node: ast.ClassDef) -> list[tuple[ast.AnnAssign, _Field]]:
    found = []
    for each in node.body:
        if not isinstance(each, ast.AnnAssign) or "ClassVar" in ast.unparse(each.annotation):
            continue
        made = _Field(ast.unparse(each.target), ast.unparse(each.annotation))
        if made.annotation.startswith("InitVar["):
            made.annotation, made.init_only = made.annotation[len("InitVar[") : -1], True
        if isinstance(each.value, ast.Call) and ast.unparse(each.value.func) == "field":
            given = {word.arg: word.value for word in each.value.keywords}
            made.in_init = "init" not in given
            made.default = ast.unparse(given["default"]) if "default" in given else None
            made.factory = ast.unparse(given["default_factory"]) if "default_factory" in given else None
        elif each.value is not None:
            made.default = ast.unparse(each.value)
        found.append((each, made))
    return found


def _init(known: _Class) -> str:
    """Return `__init__` as dataclasses make it, in one line."""
    parameters, steps, passed = [], [], []
    for each in known.fields:
        if each.in_init:
            if each.factory is not None:
                parameters.append(f"{each.name}: {each.annotation} | None = None")
            else:
                default = "" if each.default is None else f" = {each.default}"
                parameters.append(f"{each.name}: {each.annotation}{default}")
        if each.init_only:
            passed.append(each.name)
        elif each.factory is not None:
            made = f"({each.factory})()"
            if each.in_init:
                made += f" if {each.name} is None else {each.name}"
            steps.append(f"self.{each.name} = {made}")
        elif each.in_init:
            steps.append(f"self.{each.name} = {each.name}")
        elif each.default is not None:
            steps.append(f"self.{each.name} = {each.default}")
    if known.post_init:
        steps.append(f"self.__post_init__({', '.join(passed)})")
    return f"def __init__({', '.join(['self', *parameters])}) -> None: {'; '.join(steps) or 'pass'}"


def _quote(node: ast.ClassDef, lines: list[str]) -> None:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and not isinstance(each.annotation, ast.Constant):
            line, (start, end) = each.lineno - 1, (each.annotation.col_offset, each.annotation.end_col_offset)
            lines[line] = f"{lines[line][:start]}{_named(each.annotation)!r}{lines[line][end:]}"


def _named(annotation: ast.expr) -> str:
    """Return an annotation as source that begins with a name."""
    members = [annotation]
    while isinstance(first := members[0], ast.BinOp):
        members[:1] = [first.left, first.right]
    joined = ", ".join(map(ast.unparse, members))
    return joined if len(members) == 1 else f"{_UNION}[{joined}]"


def _wanted() -> bool:
    return os.environ.get("SLUICE_COMPILE") == "1"


class CompiledHook(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel when SLUICE_COMPILE=1 is set."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what compiling needs: mypyc, and the packages whose types it reads."""
        return [*COMPILERS, *self.metadata.core.dependencies] if _wanted() else []

    def initialize(self, kind: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this Python and platform."""
        if kind == "editable" or not _wanted():
            return
        target = Path(self.root) / TARGET
        build(Path(self.root), target)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(target)] = TARGET.as_posix()


if __name__ == "__main__":
    made = "compiled" if build(ROOT, ROOT / TARGET) else "are compiled already"
    sys.stdout.write(f"{len(sources(ROOT))} modules {made}: {TARGET}\n")

"""Loads the compiled form of the data path's modules, where there is one (`hatch_build.py`, docs/decisions/0018).

Source and compiled form are the same program. The compiled one is used if it was made for this Python from exactly
these sources and what they import, whose constants are in it. `SLUICE_PURE=1` in the environment leaves it aside. All
of the modules are compiled, or none: an interpreted class cannot inherit from a compiled one.
"""

import hashlib
import importlib.abc
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

COMPILED: Final = "compiled"
INTERPRETED: Final = "interpreted"

_NAME: Final = "proxy/compiled"
_DIRECTORY: Final = Path(__file__).parents[1] / "compiled"
_GROUP: Final = "sluice__mypyc"  # the extension that all of the modules are in


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the compiled modules before their sources are found."""

    def __init__(self, modules: dict[str, str]) -> None:
        self.modules = modules  # by name: the path of the extension

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the interface's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return how to load a compiled module; None for any other one."""
        found = self.modules.get(fullname)
        if found is None:
            return None
        return spec_from_file_location(fullname, found, loader=ExtensionFileLoader(fullname, found))


def install(directory: Path = _DIRECTORY) -> None:
    """Use the compiled modules from now on, if they can be used; nothing once a module of the data path is imported.

    Args:
        directory: what `hatch_build.py` has made, in the package `proxy`.
    """
    if _pure() or problem(directory) is not None:
        return
    modules = _modules(directory, _manifest(directory))
    if not modules.keys() & sys.modules.keys():
        sys.meta_path.insert(0, _Finder(modules))


def form() -> str:
    """Return how this process runs the data path: COMPILED or INTERPRETED."""
    found = any(isinstance(finder, _Finder) for finder in sys.meta_path)
    return COMPILED if found else INTERPRETED


def warning(directory: Path = _DIRECTORY) -> str:
    """Return why the compiled modules are not used although they are there, for people; "" if that is as wanted."""
    found = "" if _pure() or form() == COMPILED else problem(directory)
    return f"{_NAME} is not used: {found} (`make compiled`)" if found else ""


def problem(directory: Path = _DIRECTORY) -> str | None:
    """Return why compiled modules cannot be used: "" if there are none, None if they can."""
    try:
        manifest = _manifest(directory)
    except FileNotFoundError:
        return ""
    except ValueError as error:
        return f"its manifest cannot be read: {error}"
    root = directory.parents[1]
    if any(_digest(root / path) != digest for path, digest in manifest["sources"].items()):
        return "its sources have changed since it was made"
    if not all(map(os.path.isfile, _modules(directory, manifest).values())):
        return "it was made for another Python"
    return None


def _pure() -> bool:
    return os.environ.get("SLUICE_PURE") == "1"


def _manifest(directory: Path) -> dict[str, dict[str, str]]:
    """Return what was compiled: `sources`, the SHA-256 by path of each file that the result depends on; `modules`."""
    found: dict[str, dict[str, str]] = json.loads((directory / "manifest.json").read_text())
    return found


def _digest(source: Path) -> str:
    """Return the SHA-256 of a source; "" if it is gone, as after a switch to another revision."""
    return hashlib.sha256(source.read_bytes()).hexdigest() if source.is_file() else ""


def _modules(directory: Path, manifest: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the path of each compiled module's extension, by the module's name."""
    names = [_GROUP, *(path.removesuffix(".py").replace("/", ".") for path in manifest["modules"])]
    return {name: str(directory.joinpath(*name.split("."))) + EXTENSION_SUFFIXES[0] for name in names}

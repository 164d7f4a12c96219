"""Inputs that are kept: one text file a target, an input a line in base64, so that a change of one shows as one line.

    python -m tests.fuzz.seeds      puts the frames that tests use before them, those already kept behind
    python -m tests.fuzz.minimise   keeps few of what a run has found, by the lines of code that they reach

The fuzzer works on directories of files, under `build/fuzz`; they begin with what is kept here.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).resolve().parent / "corpus"


def _path(target: str) -> Path:
    return CORPUS / f"{target}.txt"


def read(target: str) -> list[bytes]:
    """The inputs of a target, in their order; none where none are kept."""
    path = _path(target)
    return [b64decode(line) for line in path.read_text().splitlines()] if path.exists() else []


def write(target: str, inputs: Iterable[bytes]) -> int:
    """Keep these; gives the size of the file."""
    CORPUS.mkdir(exist_ok=True)
    return _path(target).write_text("".join(f"{b64encode(one).decode()}\n" for one in dict.fromkeys(inputs)))


def unpack(target: str, directory: Path) -> None:
    """Put a target's inputs where the fuzzer wants them, beside what it has found before."""
    directory.mkdir(parents=True, exist_ok=True)
    for one in read(target):
        (directory / hashlib.sha1(one, usedforsecurity=False).hexdigest()).write_bytes(one)


def read_directory(directory: Path) -> list[bytes]:
    """What a fuzzer has found."""
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.is_dir() else []

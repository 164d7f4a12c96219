"""Commands as documents print them: taken out of Markdown or a comment, and carried out one by one.

    shell = PrintedShell(directory, {"localhost:9092": kafka.bootstrap()})
    for command in commands(fenced(section(text, "## Start"))[0]):
        shell.run(command)

What is replaced is addresses and places of an installation; everything else is carried out as printed. `sluice serve`
is started and goes on until the shell is closed. Kafka's tools are on the PATH.
"""

import os
import re
import shlex
import stat
import subprocess
import sys
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Self

from tests.cluster import HOST, processes, tools
from tests.support.waiting import until

_ROOT: Final = Path(__file__).resolve().parents[2]
_TOOLS: Final = {
    "kafka-configs.sh": tools.CONFIGS,
    "kafka-consumer-groups.sh": tools.CONSUMER_GROUPS,
    "kafka-topics.sh": tools.TOPICS,
}
_SERVE: Final = re.compile(r"\bsluice serve\b")
_COMMAND_SECONDS_MAX: Final = 240.0
_READY_SECONDS_MAX: Final = 60.0
_LOG_BYTES_SHOWN: Final = 4000


def section(markdown: str, heading: str) -> str:
    r"""Return what stands below a heading, up to the next one of its level.

    >>> section("## A\none\n### B\ntwo\n## C\nthree\n", "## A")
    '\none\n### B\ntwo\n'
    """
    level = heading.split(" ", maxsplit=1)[0]
    _, found, below = f"\n{markdown}".partition(f"\n{heading}")
    assert found, f"there is no heading {heading!r}"
    return re.split(rf"^{level} ", below, maxsplit=1, flags=re.MULTILINE)[0]


def fenced(markdown: str, language: str = "") -> list[str]:
    r"""Return the fenced blocks of one language without their indentation.

    >>> fenced("- a\n  ```\n  ls\n  ```\n```toml\na = 1\n```\n")
    ['ls\n']
    """
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", markdown, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for name, text in found if name == language]


def commented(text: str) -> str:
    r"""Return the comment at the beginning of a file; its commands are indented by three blanks.

    >>> commented("# Text.\n#\n#   ls\nkey: value\n")
    'ls\n'
    """
    lines = re.match(r"(?:#.*\n)+", text)
    assert lines is not None, "the file begins with a comment"
    return "".join(f"{line[4:]}\n" for line in lines[0].splitlines() if line.startswith("#   "))


def commands(block: str) -> list[str]:
    r"""Divide a block into commands; one goes on after a backslash at a line's end, and to the END of its text.

    >>> commands("a \\\n  b\nc <<END\nd\nEND\ne\n")
    ['a \\\n  b', 'c <<END\nd\nEND', 'e']
    """
    found: list[str] = []
    goes_on = in_text = False
    for line in block.splitlines():
        if goes_on or in_text:
            found[-1] += f"\n{line}"
        elif line.strip():
            found.append(line)
        in_text = (in_text or "<<END" in line) and line != "END"
        goes_on = line.endswith("\\")
    return found


def overrides(bootstrap: int, first_broker: int, admin: int) -> dict[str, str]:
    """Return the variables that put the ports of a configuration file to other places, on loopback."""
    return {
        "SLUICE_LISTENERS__0__BIND": HOST,
        "SLUICE_LISTENERS__0__ADVERTISED_HOST": HOST,
        "SLUICE_LISTENERS__0__BOOTSTRAP_PORT": str(bootstrap),
        "SLUICE_LISTENERS__0__FIRST_BROKER_PORT": str(first_broker),
        "SLUICE_ADMIN__BIND": f"{HOST}:{admin}",
    }


class PrintedShell:
    """Carries commands out in one directory.

    Args:
        directory: where they run.
        replaced: texts of the document and what stands for them here; longer ones first.
        environment: more variables.
    """

    def __init__(
        self, directory: Path, replaced: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._replaced = dict(sorted(replaced.items(), key=lambda pair: -len(pair[0])))
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "SLUICE_", "VIRTUAL_ENV"))
        }
        path = f"{_tools_directory(directory)}{os.pathsep}{kept['PATH']}"
        self.environment = {**kept, "PATH": path, **(environment or {})}
        self._log = directory / "serve.log"
        self._serving: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            print(f"--- sluice serve\n{self.log()}")
        self.stop_serving()

    def stop_serving(self) -> None:
        """End each `sluice serve` as an operator does: SIGTERM."""
        while self._serving:
            processes.end(self._serving.pop(), seconds=40.0)

    def kill_serving(self) -> None:
        """End each `sluice serve` as `kill -9` does."""
        while self._serving:
            processes.kill(self._serving.pop())

    def here(self, text: str) -> str:
        """Return a text with this place's addresses."""
        for printed, real in self._replaced.items():
            text = text.replace(printed, real)
        return text

    def run(self, command: str, exits: Collection[int] = (0,)) -> str:
        """Carry out one command; give what it printed. `sluice serve` is started, and waited for until it serves.

        Args:
            exits: the exit codes with which it may end.
        """
        line = ["bash", "-eu", "-o", "pipefail", "-c", self.here(command)]
        if _SERVE.search(command):
            before = (
                self._log.stat().st_size if self._log.exists() else 0
            )  # one that served earlier said so too
            child = processes.start(line, log=self._log, cwd=self.directory, env=self.environment)
            self._serving.append(child)
            until(
                lambda: b"serving" in self._log.read_bytes()[before:] or child.poll() is not None,
                self.log,
                _READY_SECONDS_MAX,
                0.1,
            )
            assert child.poll() is None, f"sluice serve ended by itself\n{self.log()}"
            return ""
        done = subprocess.run(
            line,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode in exits, (
            f"{command}\nended with {done.returncode}\n{done.stdout}\n{self.log()}"
        )
        return done.stdout

    def log(self) -> str:
        """Return the end of what `sluice serve` has logged."""
        return self._log.read_bytes()[-_LOG_BYTES_SHOWN:].decode() if self._log.exists() else ""


def _tools_directory(directory: Path) -> Path:
    """Make a directory with Kafka's tools under their distribution's names, and `sluice` as an image has it."""
    made = directory / ".kafka-bin"
    made.mkdir()
    for name, tool in _TOOLS.items():
        _script(made / name, f'exec {shlex.join(tools.command(tool))} "$@"')
    _script(made / "sluice", f'PYTHONPATH={shlex.quote(str(_ROOT))} exec {sys.executable} -m proxy "$@"')
    return made


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)

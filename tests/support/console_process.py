"""A running `sluice console`."""

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.cluster import HOST, processes
from tests.support.proxy_process import ROOT
from tests.support.waiting import until

_ADDRESS: Final = re.compile(r"sluice console: (http://\S+/) ")


class ConsoleProcess:
    """Runs it for the time of a `with`.

    Args:
        admins: admin ports of members.
        more: more arguments.
        refresh: seconds.
    """

    def __init__(
        self,
        admins: Sequence[str],
        *,
        directory: Path | None = None,
        port: int = 0,
        refresh: float = 1.0,
        more: Sequence[str] = (),
    ) -> None:
        self._made = None if directory else tempfile.TemporaryDirectory(prefix="sluice-console-")
        self.log_path = (directory or Path(self._made.name if self._made else "")) / "console.log"
        words = [word for admin in admins for word in ("--admin", admin)]
        self._line = [sys.executable, "-m", "proxy", "console", *words, "--refresh", str(refresh)]
        self._line += ["--bind", f"{HOST}:{port}", *more]
        self.url = ""

    def __enter__(self) -> Self:
        self._child = processes.start(self._line, log=self.log_path, cwd=ROOT)
        until(
            lambda: _ADDRESS.search(self.log()) or self._child.poll() is not None, "the console has started"
        )
        found = _ADDRESS.search(self.log())
        assert found is not None, self.log()
        self.url = found.group(1)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Exception):
            print(f"--- sluice console\n{self.log()}", file=sys.stderr)
        processes.end(self._child)
        if self._made is not None:
            self._made.cleanup()

    @property
    def process_id(self) -> int:
        return self._child.pid

    def log(self) -> str:
        """Return what it has written."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

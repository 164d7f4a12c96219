"""What the kernel says about a process, and the children that are spoken to by lines.

CPU is utime + stime of /proc/PID/stat over the process and its children; memory is VmRSS. Linux only.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

DESCRIPTORS_WANTED = 65536
"""10,000 clients are 20,000 sockets in a proxy: 65536 leaves room for the largest run here."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 20.0


def parse_stat_cpu_ticks(stat: str) -> int:
    """Return utime + stime from a line of /proc/PID/stat, whatever the command is called.

    >>> parse_stat_cpu_ticks("7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 30 12 0 0 20 0 1 0 5 6 7")
    42
    """
    fields = stat[stat.rindex(")") + 2 :].split()
    return int(fields[11]) + int(fields[12])


def family(pid: int) -> list[int]:
    """Return the process and its children, grandchildren and so on; the kernel lists children by thread."""
    found = [pid]
    for parent in found:
        for listing in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found.extend(map(int, listing.read_text().split()))
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds the process and its living children have used since they began."""
    ticks = sum(parse_stat_cpu_ticks(Path(f"/proc/{member}/stat").read_text()) for member in family(pid))
    return ticks / _TICKS_PER_SECOND


def cpu_nanoseconds(pid: int) -> int:
    """Return the CPU time of the process's living threads, as the scheduler counts it: finer than ticks of 10 ms.

    OSError where the kernel does not tell (CONFIG_SCHED_INFO).
    """
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def family_nanoseconds(pid: int) -> int:
    """Return the same of the process and its living children."""
    return sum(map(cpu_nanoseconds, family(pid)))


def status_kib(pid: int, name: str = "VmRSS", page: str = "status") -> int:
    """Return an amount of memory of one process from /proc/PID in KiB; 0 if it is a zombie."""
    lines = Path(f"/proc/{pid}/{page}").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def resident_kib(pid: int) -> int:
    """Return the resident memory of the process and its children in KiB."""
    return sum(map(status_kib, family(pid)))


def own_kib(pid: int) -> int:
    """Return the resident memory of one process in KiB, its part of what it shares; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return status_kib(pid, "Pss", "smaps_rollup")
    return 0


def sockets(pid: int) -> int:
    """Return how many sockets the process has open: its other descriptors are pipes, kept for later on purpose."""
    found = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(path.readlink()).startswith("socket:")
        except OSError:
            continue  # closed meanwhile
    return found


def raise_descriptor_limit(wanted: int = DESCRIPTORS_WANTED) -> int:
    """Raise this process's limit of descriptors (children inherit it) as far as allowed; return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (ValueError, PermissionError):  # only root may raise the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Child:
    """A process of ours that is spoken to by lines: what it prints is read one line at a time. `with` ends it."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as sink:
            self._popen = subprocess.Popen(
                list(arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True
            )
        assert self._popen.stdin is not None, "both ends are pipes"
        assert self._popen.stdout is not None, "both ends are pipes"
        self.pid = self._popen.pid
        self._stdin: IO[str] = self._popen.stdin
        self._stdout: IO[str] = self._popen.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process: its input ends, which is its sign to end; then by force."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._stdout.close()

    @property
    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._popen.poll() is None

    def say(self, line: str) -> None:
        """Send one line to the process."""
        self._stdin.write(line + "\n")
        self._stdin.flush()

    def hear(self) -> str:
        """Return the next line of the process; it must not end before."""
        line = self._stdout.readline()
        if not line:
            raise ChildProcessError(f"process {self.pid} ended early; its log ends: {tail(self.log)}")
        return line.rstrip("\n")

    def ask(self, order: str = "report") -> dict[str, Any]:
        """Send an order, and return the JSON of the line that comes back."""
        self.say(order)
        found: dict[str, Any] = json.loads(self.hear())
        return found


def tail(log: Path, characters: int = 2000) -> str:
    """Return the end of a log file."""
    return log.read_text(errors="replace")[-characters:] if log.exists() else "(no log)"


@contextmanager
def module_process(module: str, *words: object, log: Path) -> Iterator[Child]:
    """Run a module of ours, which says `ready` and then takes orders, for the time of a `with` block."""
    with Child([sys.executable, "-m", module, *map(str, words)], log) as child:
        child.hear()  # "ready"
        yield child

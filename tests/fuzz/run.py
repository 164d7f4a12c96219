"""One target under Atheris, in a process of its own: libFuzzer ends the process when it has done.

    python -m tests.fuzz.run PACKAGES TARGET CORPUS FINDINGS SLOW-SECONDS [-libfuzzer_option=value ...]

Atheris is installed by `make fuzz` alone, in an environment of its own: it has wheels for few machines.

Findings are inputs that did what none may: the smallest of each kind, with a text that says what. Two are of a kind
where the same exception came from the same line of ours, or the same call took too long. A run goes on behind a
finding: what is known must not keep it from what is not.
"""

import hashlib
import sys
import traceback
from pathlib import Path
from time import perf_counter
from typing import Final

_OURS: Final = ("/protocol/", "/quotas/", "/proxy/", "/offline/", "/tests/fuzz/")
_REJECTED: Final = -1  # an input that is no part of the corpus
# What takes longer is tried and not kept: its children would be as slow, and there are enough without them.
_KEPT_SECONDS_MAX: Final = 0.02


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    import atheris  # in an environment of its own

    packages, name, corpus, findings_directory, slow_seconds = sys.argv[1:6]
    with atheris.instrument_imports(include=packages.split(",")):
        from tests.fuzz.targets import TARGETS
    from tests.fuzz import stopwatch

    target, bound = TARGETS[name], float(slow_seconds)
    findings = Findings(Path(findings_directory))

    def one(data: bytes) -> int:
        begun = perf_counter()
        try:
            slowest = stopwatch.slowest(target.run, data, exactly=False, enough_seconds=2 * bound)
            if target.bound_seconds and slowest.seconds > bound:
                slowest = stopwatch.slowest(target.run, data, exactly=True, enough_seconds=bound)
        except Exception as error:  # noqa: BLE001 - the fuzzer goes on, whatever it has found
            findings.failed(data, error)
            return _REJECTED
        if target.bound_seconds and slowest.seconds > bound:
            findings.slow(data, *slowest)
            return _REJECTED
        return 0 if perf_counter() - begun <= _KEPT_SECONDS_MAX else _REJECTED

    atheris.Setup([sys.argv[0], *sys.argv[6:], corpus], one)
    atheris.Fuzz()


class Findings:
    """A directory of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes: dict[str, int] = {}

    def failed(self, data: bytes, error: BaseException) -> None:
        """An exception that is not documented."""
        where = [
            f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
            if any(part in frame.filename for part in _OURS)
        ]
        kind = f"{type(error).__name__} at {where[-1] if where else 'an unknown place'}"
        self._keep("failed", kind, data, "".join(traceback.format_exception(error)))

    def slow(self, data: bytes, label: str, seconds: float) -> None:
        """A call that took long."""
        self._keep("slow", label, data, f"{seconds * 1000:.1f} ms of CPU time with instrumentation\n")

    def _keep(self, what: str, kind: str, data: bytes, text: str) -> None:
        name = f"{what}-{hashlib.sha1(kind.encode(), usedforsecurity=False).hexdigest()[:12]}"
        if self._sizes.get(name, len(data) + 1) <= len(data):
            return
        self._sizes[name] = len(data)
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / f"{name}.bin").write_bytes(data)
        (self._directory / f"{name}.txt").write_text(f"{kind}\n{text}")


if __name__ == "__main__":
    main()

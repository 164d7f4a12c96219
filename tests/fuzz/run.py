"""One target under Atheris, in a process of its own: libFuzzer ends the process when it has done.

    python -m tests.fuzz.run PACKAGES TARGET CORPUS FINDINGS SLOW-SECONDS [-libfuzzer_option=value ...]

Atheris is installed by `make fuzz` alone, in an environment of its own: it has wheels for few machines.
"""

import sys
from pathlib import Path
from time import perf_counter
from typing import Final

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
    from tests.fuzz.findings import Findings

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


if __name__ == "__main__":
    main()

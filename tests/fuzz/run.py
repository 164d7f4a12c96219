"""One target under Atheris, in a process of its own: libFuzzer ends the process when it has done.

    python -m tests.fuzz.run PACKAGES TARGET CORPUS FINDINGS SLOW-SECONDS [-libfuzzer_option=value ...]

Atheris is installed by `make fuzz` alone, in an environment of its own: it has wheels for few machines.
"""

import sys
from pathlib import Path

__all__ = ["main"]

_REJECTED = -1  # an input that is no part of the corpus


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
        return 0

    atheris.Setup([sys.argv[0], *sys.argv[6:], corpus], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

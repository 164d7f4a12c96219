"""`python -m tests.cluster`: bring Kafka's jars, or say in one line what this machine lacks."""

import shutil
import sys

from tests.cluster.jars import MissingPrerequisiteError, ensure_jars, java


def main() -> int:
    """Return the exit code."""
    try:
        java()
        if shutil.which("javac") is None:  # tests/oracle compiles a few lines
            raise MissingPrerequisiteError("javac is not on the PATH: a JDK 17 or newer is needed, not a JRE")
        ensure_jars()
    except (MissingPrerequisiteError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

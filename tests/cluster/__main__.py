"""`python -m tests.cluster`: bring Kafka's jars, or say in one line what this machine lacks."""

import sys

from tests.cluster.jars import MissingPrerequisiteError, ensure_jars, java


def main() -> int:
    """Return the exit code."""
    try:
        java()
        ensure_jars()
    except (MissingPrerequisiteError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

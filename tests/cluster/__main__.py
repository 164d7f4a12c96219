"""`python -m tests.cluster`: bring Kafka's jars and archive their classes, or say in a line what this machine lacks."""

import os
import shutil
import sys

from tests.cluster.cluster import Cluster
from tests.cluster.jars import ARCHIVE, MissingPrerequisiteError, ensure_jars, java
from tests.cluster.options import JVM_OPTIONS, ClusterOptions


def main() -> int:
    """Return the exit code."""
    try:
        java()
        if shutil.which("javac") is None:  # tests/oracle compiles a few lines
            raise MissingPrerequisiteError("javac is not on the PATH: a JDK 17 or newer is needed, not a JRE")
        jars = ensure_jars()
        if not ARCHIVE.exists() or ARCHIVE.stat().st_mtime < (jars / ".stamp").stat().st_mtime:
            _archive_classes()
    except (MissingPrerequisiteError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _archive_classes() -> None:
    """Write the archive of those classes that a broker has loaded when it ends."""
    ARCHIVE.unlink(missing_ok=True)
    ARCHIVE.parent.mkdir(exist_ok=True)
    made = ARCHIVE.with_suffix(f".{os.getpid()}")
    options = (*JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={made}")
    with Cluster(ClusterOptions(nodes=1, jvm_options=options)) as cluster:
        ended = cluster.stop_broker(1, seconds=120.0)
    if ended < 0:  # it was killed while it wrote
        made.unlink(missing_ok=True)
    else:
        made.rename(ARCHIVE)


if __name__ == "__main__":
    sys.exit(main())

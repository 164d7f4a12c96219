"""`python -m tests.cluster`: bring Kafka's jars and archive their classes, or say in a line what this machine lacks."""

import argparse
import os
import shutil
import sys

from tests.cluster.cluster import Cluster
from tests.cluster.jars import (
    LOCK,
    RELEASES,
    MissingPrerequisiteError,
    archive,
    bring,
    ensure_jars,
    java,
    release,
)
from tests.cluster.options import JVM_OPTIONS, ClusterOptions


def main(words: list[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    parser.add_argument("--lock", action="store_true", help="bring all releases and write their hashes")
    parser.add_argument("releases", nargs="*", help="as 3.9 or 3.9.2; the newest without any")
    options = parser.parse_args(words)
    try:
        java()
        if shutil.which("javac") is None:  # tests/oracle compiles a few lines
            raise MissingPrerequisiteError("javac is not on the PATH: a JDK 17 or newer is needed, not a JRE")
        if options.lock:
            _lock()
        for kafka in map(release, options.releases or [None]):
            jars, classes = ensure_jars(kafka), archive(kafka)
            if not classes.exists() or classes.stat().st_mtime < (jars / ".stamp").stat().st_mtime:
                _archive_classes(kafka)
    except (MissingPrerequisiteError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _lock() -> None:
    """Write the hashes of what Maven brings now, of every release."""
    found = {(digest, name) for kafka in RELEASES for name, digest in bring(kafka).items()}
    LOCK.write_text("".join(f"{digest}  {name}\n" for digest, name in sorted(found, key=lambda jar: jar[1])))


def _archive_classes(kafka: str) -> None:
    """Write the archive of those classes that a broker has loaded when it ends."""
    classes = archive(kafka)
    classes.unlink(missing_ok=True)
    classes.parent.mkdir(exist_ok=True)
    made = classes.with_suffix(f".{os.getpid()}")
    options = (*JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={made}")
    with Cluster(ClusterOptions(nodes=1, jvm_options=options, kafka=kafka)) as cluster:
        ended = cluster.stop_broker(1, seconds=120.0)
    if ended < 0:  # it was killed while it wrote
        made.unlink(missing_ok=True)
    else:
        made.rename(classes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Kafka's jars and the Java that runs them.

`pom.xml` beside this file names the releases.
The jars are copied once, and again when the pom changes: `libs/.stamp` holds the pom's digest.
This module starts nothing but Maven; brokers are in `broker`, Kafka's tools in `tools`.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
POM: Final = HERE / "pom.xml"
LIBS: Final = HERE / "libs"
ARCHIVE: Final = HERE.parents[1] / "build" / "kafka.jsa"
LOG4J: Final = HERE / "log4j2.properties"
JAVA_VERSION_MIN: Final = 17
MAVEN_SECONDS_MAX: Final = 600


class MissingPrerequisiteError(RuntimeError):
    """Something that this machine must have is not there; the message is one line for a person."""


def ensure_jars() -> Path:
    """Return the directory of Kafka's jars, asking Maven for them when it has not been done for this pom."""
    LIBS.mkdir(exist_ok=True)
    stamp = LIBS / ".stamp"
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()
    with (LIBS / ".lock").open("w") as lock:
        # Two test runs on one checkout may come here together; the second finds the stamp.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest:
            return LIBS
        _run_maven()
        stamp.write_text(digest)
    return LIBS


@cache
def java() -> str:
    """Return the path of a Java that is new enough for Kafka 4."""
    found = shutil.which("java")
    if found is None:
        raise MissingPrerequisiteError(f"java is not on the PATH: install a JDK {JAVA_VERSION_MIN} or newer")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        first = said.splitlines()[0] if said else "nothing"
        raise MissingPrerequisiteError(
            f"java is too old ({first}): install a JDK {JAVA_VERSION_MIN} or newer"
        )
    return found


def class_path(*, tools: bool = False) -> str:
    """Return the class path of brokers, or of Kafka's tools, which need some older classes as well (see the pom)."""
    libs = ensure_jars()
    # At the end: every class that the current release has is taken from the current release.
    return f"{libs}/*:{libs}/older/*" if tools else f"{libs}/*"


def class_archive() -> tuple[str, ...]:
    """Return the options by which Java takes Kafka's classes from their archive; none until it is made.

    A broker is then ready with three fifths of the CPU. Java ignores the archive of another Java, or of other jars.
    """
    # What it says about archives goes to standard output, where the tools' own output is read.
    silent = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    return (f"-XX:SharedArchiveFile={ARCHIVE}", *silent) if ARCHIVE.exists() else ()


def _run_maven() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingPrerequisiteError("mvn is not on the PATH: install Maven (Kafka's jars come with it)")
    for old in LIBS.rglob("*.jar"):
        old.unlink()
    done = subprocess.run(
        [maven, "-q", "-B", "-f", str(POM), "generate-resources"],
        capture_output=True,
        text=True,
        timeout=MAVEN_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Maven could not bring Kafka's jars:\n{done.stdout}{done.stderr}")

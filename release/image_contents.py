"""What the images consist of. docker/Dockerfile runs it in its build stages; no image has it.

image_contents.py system DIRECTORY               the root of an image: Python and what it needs, no shell
image_contents.py install ENVIRONMENT WHEELS     the wheel into a virtual environment, and all of it as bytecode
image_contents.py bill IMAGE TARGET VERSION DIR  a bill of materials (CycloneDX) of an image's root, into DIR
"""

import compileall
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from datetime import UTC, datetime
from email.parser import Parser
from importlib.metadata import distributions
from pathlib import Path
from py_compile import PycInvalidationMode
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

_USER = 10001
_USERS = """\
root:x:0:0:root:/root:/usr/sbin/nologin
sluice:x:10001:10001:sluice:/nonexistent:/usr/sbin/nologin
"""
_GROUPS = "root:x:0:\nsluice:x:10001:\n"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Of the standard library: what only people and tests use, and what needs a display.
_LEFT_OUT = (
    *("__pycache__", "site-packages", "dist-packages", "config-3*", "test", "tests", "_test*.so"),
    *("idlelib", "tkinter", "_tkinter*.so", "turtledemo", "lib2to3", "ensurepip", "pydoc_data"),
    *("nis.*.so", "_dbm*.so", "_gdbm*.so"),
)
# What compiled packages on the index may be linked with (manylinux), beside what Python is.
_OF_PACKAGES = ("libstdc++.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1")
# Places that a container engine mounts something on: a read-only root must have them.
_MOUNT_POINTS = ("dev", "proc", "sys", "run", "tmp", "etc/sluice", "var/lib/sluice")
_LICENSE_CHARACTERS_MAX = 60


def system(root: Path) -> None:
    """Make the root of an image: Python, the libraries it is linked with, certificates, the user, Debian's records."""
    python = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    copied = [python]
    _place(python, root)
    (root / python.parent.relative_to("/") / "python3").symlink_to(python.name)
    inside = root / library.relative_to("/")
    shutil.copytree(library, inside, ignore=shutil.ignore_patterns(*_LEFT_OUT), ignore_dangling_symlinks=True)
    needed = [next(place for place in Path("/usr/lib").glob(f"*/{name}")) for name in _OF_PACKAGES]
    for place in _libraries([python, *inside.rglob("*.so"), *needed]):
        copied.append(place)
        _place(place, root)
    for name in ("lib", "lib64"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
    for place in (
        Path("/etc/os-release"),
        Path("/etc/debian_version"),
        Path("/etc/ld.so.cache"),
        _CERTIFICATES,
    ):
        _place(place, root)
    (root / "etc/passwd").write_text(_USERS)
    (root / "etc/group").write_text(_GROUPS)
    for name in _MOUNT_POINTS:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    os.chown(root / "var/lib/sluice", _USER, _USER)
    _record(copied, root)
    _compile(inside, root)


def install(environment: Path, wheels: Path, root: Path | None) -> None:
    """Install the wheel into an environment that has all it depends on.

    Raises:
        SystemExit: a package is linked with a library that the image's root does not have.
    """
    (wheel,) = wheels.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install")
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-compile", wheel], check=True)
    _compile(environment / "lib", Path("/"))
    if root is not None:
        found = [path for path in environment.rglob("*.so*") if path.is_file()]
        compiled = [path for path in found if path.read_bytes()[:4] == b"\x7fELF"]
        for place in _libraries(compiled):
            if not place.is_relative_to(environment) and not _inside(place, root).exists():
                raise SystemExit(f"{place} is not in {root}")


def bill(image: Path, target: str, version: str, directory: Path) -> None:
    """Write the bill of materials of an image: its Python packages and its Debian packages.

    Raises:
        SystemExit: it does not follow CycloneDX's schema.
    """
    made = Bom(serial_number=uuid5(NAMESPACE_URL, f"sluice:{target}:{version}:{platform.machine()}"))
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds:
        made.metadata.timestamp = datetime.fromtimestamp(int(seconds), UTC)
    whole = Component(
        name=f"sluice-{target}", version=version or None, type=ComponentType.CONTAINER, bom_ref=target
    )
    made.metadata.component = whole
    found = [*_python_packages(image), *_debian_packages(image)]
    made.components.update(found)
    made.register_dependency(whole, found)
    directory.mkdir(parents=True, exist_ok=True)
    text = JsonV1Dot6(made).output_as_string(indent=2)
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise SystemExit(f"the bill of materials is not valid: {problem}")
    (directory / f"{target}.cdx.json").write_text(f"{text}\n")


def _place(source: Path, root: Path) -> None:
    """Copy a file to the same place below a root."""
    target = _inside(source, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _inside(place: Path, root: Path) -> Path:
    """Return a file's place below a root, its directory's links followed."""
    return root / place.parent.resolve().relative_to("/") / place.name


def _libraries(compiled: Iterable[Path]) -> list[Path]:
    """Return the shared libraries that files are linked with, and the loader; those files that are libraries too.

    Raises:
        SystemExit: one is missing.
    """
    files = [str(path) for path in compiled]
    said = subprocess.run(["ldd", *files], capture_output=True, text=True, check=True).stdout
    if "not found" in said:
        raise SystemExit(f"a library is missing:\n{said}")
    found = re.findall(r"^\t(?:\S+ => )?(/\S+) \(0x", said, re.MULTILINE)
    return sorted({Path(path) for path in [*found, *(file for file in files if ".so." in file)]})


def _record(copied: Iterable[Path], root: Path) -> None:
    """Keep what scanners and lawyers read: status and copyright of each Debian package that a file is from."""
    paths = {str(path) for one in copied for path in (one, one.parent.resolve() / one.name, one.resolve())}
    # Its exit code is 1 if one of the paths is no package's.
    said = subprocess.run(
        ["dpkg-query", "--search", *sorted(paths)], capture_output=True, text=True, check=False
    )
    owners = {line.rpartition(": ")[0].partition(":")[0] for line in said.stdout.splitlines()}
    status = root / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for name in sorted(owners | {"base-files", "ca-certificates"}):
        known = subprocess.run(["dpkg-query", "--status", name], capture_output=True, text=True, check=True)
        (status / name).write_text(known.stdout)
        _place(Path("/usr/share/doc", name, "copyright"), root)


def _compile(directory: Path, root: Path) -> None:
    """Compile modules to bytecode that is not compared with its source: the image's files do not change."""
    # A package may have a module for another Python, which does not compile and is not imported.
    compileall.compile_dir(
        directory,
        quiet=2,
        workers=0,
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )


def _python_packages(image: Path) -> list[Component]:
    places = [str(place) for place in image.glob("opt/sluice/lib/python3*/site-packages")]
    settings = (image / "opt/sluice/pyvenv.cfg").read_text()
    (version,) = re.findall(r"^version = (\S+)$", settings, re.MULTILINE)
    found = [Component(name="python", version=version, type=ComponentType.PLATFORM, bom_ref="python")]
    for each in distributions(path=places):
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        url = PackageURL("pypi", None, name, each.version)
        fields = each.metadata.json
        given = str(fields.get("license_expression") or fields.get("license") or "")
        short = 0 < len(given) <= _LICENSE_CHARACTERS_MAX  # else it is the text itself
        licenses = [LicenseFactory().make_from_string(given)] if short else []
        found.append(
            Component(name=name, version=each.version, purl=url, bom_ref=str(url), licenses=licenses)
        )
    return found


def _debian_packages(image: Path) -> list[Component]:
    status = image / "var/lib/dpkg"
    texts = [path.read_text() for path in sorted((status / "status.d").glob("*"))]
    if not texts:
        texts = (status / "status").read_text().split("\n\n")
    found = []
    for text in texts:
        fields = Parser().parsestr(text)
        if fields["Status"] != "install ok installed":
            continue
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        url = PackageURL("deb", "debian", name, version, {"arch": architecture})
        found.append(Component(name=name, version=version, purl=url, bom_ref=str(url)))
    return found


def main(words: list[str]) -> None:
    """Run the command that is asked for."""
    command, *rest = words
    if command == "system":
        system(Path(rest[0]))
    elif command == "install":
        install(Path(rest[0]), Path(rest[1]), Path(rest[2]) if rest[2:] else None)
    elif command == "bill":
        bill(Path(rest[0]), rest[1], rest[2], Path(rest[3]))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

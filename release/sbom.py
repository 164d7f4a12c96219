"""The SBOM of one artifact, as CycloneDX 1.6 JSON: what it needs to run, as locked, and what each extra adds.

A package that the proxy needs is `required`, one that an extra adds `optional`, with the extras' names as properties.
The hashes of a package are those of its files in the lock: any of them may be installed. Edges are those that the lock
names ("via"). A compiled wheel has mypyc's run-time library in it, which is a part of mypy. The serial number and the
time follow from the artifact and the commit, so the SBOM is the same each time.
"""

import hashlib
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.markers import Marker

EXTRAS: Final = ("capture", "fleet", "offline", "operator")
_ENTRY: Final = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+?)(?: ; (.+?))? \\$")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA: Final = re.compile(r"^    #(?: via|  ) (\S+)")


class Locked(NamedTuple):
    """A package of a lock.

    Args:
        marker: the condition of the environment under which it is needed; "" for every one.
        hashes: SHA-256 of each of its files.
        via: the packages that need it; a file's name for the project itself.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    via: frozenset[str]


def write(root: Path, project: str, version: str, time: int, artifact: Path) -> str:
    """Return the SBOM of an artifact, validated against CycloneDX's schema.

    Args:
        root: the checkout, with its locks.
        time: of the commit, in seconds since the epoch.
    """
    digest = sha256(artifact)
    purl = PackageURL("pypi", None, project, version, {"file_name": artifact.name})
    itself = Component(
        name=project,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=project,
        purl=purl,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        licenses=[LicenseExpression("Apache-2.0")],
    )
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, digest))
    bom.metadata.timestamp = datetime.fromtimestamp(time, UTC)
    bom.metadata.component = itself
    _add_packages(bom, itself, {name: _read(root, name) for name in ("run", *EXTRAS)})
    if artifact.suffix == ".whl" and not artifact.stem.endswith("-none-any"):
        mypyc = _component(_read(root, "release")["mypy"], [])
        mypyc.description = "compiled in: the run-time library of mypyc"
        bom.components.add(mypyc)
        bom.register_dependency(itself, [mypyc])
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert problem is None, f"the SBOM is not valid: {problem}"
    return text + "\n"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lock(text: str) -> Iterator[Locked]:
    r"""Yield the packages of a lock.

    >>> lock = "aiokafka==0.14.0 \\\n    --hash=sha256:" + "0" * 64 + "\n    # via kafka-sluice (pyproject.toml)\n"
    >>> [(locked.name, locked.version, sorted(locked.via)) for locked in read_lock(lock)]
    [('aiokafka', '0.14.0', ['kafka-sluice'])]
    """
    for block in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE):
        found = _ENTRY.match(block.split("\n", 1)[0])
        if found is None:
            continue
        via = {match[1] for line in block.splitlines() if (match := _VIA.match(line))}
        name, version, marker = found.groups(default="")
        yield Locked(name, version, marker, tuple(_HASH.findall(block)), frozenset(via))


def _read(root: Path, name: str) -> dict[str, Locked]:
    """Return the packages of a lock that Linux needs, by name."""
    packages = read_lock((root / "requirements" / f"{name}.txt").read_text())
    linux = {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux"}
    return {
        package.name: package
        for package in packages
        if not package.marker or Marker(package.marker).evaluate(linux)
    }


def _add_packages(bom: Bom, itself: Component, locks: dict[str, dict[str, Locked]]) -> None:
    """Add every package of the locks, and who needs it."""
    required = locks["run"]
    all_packages = {name: package for lock in locks.values() for name, package in lock.items()}
    components = {itself.name: itself}
    for name, package in sorted(all_packages.items()):
        extras = [extra for extra in EXTRAS if name in locks[extra] and name not in required]
        components[name] = _component(package, extras)
        bom.components.add(components[name])
    needs: dict[str, set[str]] = {name: set() for name in components}
    for lock in locks.values():
        for package in lock.values():
            for parent in package.via & components.keys():
                needs[parent].add(package.name)
    for parent, children in needs.items():
        bom.register_dependency(components[parent], [components[child] for child in sorted(children)])


def _component(package: Locked, extras: list[str]) -> Component:
    purl = PackageURL("pypi", None, package.name, package.version)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in package.hashes]
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}=={package.version}",
        purl=purl,
        scope=ComponentScope.OPTIONAL if extras else ComponentScope.REQUIRED,
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=XsUri(str(purl)),
                hashes=hashes,
                comment="any of these files, as locked",
            )
        ],
        properties=[Property(name="sluice:extra", value=extra) for extra in extras],
    )

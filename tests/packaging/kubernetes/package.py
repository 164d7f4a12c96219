"""`python -m tests.packaging.kubernetes.package` writes the Helm chart into dist/, the same bytes at each call.

Helm's own archive has the time of its making; here every file has that of the last commit (SOURCE_DATE_EPOCH, if set).
Where a release is in dist/, its checksums have the archive's too.
"""

import gzip
import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from release.build import SUMS, write_sums
from tests.packaging.kubernetes.render import CHART, ROOT, run

DIST: Final = ROOT / "dist"


def package(target: Path) -> Path:
    """Write the chart's archive into a directory, and its checksum where there are others; return its path."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        run("helm", "package", str(CHART), "--destination", place)
        (made,) = Path(place).glob("*.tgz")
        archive = target / made.name
        archive.write_bytes(_levelled(made.read_bytes(), _source_time()))
    if (target / SUMS).exists():
        write_sums(target)
    return archive


def _source_time() -> int:
    """Return the time of the sources, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        words = ["git", "log", "-1", "--format=%ct"]
        given = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return int(given)


def _levelled(archive: bytes, time: int) -> bytes:
    """Return a compressed tar archive with its files in order, all of one time, owner and mode."""
    found = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as read,
        gzip.GzipFile(fileobj=found, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(read.getmembers(), key=lambda one: one.name):
            levelled = tarfile.TarInfo(member.name)
            levelled.size, levelled.mtime, levelled.mode = member.size, time, 0o644
            written.addfile(levelled, read.extractfile(member))
    return found.getvalue()


if __name__ == "__main__":
    print(package(DIST).relative_to(ROOT))

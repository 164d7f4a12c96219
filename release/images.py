"""Builds the images of docker/Dockerfile, and a bill of materials for each: `make images`.

    python -m release.images                                      all of them
    python -m release.images --target fleet --build-arg COMPILED=0

The container engine is the first that works here of docker, podman and buildah. It needs to reach a registry of images
for the pinned base, or `--build-arg PYTHON_IMAGE=NAME` names one that it has.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parent.parent
_ENGINES: Final = ("docker", "podman", "buildah")
TARGETS: Final = ("proxy", "fleet", "capture", "console", "offline")
DEFAULT: Final = "proxy"


def find_engine() -> str | None:
    """Return the name of a container engine that works: a client without its daemon does not."""
    for name in _ENGINES:
        if shutil.which(name) is not None:
            done = subprocess.run([name, "info"], capture_output=True, check=False)
            if done.returncode == 0:
                return name
    return None


def version() -> str:
    """Return the version of this checkout."""
    return str(tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"])


def tags(name: str, target: str) -> list[str]:
    """Return the tags of an image: NAME:TARGET and NAME:VERSION-TARGET, but NAME:VERSION and NAME of the proxy."""
    if target == DEFAULT:
        return [f"{name}:{target}", f"{name}:{version()}", f"{name}:latest"]
    return [f"{name}:{target}", f"{name}:{version()}-{target}"]


def commit_seconds() -> int:
    """Return the time of the commit, in seconds since the epoch."""
    return int(_git("show", "--no-patch", "--format=%ct", "HEAD"))


def labels() -> dict[str, str]:
    """Return what an image says of its version. The time is that of the commit: a second build has the same."""
    created = datetime.fromtimestamp(commit_seconds(), UTC).isoformat()
    return {"version": version(), "revision": _git("rev-parse", "HEAD"), "created": created}


def build(
    engine: str, targets: list[str], name: str, given: list[str], options: list[str], bills: Path
) -> None:
    """Build images, tag them, and write TARGET.cdx.json for each.

    Args:
        engine: docker, podman or buildah.
        targets: of docker/Dockerfile.
        name: of the images, without a tag.
        given: more build arguments, each NAME=VALUE.
        options: more options of the engine's `build`.
        bills: the directory of the bills of materials.

    Raises:
        subprocess.CalledProcessError: the engine could not build one.
    """
    arguments = [*(f"{key.upper()}={value}" for key, value in labels().items()), *given]
    arguments += [f"SOURCE_DATE_EPOCH={commit_seconds()}"]
    command = [engine, "build", "--file", "docker/Dockerfile", *options]
    command += [word for argument in arguments for word in ("--build-arg", argument)]
    # Health checks are a part of Docker's format alone; buildah keeps layers of stages only if it is asked to.
    docker_format = {
        "docker": [],
        "podman": ["--format", "docker"],
        "buildah": ["--format", "docker", "--layers"],
    }
    command += docker_format[engine]
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
    for target in targets:
        words = [word for tag in tags(name, target) for word in ("--tag", tag)]
        subprocess.run([*command, "--target", target, *words, "."], cwd=_ROOT, env=environment, check=True)
        words = ["--target", "bill", "--build-arg", f"OF={target}", "--output", f"type=local,dest={bills}"]
        subprocess.run([*command, *words, "."], cwd=_ROOT, env=environment, check=True)


def main() -> int:
    """Build what is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="release.images", description="Build Sluice's images.")
    parser.add_argument("--engine", choices=_ENGINES, help="the container engine (default: one that works)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="which image (default: all)")
    parser.add_argument("--name", default="sluice", help="of the images, without a tag (default: sluice)")
    parser.add_argument("--build-arg", metavar="NAME=VALUE", action="append", default=[])
    parser.add_argument("--secret", metavar="id=ID,src=FILE", action="append", default=[])
    parser.add_argument("--bills", metavar="DIRECTORY", type=Path, default=_ROOT / "build" / "images")
    given = parser.parse_args()
    engine = given.engine or find_engine()
    if engine is None:
        sys.stderr.write(f"no container engine works here: {', '.join(_ENGINES)}\n")
        return 1
    options = [word for secret in given.secret for word in ("--secret", secret)]
    targets = given.target or list(TARGETS)
    given.bills.mkdir(parents=True, exist_ok=True)
    try:
        build(engine, targets, given.name, given.build_arg, options, given.bills.resolve())
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{engine} ended with {error.returncode}\n")
        return 1
    return 0


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

"""The wheel, and a bare environment that it is installed into: made once for a run, outside the checkout."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
_INSTALL_SECONDS_MAX: Final = 300


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return what it printed; the test fails with that text if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=dict(env if env is not None else bare_environment()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_INSTALL_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def bare_environment() -> dict[str, str]:
    """Return this process's environment without what would let the checkout, or options of ours, shine through."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SLUICE_", "VIRTUAL_ENV"))
    }


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built wheel. The backend is the locked one that is already installed: nothing is downloaded."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=ROOT)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin directory of an environment with the wheel and the locked run requirements only."""
    home = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", home / "venv", cwd=home)
    pip = (home / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / "run.txt", cwd=home)
    run(*pip, "--no-index", "--no-deps", wheel, cwd=home)
    return home / "venv" / "bin"

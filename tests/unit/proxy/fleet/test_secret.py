"""The fleet's secret: what is accepted, and what stays in force when its file is changed."""

import logging
import os
import stat
from pathlib import Path

import pytest

from proxy.fleet.secret import NO_SECRET, FleetSecret
from proxy.system.files import SECRET_BYTES_MIN, read_secret, write_secret

LONG = "x" * SECRET_BYTES_MIN


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n", "is empty"),
        ("secret", "has 6 bytes, and at least 32 are needed; make one with: sluice fleet secret FILE"),
        (f"  {LONG[1:]}\n", "has 31 bytes"),
    ],
)
async def test_secret_that_can_be_guessed_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    with pytest.raises(OSError, match=problem) as caught:
        read_secret(path, "fleet.secret_file")
    assert "fleet.secret_file: " in str(caught.value)
    with pytest.raises(OSError, match=problem):
        await FleetSecret(path).read()


async def test_white_space_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f" {LONG}\n")
    assert await FleetSecret(path).read() == LONG.encode()
    assert await NO_SECRET.read() == b""


async def test_old_secret_stays_in_force_while_the_file_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "secret"
    path.write_text(LONG)
    secret = FleetSecret(path)
    assert await secret.read() == LONG.encode()
    path.write_text("short")
    for _ in range(3):
        assert await secret.read() == LONG.encode()
    assert caplog.messages == ["the secret of the fleet cannot be used; the old one stays in force"]
    path.unlink()
    assert await secret.read() == LONG.encode()
    path.write_text("y" * 40)
    assert await secret.read() == b"y" * 40
    assert len(caplog.messages) == 2


def test_written_secret_is_its_owners_alone_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    before = os.umask(0)
    try:
        write_secret(path, LONG)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secret(path, "key") == LONG.encode()
    with pytest.raises(FileExistsError):
        write_secret(path, "another")
    assert read_secret(path, "key") == LONG.encode()

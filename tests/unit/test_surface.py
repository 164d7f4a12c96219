"""Nothing that a user has relied on is lost by a change inside: every line of surface.txt is still there."""

from pathlib import Path

from tests.support.surface import surface

KNOWN = Path(__file__).with_name("surface.txt")


def test_nothing_is_lost() -> None:
    lost = set(KNOWN.read_text(encoding="utf-8").splitlines()) - surface()
    assert not lost, (
        "a change that means to remove one says so in CHANGELOG.md, and takes it from surface.txt"
    )

"""The tokens of the admin port: which files are taken, which tokens are accepted, what a changed file does."""

from pathlib import Path

import pytest

from proxy.system.errors import ConfigError
from proxy.system.tokens import TOKEN_CHARACTERS_MIN, TOKENS_MAX, Tokens, read_tokens

FIRST, SECOND = "a" * TOKEN_CHARACTERS_MIN, "b" * TOKEN_CHARACTERS_MIN
KEY = "admin.token_file"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "tokens"
    found.touch(0o600)
    return found


def test_each_line_is_a_token_and_white_space_is_no_part_of_it(path: Path) -> None:
    path.write_text(f"\n{FIRST}  \r\n\n{SECOND}==")
    assert read_tokens(path, KEY) == (FIRST.encode(), f"{SECOND}==".encode())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n", "has no token; openssl rand -hex 32 makes one"),
        (FIRST[1:], "token 1 has 31 characters, and at least 32 are needed"),
        (f"{FIRST}\nshort", "token 2 has 5 characters"),
        (f"{FIRST} {SECOND}", "token 1 has a character that a bearer token may not have"),
        (f"{FIRST}ä", "token 1 has a character"),
        (f"{FIRST}\n" * (TOKENS_MAX + 1), "has 17 tokens, and there may be at most 16"),
        (FIRST * 4096, "is larger than 65536 bytes"),
    ],
)
def test_file_without_tokens_that_can_be_used_is_refused(path: Path, text: str, problem: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        read_tokens(path, KEY)
    assert str(caught.value).startswith(f"{KEY}: ")
    assert FIRST[1:] not in str(caught.value)


@pytest.mark.parametrize(("mode", "taken"), [(0o600, True), (0o440, True), (0o604, False), (0o602, False)])
def test_file_that_every_user_may_use_is_refused(path: Path, mode: int, taken: bool) -> None:
    path.write_text(FIRST)
    path.chmod(mode)
    if taken:
        assert read_tokens(path, KEY)
        return
    with pytest.raises(ConfigError, match="every user of this machine may read or write it: chmod o= "):
        read_tokens(path, KEY)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_tokens(tmp_path / "none", KEY)
    with pytest.raises(ConfigError, match="cannot be read: "):
        read_tokens(tmp_path, KEY)


def test_tokens_of_the_file_are_accepted_and_no_other(path: Path) -> None:
    path.write_text(f"{FIRST}\n{SECOND}\n")
    tokens = Tokens(path, KEY)
    assert [tokens.have(one) for one in (FIRST, SECOND)] == [True, True]
    assert not any(tokens.have(one) for one in ("", FIRST[1:], FIRST + "a", f"{FIRST}\n{SECOND}", "ä€"))


def test_file_that_cannot_be_used_changes_nothing(path: Path) -> None:
    path.write_text(FIRST)
    tokens = Tokens(path, KEY)
    path.write_text("short")
    with pytest.raises(ConfigError):
        tokens.reload()
    assert tokens.have(FIRST)
    path.write_text(SECOND)
    tokens.reload()
    assert (tokens.have(FIRST), tokens.have(SECOND)) == (False, True)

"""The tokens of the admin port: a file with one token a line, which the port and its clients read.

A token is a bearer token of RFC 6750. Several lines let a token be replaced without a gap: the new one is added in
front, clients get it, the old one is removed. A token is never logged, and no error contains one.
"""

import hmac
import os
import re
import stat
from pathlib import Path
from typing import ClassVar, Final

from proxy.system.errors import ConfigError, system_reason
from proxy.system.files import open_file

TOKEN_CHARACTERS_MIN: Final = 32  # 16 random bytes in hexadecimal digits
TOKENS_MAX: Final = 16
_FILE_BYTES_MAX: Final = 64 * 1024
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 §2.1
_OTHERS: Final = stat.S_IRWXO


def read_tokens(path: Path, key: str) -> tuple[bytes, ...]:
    """Read a file of tokens, one a line; empty lines are ignored.

    Args:
        key: what errors call the file: a key of the configuration, or an option.

    Raises:
        ConfigError: the file cannot be read, users other than its owner and group may use it, or it has no valid token.
    """
    try:
        with open_file(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(key, f"cannot be read: {system_reason(error)}", str(path)) from None
    if mode & _OTHERS:
        raise ConfigError(
            key,
            "every user of this machine may read or write it: chmod o= takes that away (of a Kubernetes Secret: "
            "defaultMode: 0440)",
            str(path),
        )
    tokens = tuple(line.strip() for line in data.splitlines() if line.strip())
    if problem := _problem(data, tokens):
        raise ConfigError(key, problem, str(path))
    return tokens


def _problem(data: bytes, tokens: tuple[bytes, ...]) -> str:
    """Return why a file with these tokens cannot be used; "" if it can."""
    if len(data) > _FILE_BYTES_MAX:
        return f"is larger than {_FILE_BYTES_MAX} bytes"
    if not tokens:
        return "has no token; openssl rand -hex 32 makes one"
    if len(tokens) > TOKENS_MAX:
        return f"has {len(tokens)} tokens, and there may be at most {TOKENS_MAX}"
    for number, token in enumerate(tokens, 1):
        if len(token) < TOKEN_CHARACTERS_MIN:
            return (
                f"token {number} has {len(token)} characters, and at least {TOKEN_CHARACTERS_MIN} are needed; "
                "openssl rand -hex 32 makes one"
            )
        if _TOKEN.fullmatch(token) is None:
            return f"token {number} has a character that a bearer token may not have (RFC 6750)"
    return ""


class Tokens:
    """The tokens that the admin port accepts (`admin.token_file`).

    Attributes:
        path: the key that names the file.
        files: the file.

    Raises:
        ConfigError: the file cannot be used.
    """

    WHAT: ClassVar = "tokens"

    def __init__(self, file: Path, path: str) -> None:
        self.path = path
        self.files = (file,)
        self.reload()

    def reload(self) -> None:
        """Read the file, and accept its tokens from now on; may run in a thread.

        Raises:
            ConfigError: the file cannot be used; the tokens in force stay.
        """
        self._tokens = read_tokens(self.files[0], self.path)

    def have(self, token: str) -> bool:
        """Whether this is one of the tokens; the time that this takes does not depend on how much of it is right."""
        shown = token.encode("latin-1", "replace")
        found = [hmac.compare_digest(shown, one) for one in self._tokens]  # all of them, whichever it is
        return any(found)

    def expires_at(self) -> None:
        """Return None: tokens do not expire."""

"""Configurations from text, as if it were the file /etc/sluice/sluice.toml."""

import tomllib
from pathlib import Path
from typing import Any, Final

from proxy.config import Config, Source, parse

BASE: Final = Path("/etc/sluice")


def parsed(text: str, base: Path = BASE, **source: Any) -> Config:
    """Parse a configuration file's text.

    Args:
        base: the directory of relative paths.
        source: fields of the `Source`: overrides, environ.

    Raises:
        ConfigError: as `proxy.config.parse`.
    """
    return parse(tomllib.loads(text), Source(**source), base)

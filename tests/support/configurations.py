"""Configurations from text, as if it were the file /etc/sluice/sluice.toml."""

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from proxy.config import Config, Source, parse
from proxy.system.errors import ConfigError

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


def refused(text: str, base: Path = BASE, **source: Any) -> str:
    """Return the error about a configuration file's text, which must have one."""
    with pytest.raises(ConfigError) as caught:
        parsed(text, base, **source)
    return str(caught.value)


def made(**tables: object) -> Config:
    """Parse tables; without `cluster` and `listeners` it is a gateway before one broker."""
    return parse({"cluster": {"bootstrap": "kafka:9092"}, "listeners": [{}], **tables}, Source(), BASE)


def made_refused(**tables: object) -> str:
    """Return the error about tables, which must have one."""
    with pytest.raises(ConfigError) as caught:
        made(**tables)
    return str(caught.value)

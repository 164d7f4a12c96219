"""Reads the configuration file and the quotas file; `parser` validates them."""

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Final

from proxy.config.environment import variables
from proxy.config.options import Config, Source
from proxy.config.parser import parse
from proxy.errors import ConfigError
from proxy.files import read
from quotas.definitions.toml_file import loads
from quotas.errors import TomlError

FILE_BYTES_MAX: Final = 64 * 1024**2  # a quotas file of 200,000 clients takes about 15 MB
CONFIG_BYTES_MAX: Final = 16 * 1024**2  # 100,000 topics in a list of throttled replicas


def load(
    path: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
    quota_text: str = "",
) -> Config:
    """Read a configuration: the file, then the environment over it, then the command line over both.

    Args:
        path: the TOML file; None for none.
        environ: the whole environment; other programs' variables are ignored.
        overrides: the command line's settings, as TOML tables.
        quota_text: `[[quota]]` tables from the command line, beside those of the quotas file.

    Raises:
        ConfigError: with the key path and the value; or with the file, if it cannot be read or is not TOML.
    """
    absolute = None if path is None else path.absolute()
    return reload(Source(absolute, variables(environ), dict(overrides or {}), quota_text))


def reload(source: Source) -> Config:
    """Read a configuration again from its source."""
    if source.path is None:
        return parse({}, source, Path.cwd())
    try:
        tables = loads(read_text(source.path, CONFIG_BYTES_MAX))
    except TomlError as error:
        raise ConfigError(str(source.path), f"is not TOML: {error}") from None
    # Symbolic links are not resolved: Kubernetes swaps the directory behind a mounted ConfigMap's link.
    return parse(tables, source, source.path.parent)


def read_quotas_text(path: Path) -> str:
    """Read the quotas file; if it does not exist, the error says how to create one.

    Raises:
        ConfigError: as `read_text`.
    """
    try:
        return read_text(path)
    except ConfigError as error:
        raise ConfigError(error.path, error.problem + missing_file_hint(path)) from None


def missing_file_hint(path: Path) -> str:
    """Return how to create a quotas file that does not exist; "" if it exists.

    >>> missing_file_hint(Path("/nowhere/quotas.toml"))
    '; an empty file is enough to begin with: touch /nowhere/quotas.toml'
    """
    return "" if path.exists() else f"; an empty file is enough to begin with: touch {quote(str(path))}"


def read_text(path: Path, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Read a text file of bounded size.

    Raises:
        ConfigError: it does not exist, is not a regular file, is too large, or is not UTF-8.
    """
    try:
        return read(path, bytes_max).decode("utf-8")
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"is not UTF-8: byte {error.start}") from None

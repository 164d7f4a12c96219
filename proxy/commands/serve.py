"""`sluice serve`: runs the proxy, configured by a file, by arguments, or by both; arguments override the file."""

import argparse
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

from commandline.arguments import warn_old_spelling
from proxy.config import (
    LOG_FORMATS,
    LOG_LEVELS,
    OLD_SCOPE,
    AdminOptions,
    LogOptions,
    ProcessOptions,
    QuotaSettings,
    load,
    unwritable,
)
from proxy.config.parser import variables
from proxy.config.schema import Address, read_value
from proxy.system import logs
from proxy.system.errors import ConfigError, UsageError
from quotas.options import Mode, Policy, Scope

DESCRIPTION: Final = (
    "Run the proxy, from --config, or from --bootstrap-server and --listen. Arguments take precedence over "
    "the environment (SLUICE_ADMIN__BIND=…), and the environment over the file. SIGHUP reloads the file, SIGUSR1 "
    "switches enforcement off and on, SIGTERM drains the connections and stops."
)

LOG: Final = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sluice serve`."""
    quota, process, admin, log = QuotaSettings(), ProcessOptions(), AdminOptions(), LogOptions()
    parser.set_defaults(command=run)
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration, TOML")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]", help="the brokers (cluster.bootstrap)")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="the bootstrap port; broker N is then at PORT + 1 + N; replaces [[listeners]]",
    )
    parser.add_argument(
        "--advertised-host",
        metavar="HOST",
        help="the host that clients connect to (default: the host of --listen)",
    )
    parser.add_argument(
        "--quota",
        action="append",
        default=[],
        metavar="ENTITY,KEY=VALUE",
        help="a quota, for example client-id=a,producer_byte_rate=2000000; <default> names the default entity; "
        "may be repeated",
    )
    parser.add_argument(
        "--quotas-file",
        type=Path,
        metavar="FILE",
        help="the quotas, TOML; kafka-configs --alter changes this file (quotas.file)",
    )
    for option, choices, text, key, default in (
        ("--policy", get_args(Policy), "how quotas are measured", "quotas.policy", quota.policy),
        ("--mode", get_args(Mode), "whether quotas are enforced", "quotas.mode", quota.mode),
        (
            "--scope",
            get_args(Scope),
            "where a quota holds: at each broker, or once",
            "quotas.scope",
            "cluster",
        ),
        ("--log-level", LOG_LEVELS, "the least that is logged", "log.level", log.level),
        ("--log-format", LOG_FORMATS, "how it is written", "log.format", log.format),
    ):
        kind = _scope if option == "--scope" else str
        parser.add_argument(option, type=kind, choices=choices, help=f"{text} ({key}; default: {default})")
    for option, metavar, text, key, bare in (
        ("--workers", "NUMBER", "processes that relay, or auto", "process.workers", process.workers),
        ("--admin", "HOST:PORT", 'address of /metrics; "" for none', "admin.bind", admin.bind),
    ):
        parser.add_argument(option, metavar=metavar, help=f"{text} ({key}; default: {bare})")


def _scope(text: str) -> str:
    """Return the present name of a scope; print a warning for the name of an earlier release."""
    if text != OLD_SCOPE:
        return text
    warn_old_spelling("sluice serve", f"--scope {OLD_SCOPE}", "--scope cluster")
    return "cluster"


def run(options: argparse.Namespace) -> int:
    """Run the proxy until a signal stops it; return the exit code."""
    check_arguments(options, os.environ)
    config = load(options.config, os.environ, tables(options), quota_text(options.quota))
    logs.set_up(config.log.level, config.log.format)
    for warning in (*config.warnings, *unwritable(config)):
        logs.event(LOG, logging.WARNING, "configuration warning", warning=warning)
    # Imported late: `check` and `--version` need neither sockets nor uvloop.
    from proxy.app import run as run_app

    return run_app(config)


def check_arguments(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Check that there is a configuration: a file, arguments, or environment variables.

    Raises:
        UsageError: there is none, or an argument lacks another one that it needs.
    """
    if options.advertised_host is not None and options.listen is None:
        raise UsageError("--advertised-host needs --listen; with --config, set the key advertised_host")
    if options.config is None and options.listen is None and not variables(environ):
        raise UsageError("serve needs --config, or --bootstrap-server and --listen")


# ----------------------------------------------------------------------------------------------------
# Arguments -> the configuration's tables and the quotas text that they stand for; pure

ENTITY_KEYS: Final = {
    "client-id": "client_id",
    "client_id": "client_id",
    "user": "user",
    "ip": "ip",
    "topic": "topic",
}
QUOTAS_MAX: Final = 1000


def tables(options: argparse.Namespace) -> dict[str, object]:
    """Return the given arguments of `serve` as tables of a configuration file, which they override."""
    found: dict[str, dict[str, object]] = {"cluster": {}, "quotas": {}, "process": {}, "admin": {}, "log": {}}
    for section, name, argument in (
        ("cluster", "bootstrap", "bootstrap_server"),
        ("quotas", "policy", "policy"),
        ("quotas", "mode", "mode"),
        ("quotas", "scope", "scope"),
        ("process", "workers", "workers"),
        ("admin", "bind", "admin"),
        ("log", "level", "log_level"),
        ("log", "format", "log_format"),
    ):
        value = getattr(options, argument)
        if value is not None:
            found[section][name] = value
    if options.quotas_file is not None:
        # A path on the command line is relative to where the command runs, not to the configuration file.
        found["quotas"]["file"] = str(options.quotas_file.absolute())
    overrides: dict[str, object] = {section: table for section, table in found.items() if table}
    if options.listen is not None:
        overrides["listeners"] = [listener(options.listen, options.advertised_host)]
    return overrides


def listener(text: str, advertised_host: str | None) -> dict[str, object]:
    """Return the configuration table of `--listen HOST:PORT`: broker N is at PORT + 1 + N."""
    listen: Address = read_value("--listen", Address, text)
    table: dict[str, object] = {
        "bind": listen.host,
        "bootstrap_port": listen.port,
        "first_broker_port": listen.port + 1,
    }
    if advertised_host is not None:
        table["advertised_host"] = advertised_host
    return table


def quota_text(quotas: Sequence[str]) -> str:
    """Return each `--quota` as a `[[quota]]` table of the quotas file.

    >>> print(quota_text(["client-id=a,producer_byte_rate=2000000"]))
    [[quota]]
    client_id = "a"
    producer_byte_rate = 2000000
    <BLANKLINE>
    """
    if len(quotas) > QUOTAS_MAX:
        raise ConfigError(
            "--quota", f"there may be at most {QUOTAS_MAX}; a quotas file takes more", len(quotas)
        )
    return "".join(_quota(text) for text in quotas)


def _quota(text: str) -> str:
    pairs = _pairs(text)
    lines = ["[[quota]]"]
    for name, value in pairs.items():
        if name in ENTITY_KEYS:
            lines.append(f"{ENTITY_KEYS[name]} = {_toml(value)}")
        else:
            lines.append(f"{name} = {value if _is_number(value) else _toml(value)}")
    return "\n".join(lines) + "\n"


def _pairs(text: str) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not name.replace("-", "_").isidentifier():
            raise ConfigError("--quota", f"{part!r} is not name=value", text)
        if name in pairs:
            raise ConfigError("--quota", f"{name} is given twice", text)
        pairs[name] = value
    return pairs


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    digits = text.removeprefix("-")  # a negative number is refused as negative, not as a text
    return (
        digits[:1].isdigit()
        and "_" not in digits
        and (digits == "0" or not digits.startswith("0") or digits.startswith("0."))
    )


def _toml(text: str) -> str:
    # JSON's strings are TOML's basic strings, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

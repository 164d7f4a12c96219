"""`sluice serve`: runs the proxy, configured by a file, by arguments, or by both; arguments override the file."""

import argparse
import logging
import os
from collections.abc import Mapping
from typing import Final

from proxy.commands.arguments import quota_text, tables
from proxy.config import load, unwritable
from proxy.config.parser import variables
from proxy.system import logs
from proxy.system.errors import UsageError

DESCRIPTION: Final = (
    "Run the proxy, from --config, or from --bootstrap-server and --listen. Arguments take precedence over "
    "the environment (SLUICE_ADMIN__BIND=…), and the environment over the file. SIGHUP reloads the file, SIGUSR1 "
    "switches enforcement off and on, SIGTERM drains the connections and stops."
)

LOG: Final = logging.getLogger(__name__)


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
    """Check that the arguments are sufficient.

    Raises:
        UsageError: a required argument is missing.
    """
    if options.advertised_host is not None and options.listen is None:
        raise UsageError("--advertised-host needs --listen; with --config, set the key advertised_host")
    if options.config is None and options.listen is None and not variables(environ):
        raise UsageError("serve needs --config, or --bootstrap-server and --listen")

"""`sluice check`: validates a configuration and its quotas file, and shows what `serve` would do.

It changes nothing; ports are bound for a moment only (`proxy.commands.check_machine`). With `--format json` it prints
one document (`proxy.commands.check_json`), also after an error. `check_text` makes the lines for people;
`check_cluster` sends requests to the cluster, and `check_fleet` to a member of the fleet.
"""

import argparse
import json
import os
from collections.abc import Sequence
from typing import Final

from commandline.exit_codes import NEGATIVE, OK
from proxy import logs
from proxy.commands import check_fleet, check_json, check_text
from proxy.commands.check_cluster import ask_advertised, ask_cluster, cluster, tls, without_port
from proxy.commands.check_machine import machine_warnings
from proxy.commands.check_topic import check_topics, require_topic_library
from proxy.config import Config, load, read_definitions, unenforced, unwritable
from proxy.errors import SluiceError
from quotas.definitions.definitions import Definitions

DESCRIPTION: Final = (
    "Validate a configuration and its quotas file, connect to the cluster, compare the members of its fleet, and show "
    "what `sluice serve` would do. Exit code 0 if all is well, 1 if something is wrong, 3 if members of the fleet "
    "differ."
)


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    logs.set_up("error", "text")  # what is found is printed, not logged
    if options.format == "json":
        return _print_document(options)
    config, definitions = _read(options)
    lines = [
        *check_text.listeners(config),
        *check_text.quotas(config, definitions),
        *check_text.replication(config),
        *check_fleet.lines(config.fleet),
        *check_text.reassignment(config),
        *check_text.capture(config),
    ]
    lines += [f"admin: {f'http://{config.admin.bind}/' if config.admin.bind else 'none'}"]
    lines += [f"warning: {warning}" for warning in _warnings(config, definitions)]
    print("\n".join(lines))
    if options.offline:
        print(f"{options.config} is right; the cluster was not asked.")
        return OK
    for warning in machine_warnings(config):
        print(f"warning: {warning}")
    found, problem = ask_cluster(config)
    if problem:
        raise SluiceError(problem)
    print("\n".join((*cluster(config, found), *check_topics(config, tls(config).fleet_tls))))
    unknown, problem = ask_advertised(config)
    for broker, why in unknown.items():
        print(f"warning: broker {broker} did not report what it advertises: {why}")
    if problem:
        raise SluiceError(problem)
    members = check_fleet.ask_members(config, definitions, options.admin, str(options.config))
    for line in check_fleet.compared(members):
        print(line)
    if members is not None and members.differences:
        print(f"{options.config} is right, but members of the fleet differ.")
        return NEGATIVE
    print(f"{options.config} is right.")
    return OK


def _read(options: argparse.Namespace) -> tuple[Config, Definitions]:
    config = load(options.config, os.environ)
    definitions = read_definitions(config.quotas, config.source.quota_text)
    tls(config)
    require_topic_library(config)
    return config, definitions


def _warnings(config: Config, definitions: Definitions) -> Sequence[str]:
    return (*config.warnings, *unwritable(config), *unenforced(definitions.entries()))


def _print_document(options: argparse.Namespace) -> int:
    """Check, and print one JSON document, also after an error."""
    document: dict[str, object] = {"config": str(options.config), "problem": "", "warnings": []}
    try:
        config, definitions = _read(options)
        list(check_text.capture(config))  # is pyarrow there?
        document |= check_json.describe(config, check_text.limits_of(definitions))
        warnings = document["warnings"] = [*_warnings(config, definitions)]
        if options.offline:
            return OK
        warnings += machine_warnings(config)
        document["cluster"] = _cluster(config)
        members = check_fleet.ask_members(config, definitions, options.admin, str(options.config))
        if members is None:
            return OK
        document["members"] = check_fleet.members_document(members)
        return NEGATIVE if members.differences else OK
    except SluiceError as error:
        document["problem"] = str(error)
        raise
    finally:
        print(json.dumps(document, indent=2, ensure_ascii=False))


def _cluster(config: Config) -> dict[str, object]:
    found, problem = ask_cluster(config)
    if problem:
        raise SluiceError(problem)
    unknown, problem = ask_advertised(config)
    if problem:
        raise SluiceError(problem)
    missing = {listener.name: without_port(listener, sorted(found)) for listener in config.listeners}
    return check_json.describe_cluster(found, unknown, {name: ids for name, ids in missing.items() if ids})

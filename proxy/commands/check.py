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

from commandline.amounts import count
from commandline.program import NEGATIVE, OK
from proxy.commands import check_fleet, check_json, check_text
from proxy.commands.check_cluster import ask_advertised, ask_cluster, cluster, port_problem, tls
from proxy.commands.check_machine import machine_warnings
from proxy.commands.check_topic import check_topics, require_topic_library, unguarded_warnings
from proxy.config import Config, load, read_definitions, unenforced, unwritable
from proxy.system import logs
from proxy.system.errors import SluiceError
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
    warned = _say(lines + [f"warning: {warning}" for warning in _warnings(config, definitions)])
    if options.offline:
        print(f"{_verdict(options, warned)}; the cluster was not asked.")
        return OK
    warned += _say([f"warning: {warning}" for warning in machine_warnings(config)])
    found, problem = ask_cluster(config)
    if problem:
        raise SluiceError(problem)
    topics = check_topics(config, tls(config).fleet_tls)
    unguarded = [f"warning: {one}" for one in unguarded_warnings(config, tls(config).fleet_tls)]
    warned += _say([*cluster(found), *topics, *unguarded])
    problem = port_problem(config.listeners, found)
    if problem:
        raise SluiceError(problem)
    unknown, problem = ask_advertised(config)
    lacks = "did not report what it advertises"
    warned += _say([f"warning: broker {broker} {lacks}: {why}" for broker, why in unknown.items()])
    if problem:
        raise SluiceError(problem)
    members = check_fleet.ask_members(config, definitions, options.admin, str(options.config))
    warned += _say([*check_fleet.compared(members)])
    if members is not None and members.differences:
        print(f"{options.config} is right, but members of the fleet differ.")
        return NEGATIVE
    print(f"{_verdict(options, warned)}.")
    return OK


def _say(lines: Sequence[str]) -> int:
    """Print lines; return how many of them are warnings."""
    for line in lines:
        print(line)
    return sum(line.startswith("warning: ") for line in lines)


def _verdict(options: argparse.Namespace, warned: int) -> str:
    more = f", with {count(warned, 'warning')}" if warned else ""
    return f"{options.config} is right{more}"


def _read(options: argparse.Namespace) -> tuple[Config, Definitions]:
    config = load(options.config, os.environ)
    definitions = read_definitions(config.quotas, config.source.quota_text)
    tls(config)
    check_fleet.check_secret(config.fleet, may_be_missing=options.offline)
    require_topic_library(config)
    return config, definitions


def _warnings(config: Config, definitions: Definitions) -> Sequence[str]:
    return (*config.warnings, *unwritable(config), *unenforced(definitions.entries(), config.quotas.file))


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
        document["cluster"], problem = _cluster(config)
        if problem:
            raise SluiceError(problem)
        warnings += unguarded_warnings(config, tls(config).fleet_tls)
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


def _cluster(config: Config) -> tuple[dict[str, object], str]:
    """Return the document's part on the cluster, and which of its brokers have no port; "" if all have one."""
    found, problem = ask_cluster(config)
    if problem:
        raise SluiceError(problem)
    unknown, problem = ask_advertised(config)
    if problem:
        raise SluiceError(problem)
    missing = {listener.name: listener.without_port(found) for listener in config.listeners}
    described = check_json.describe_cluster(
        found, unknown, {name: ids for name, ids in missing.items() if ids}
    )
    return described, port_problem(config.listeners, found)

"""`sluice reassign status`: shows moves, their progress, and when they will be done (KIP-435).

The admin port reports steps, bytes, a rate, and the reasons for waiting. With `--bootstrap-server` the command acts as
a Kafka client, and sends version 1 of ListPartitionReassignments to a Sluice, whose response has only moves and steps.
The command changes nothing. The exit code is 0 whether moves are under way or not. `--watch` repeats until no move is
under way; at first it waits for a limited time until Sluice responds and there is a reassignment.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from commandline import amounts
from commandline.arguments import add_format, print_result
from commandline.program import OK
from kafka_client import ASKING_FAILS, ClosedError, Connection, Security, metadata
from proxy.commands.servers import (
    ADMIN,
    SECONDS_MAX,
    Document,
    add_admin_files,
    admin_access,
    brokers_of,
    read_document,
)
from proxy.config import Address
from proxy.config.schema import number, read_value
from proxy.system.errors import ServerError, reason

_TEXT: Final = "Show what is being moved, how far it is, and when it will be done."
_BAR_CHARACTERS: Final = 24
_PARTITIONS_SHOWN: Final = 50
_WATCH_SECONDS: Final = 2.0
_WATCH_SECONDS_MIN: Final = 0.1
_WATCH_SECONDS_MAX: Final = 3600.0
_NONE: Final = "no reassignment is under way"
_WAIT_SECONDS: Final = 60.0  # for a reassignment to begin: the other terminal is a minute away
_WAIT_SECONDS_MAX: Final = 86_400.0
_FAILURES_MAX: Final = 30  # in a row: a process that restarts is back before that
_CLEAR: Final = "\x1b[H\x1b[J"  # of a terminal: to the corner, and all behind it


def add_arguments(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the arguments of `sluice reassign status`."""
    command = commands.add_parser("status", help=_TEXT, description=_TEXT)
    command.set_defaults(command=run)
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--admin", metavar="HOST:PORT", default=ADMIN, help="the admin port of Sluice, or its URL"
    )
    where.add_argument(
        "--bootstrap-server", metavar="HOST:PORT[,…]", help="a Sluice, in place of the admin port"
    )
    add_admin_files(command)
    command.add_argument("--command-config", type=Path, metavar="FILE", help="a Java client's properties")
    command.add_argument(
        "--watch",
        nargs="?",
        const=str(_WATCH_SECONDS),
        metavar="SECONDS",
        help=f"print it again and again until nothing is under way; every {_WATCH_SECONDS:g} s by default",
    )
    command.add_argument(
        "--wait-seconds",
        metavar="SECONDS",
        default=f"{_WAIT_SECONDS:g}",
        help="with --watch: how long to wait for Sluice to respond and for a reassignment to begin; 0 for not at all",
    )
    add_format(command)


def run(options: argparse.Namespace) -> int:
    """Print the status once or, with `--watch`, until no move is under way; returns the exit code."""
    if options.watch is not None:
        pause = read_value(
            "--watch", Annotated[float, number(_WATCH_SECONDS_MIN, _WATCH_SECONDS_MAX)], options.watch
        )
        wait = read_value(
            "--wait-seconds", Annotated[float, number(0, _WAIT_SECONDS_MAX)], options.wait_seconds
        )
        return watch(lambda: _document(options), options.format, pause, wait, time.sleep)
    document = _document(options)
    print_result(options.format, document, table(document))
    return OK


def watch(
    read: Callable[[], Document],
    form: str,
    pause_seconds: float,
    wait_seconds: float,
    sleep: Callable[[float], object],
) -> int:
    """Print the status repeatedly until no reassignment is under way; return the exit code.

    Args:
        read: reads the status.
        form: the value of `--format`; "json" prints one document a line.
        pause_seconds: the time between two readings.
        wait_seconds: how long to wait, at the start, for Sluice to respond and for a reassignment to begin.

    Raises:
        ServerError: no reading succeeds within `wait_seconds`, or later too many fail in succession.
    """
    document, waited = _read_first(read, pause_seconds, wait_seconds, sleep)
    if waited < wait_seconds and _may_begin_later(document):
        _say_waiting(_NONE, wait_seconds - waited, "one")
        while waited < wait_seconds and _may_begin_later(document):
            sleep(pause_seconds)
            waited += pause_seconds
            document = _read_again(read, pause_seconds, sleep)
    while True:
        _print(document, form)
        if not document.get("moves"):
            return OK
        sleep(pause_seconds)
        document = _read_again(read, pause_seconds, sleep)


def _read_first(
    read: Callable[[], Document], pause_seconds: float, wait_seconds: float, sleep: Callable[[float], object]
) -> tuple[Document, float]:
    """Read the status, and wait for a process that is not up yet. Returns it and the seconds waited.

    Raises:
        ServerError: no reading succeeds in time.
    """
    waited = 0.0
    while True:
        try:
            return read(), waited
        except ServerError as error:
            if waited >= wait_seconds:
                raise
            if not waited:
                _say_waiting(str(error), wait_seconds, "a response")
        sleep(pause_seconds)
        waited += pause_seconds


def _say_waiting(why: str, seconds_left: float, what: str) -> None:
    print(f"sluice: {why}: waiting {seconds_left:g} s for {what} (Ctrl-C ends)", file=sys.stderr)


def _read_again(
    read: Callable[[], Document], pause_seconds: float, sleep: Callable[[float], object]
) -> Document:
    """Read the status; a failed reading is repeated, since the process may be restarting.

    Raises:
        ServerError: _FAILURES_MAX readings in a row have failed.
    """
    for _ in range(_FAILURES_MAX - 1):
        try:
            return read()
        except ServerError as error:
            print(f"sluice: {error}; trying again", file=sys.stderr)
        sleep(pause_seconds)
    return read()


def _may_begin_later(document: Document) -> bool:
    """Whether no move is under way but one may begin; with `mode = "pass"` none ever appears here."""
    return not document.get("moves") and document.get("mode") != "pass"


def _print(document: Document, form: str) -> None:
    if form == "json":
        print(json.dumps(document), flush=True)
        return
    before = _CLEAR if sys.stdout.isatty() else ""
    print(before + "\n".join(table(document)), end="\n" if before else "\n\n", flush=True)


def _document(options: argparse.Namespace) -> Document:
    if options.bootstrap_server:
        return asyncio.run(_request_status(*brokers_of(options)))
    return read_document(options.admin, "/reassignments", admin_access(options))


def table(document: Document) -> Iterator[str]:
    """Yield the status of reassignments as lines for people."""
    if document.get("mode") == "pass":
        yield 'reassignments pass unchanged: [reassignment] mode = "pass"'
        return
    if document.get("problem"):
        yield f"problem: {document['problem']}"
    moves = document["moves"]
    yield _count_line(document)
    if "leads" in document and (moves or document["holder"]):
        yield f"carried out by {document['holder'] or 'no process'}" + (
            ", this process" if document["leads"] else ""
        )
    if not moves:
        return
    if "replicas_total" in document:
        done, total = document["replicas_done"], document["replicas_total"]
        yield f"replicas  {bar(done, total)}  {done} of {total}"
    if document.get("bytes_total"):
        yield f"bytes     {bar(document['bytes_done'], document['bytes_total'])}  {_progress_text(document)}"
    yield from _rows(document["partitions"][:_PARTITIONS_SHOWN])
    if moves > _PARTITIONS_SHOWN:
        yield f"and {moves - _PARTITIONS_SHOWN} more; --format json has {len(document['partitions'])}"


def _count_line(document: Document) -> str:
    """Return the line with the numbers of moves: under way, done, and ended otherwise."""
    moves, total = document["moves"], document.get("moves_total", 0)
    text = _NONE
    if moves:
        text = f"{amounts.count(moves, 'partition')} under way, {document['steps']} with a step"
    if total > moves:
        text += f"; of {total} in all {document['moves_done']} are done"
        if document["moves_not_done"]:
            text += f" and {document['moves_not_done']} were cancelled or are gone"
    return text


def bar(done: float, total: float) -> str:
    """Return a progress bar with the percentage done.

    >>> bar(1, 4)
    '[######..................]  25 %'
    >>> bar(0, 0)
    '[########################] 100 %'
    """
    share = min(max(done / total, 0.0), 1.0) if total else 1.0
    full = int(share * _BAR_CHARACTERS)
    return f"[{'#' * full}{'.' * (_BAR_CHARACTERS - full)}] {int(share * 100):>3} %"


def document_of_list(found: Any, batch: Mapping[tuple[str, int], Any]) -> Document:
    """Return the status document, made from a ListPartitionReassignments response of KIP-435's version 1.

    Args:
        found: the reassignments under way.
        batch: by partition, the step that Sluice is carrying out now.
    """
    partitions = []
    for (topic, partition), one in sorted(found.ongoing.items()):
        step = batch.get((topic, partition))
        target = [broker for broker in one.replicas if broker not in one.removing]
        partitions.append(
            {
                "topic": topic,
                "partition": partition,
                "original": [broker for broker in one.replicas if broker not in one.adding],
                "target": target,
                "state": "waiting" if step is None else "step",
                "step": None
                if step is None
                else {"current": list(step.current), "target": list(step.target)},
                "reason": "",
            }
        )
    return {"mode": "batch", "moves": len(partitions), "steps": len(batch), "partitions": partitions}


def _progress_text(document: Document) -> str:
    text = f"{amounts.size(document['bytes_done'])} of {amounts.size(document['bytes_total'])}"
    rate, left = document["bytes_per_second"], document["finish_seconds"]
    if rate is not None:
        text += f", {amounts.rate(rate)}"
    if left is not None:
        text += f", done in {amounts.duration(left)}"
    return text


def _rows(partitions: Sequence[Document]) -> Iterator[str]:
    names = [f"{one['topic']}-{one['partition']}" for one in partitions]
    moves = [
        f"{_brokers(one['original'])} -> {_brokers(one['target'])}"
        + (" (cancelled)" if one.get("cancelled") else "")
        for one in partitions
    ]
    name_width, move_width = max(map(len, names), default=0), max(map(len, moves), default=0)
    for name, move, one in zip(names, moves, partitions, strict=True):
        cells = [f"{name:<{name_width}}", f"{move:<{move_width}}"]
        if one.get("bytes_total"):
            cells.append(f"bytes {bar(one['bytes_done'], one['bytes_total'])}")
        if one.get("replicas_total"):
            cells.append(f"{one['replicas_done']} of {amounts.count(one['replicas_total'], 'replica')}")
        step = one["step"]
        if step is not None:
            cells.append(f"step: {_brokers(step['current'])} -> {_brokers(step['target'])}")
        cells.append(one["reason"])
        yield f"  {'  '.join(cells).rstrip()}"


def _brokers(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


async def _request_status(servers: Sequence[Address], security: Security) -> Document:
    """Request the list of reassignments from a Sluice, as a Kafka client."""
    problems = []
    for server in servers:
        try:
            async with asyncio.timeout(SECONDS_MAX):
                connection = await Connection.open(*server, tls=security.tls, login=security.login)
                try:
                    request = metadata.list_batches()
                    found, batch = request.read(await connection.send(request))
                finally:
                    connection.close()
        except ClosedError:
            problems.append(
                f"{server}: closed the connection on version 1 of ListPartitionReassignments: "
                'not a Sluice with mode = "batch"'
            )
        except ASKING_FAILS as error:
            problems.append(f"{server}: {reason(error, SECONDS_MAX)}")
        else:
            if found.error_code:
                raise ServerError(f"{server}: error {found.error_code} {found.error_message or ''}".strip())
            return document_of_list(found, batch)
    raise ServerError("; ".join(problems))

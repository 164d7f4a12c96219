"""`sluice size`: estimates the cores, memory, descriptors, workers and members that a stated load needs.

It computes with what the benches have measured, which costs.toml beside this file has with machine and date; it asks
no cluster and measures nothing. CPU has two figures: *beside a broker*, where each wake-up of the proxy finds one or
two requests, and *full core*, where it finds dozens. The size follows from the first, which is the higher one.

Not estimated: what a reassignment, TLS towards brokers, and log-ins at a high rate take. The policy has no influence:
a decision of either takes less than 1 µs.
"""

import argparse
import math
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from commandline import amounts
from commandline.arguments import add_format, print_result
from commandline.program import OK
from proxy.config.options import MEMBERS_MAX, WORKERS_MAX, FleetOptions, LimitOptions, ListenerOptions
from proxy.config.schema import RATE_MAX, Positive, number, read_value
from proxy.system.errors import UsageError

DESCRIPTION: Final = "Estimate the cores, memory, descriptors, workers and members that a load needs."
FILE: Final = Path(__file__).with_name("costs.toml")
UTILIZATION_MAX: Final = 0.7  # of a core: beyond it a burst waits
_DESCRIPTORS_SHARE_MAX: Final = 0.8  # as the alert SluiceDescriptorsRunOut has it
_DESCRIPTORS_SPARE: Final = 64  # log, admin port, event loop, Sluice's own connections
_PIPE_BYTES: Final = 1 << 20
_UNFINISHED_BYTES_MAX: Final = 256 * 1024  # of a large frame: they wait in the socket (SO_RCVLOWAT)
_SMALL: Final = 100  # bytes: the smallest request that was measured
_KIB: Final = 1024
_MIB: Final = 1024**2
_MEMBERS_MEASURED: Final = 16
_CORES_MEASURED: Final = 2
_LARGEST: Final = 128 * _KIB
_SOURCE_PORTS: Final = 28_232  # net.ipv4.ip_local_port_range, of connections to one port of one broker
_CONNECTIONS_SPREAD: Final = 16  # of a worker: the kernel spreads fewer than that unevenly

Curve = Sequence[tuple[float, float]]
"""Bytes of a request or response, and µs of CPU for it; rising."""


class Load(NamedTuple):
    """What clients do, in the sum of all.

    Attributes:
        produce, consume: bytes/s.
        request_bytes, response_bytes: the mean of a Produce request and of a Fetch response.
        requests: requests/s of all kinds; None: those of the bytes, and one a second of each connection.
        tls: whether clients' TLS ends at Sluice.
        capture: whether every request is captured.
    """

    produce: float = 0
    consume: float = 0
    connections: int = 0
    request_bytes: int = 16 * _KIB
    response_bytes: int = 128 * _KIB
    requests: float | None = None
    tls: bool = False
    capture: bool = False


class Part(NamedTuple):
    """One product of the estimate of CPU.

    Attributes:
        what: is done.
        times: a second.
        each_us, full_each_us: CPU for one, beside a broker and on a full core.
    """

    what: str
    times: float
    each_us: float
    full_each_us: float

    @property
    def cores(self) -> float:
        """Return the cores in use, beside a broker."""
        return self.times * self.each_us / 1e6

    @property
    def full_cores(self) -> float:
        """Return the same where a core is full."""
        return self.times * self.full_each_us / 1e6


class Fleet(NamedTuple):
    """The processes that carry a load.

    Attributes:
        members: how many, with the one that may be lost.
        spare: members that the load does not need: 1, or 0 of a single process.
        workers: of each member.
    """

    members: int
    spare: int
    workers: int

    @property
    def carrying(self) -> int:
        """Return how many members carry the load when one is lost."""
        return self.members - self.spare


class Member(NamedTuple):
    """What one member needs while another one is lost: bytes, descriptors of one process, bytes/s in each direction."""

    connections: int
    memory: float
    memory_max: float
    kernel_memory: float
    descriptors: int
    network: float


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `sluice size`."""
    default = Load()
    command.set_defaults(command=run)
    for name, value, metavar, text in (
        ("--produce", "0", "BYTES", "bytes/s that all clients write, for example 200M"),
        ("--consume", "0", "BYTES", "bytes/s that all clients read"),
        ("--connections", "0", "NUMBER", "connections of all clients"),
        ("--request-bytes", str(default.request_bytes), "BYTES", "mean size of a Produce request"),
        ("--response-bytes", str(default.response_bytes), "BYTES", "mean size of a Fetch response"),
        (
            "--requests",
            None,
            "NUMBER",
            "requests/s of all kinds (default: those of the bytes, and one a second of each connection)",
        ),
        ("--cores-per-machine", "4", "NUMBER", "cores of one machine that are free for Sluice"),
        ("--members-min", "2", "NUMBER", "least number of members; 1: none may be lost, as of a sidecar"),
        ("--speed", "1", "FACTOR", "a core's speed, of that of the measured machine"),
    ):
        command.add_argument(name, metavar=metavar, default=value, help=text)
    command.add_argument("--tls", action="store_true", help="clients' TLS ends at Sluice")
    command.add_argument("--capture", action="store_true", help="every request is captured")
    add_format(command)


def run(options: argparse.Namespace) -> int:
    """Print the estimate; returns the exit code."""
    load = Load(
        produce=_read(options, "produce", Annotated[int, number(0, RATE_MAX, "bytes/s")]),
        consume=_read(options, "consume", Annotated[int, number(0, RATE_MAX, "bytes/s")]),
        connections=_read(options, "connections", Annotated[int, number(0, 100_000_000, "connections")]),
        request_bytes=_read(options, "request_bytes", Annotated[int, number(1, 2**31 - 1, "bytes")]),
        response_bytes=_read(options, "response_bytes", Annotated[int, number(1, 2**31 - 1, "bytes")]),
        requests=None
        if options.requests is None
        else _read(options, "requests", Annotated[float, number(0, 1e12)]),
        tls=options.tls,
        capture=options.capture,
    )
    if not (load.produce or load.consume or load.connections or load.requests):
        raise UsageError("no load is stated: give --produce, --consume, --requests or --connections")
    count = Annotated[int, number(1, 100_000)]
    speed = _read(options, "speed", Positive)
    parts = cpu(load, speed)
    fleet = fleet_of(parts, _read(options, "cores_per_machine", count), _read(options, "members_min", count))
    member = member_of(load, fleet)
    warnings = list(_warnings(load, fleet, member))
    print_result(
        options.format,
        _document(load, speed, parts, fleet, member, warnings),
        _table(load, parts, fleet, member, warnings),
    )
    return OK


def _read(options: argparse.Namespace, name: str, annotation: Any) -> Any:
    return read_value(f"--{name.replace('_', '-')}", annotation, getattr(options, name))


# ----------------------------------------------------------------------------------------------------
# CPU: how often something is done, times what one costs.


@cache
def content() -> dict[str, Any]:
    """Return the file of costs: `runs` with machine and date, `figures` with the value of each."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def figure(name: str) -> float:
    """Return a measured figure; its unit is the last part of its name."""
    return float(content()["figures"][name]["value"])


def cost_us(curve: Curve, size: float) -> float:
    """Return the CPU of one request or response in µs: between two points in proportion, beyond the last by bytes.

    >>> curve = [(100, 10), (300, 20)]
    >>> cost_us(curve, 50), cost_us(curve, 200), cost_us(curve, 600)
    (10, 15.0, 40.0)
    """
    below, cost = curve[0]
    if size <= below:
        return cost
    for above, measured_us in curve[1:]:
        more = max(cost, measured_us)  # a larger one that was measured as the cheaper one is noise
        if size <= above:
            return cost + (more - cost) * (size - below) / (above - below)
        below, cost = above, more
    return cost * size / below


def _beside(load: Load) -> tuple[Curve, Curve]:
    """Return what a Produce and a Fetch cost beside a broker.

    The s/GB of `make bench` are those of large requests: what a small one costs is added for each Fetch. TLS and
    capture are factors, each of two figures of one run, since those runs may be of other machines.
    """
    small, large = figure("produce_100_us"), figure("produce_s_per_gb") * _LARGEST / 1000
    fetch = figure("consume_s_per_gb") * _MIB / 1000
    produce: Curve = [
        (_SMALL, small),
        (16 * _KIB, figure("produce_16k_us")),
        (64 * _KIB, figure("produce_64k_us")),
        (_LARGEST, large),
    ]
    if load.tls:
        small *= figure("tls_small_us") / figure("sasl_small_us")
        large *= figure("tls_produce_s_per_gb") / figure("sasl_produce_s_per_gb")
        fetch *= figure("tls_consume_s_per_gb") / figure("sasl_consume_s_per_gb")
        produce = [(_SMALL, small), (_LARGEST, large)]
    return produce, [(_SMALL, small), (_MIB, small + fetch)]


def _full(load: Load) -> tuple[Curve, Curve]:
    """Return the same where a core is full; a large Produce is taken to cost with TLS what a Fetch does."""
    sizes = (_SMALL, 16 * _KIB, _LARGEST)
    if load.tls:
        names = ("full_tls_100_us", "full_tls_16k_us", "full_tls_fetch_128k_us")
        fetch_names = names[0], names[2]
    else:
        names = ("full_produce_100_us", "full_produce_16k_us", "full_produce_128k_us")
        fetch_names = "full_fetch_100_us", "full_fetch_128k_us"
    produce = list(zip(sizes, map(figure, names), strict=True))
    return produce, list(zip((_SMALL, _LARGEST), map(figure, fetch_names), strict=True))


def cpu(load: Load, speed: float = 1.0) -> list[Part]:
    """Return the parts of the CPU that a load takes.

    Args:
        speed: of a core, in the measured machine's; what is done costs the less.
    """
    capture = figure("full_capture_100_us") / figure("full_produce_100_us") if load.capture else 1.0
    capture_produce = figure("captured_s_per_gb") / figure("uncaptured_s_per_gb") if load.capture else 1.0
    produce, fetch = _beside(load)
    full_produce, full_fetch = _full(load)
    produced, fetched = load.produce / load.request_bytes, load.consume / load.response_bytes
    small = float(load.connections) if load.requests is None else max(0.0, load.requests - produced - fetched)
    idle = figure("idle_percent") / 100 / figure("idle_connections") * 1e6
    found = (
        (
            f"Produce of {amounts.size(load.request_bytes)}",
            produced,
            cost_us(produce, load.request_bytes) * capture_produce,
            cost_us(full_produce, load.request_bytes) * capture,
        ),
        (
            f"Fetch of {amounts.size(load.response_bytes)}",
            fetched,
            cost_us(fetch, load.response_bytes) * capture,
            cost_us(full_fetch, load.response_bytes) * capture,
        ),
        (
            "small requests" if load.requests is not None else "small requests, 1/s a connection",
            small,
            cost_us(produce, _SMALL) * capture,
            cost_us(full_produce, _SMALL) * capture,
        ),
        ("open connections", float(load.connections), idle, idle),
    )
    return [Part(what, times, each / speed, full / speed) for what, times, each, full in found if times]


def cores_wanted(parts: Sequence[Part]) -> float:
    """Return the cores of which the parts use 70 % each."""
    return sum(part.cores for part in parts) / UTILIZATION_MAX


# ----------------------------------------------------------------------------------------------------
# Processes, and what each needs.


def fleet_of(parts: Sequence[Part], cores_per_machine: int, members_min: int) -> Fleet:
    """Return the smallest fleet that carries a load on machines of so many cores, also without one of its members.

    Args:
        members_min: the least number of members; with 1 none may be lost.
    """
    processes = max(1, math.ceil(cores_wanted(parts)))
    spare = 1 if members_min > 1 else 0
    members = max(members_min, math.ceil(processes / min(cores_per_machine, WORKERS_MAX)) + spare)
    return Fleet(members, spare, math.ceil(processes / (members - spare)))


def member_of(load: Load, fleet: Fleet) -> Member:
    """Return what one member of a fleet needs while another one is lost."""
    limits = LimitOptions()
    connections = math.ceil(load.connections / fleet.carrying)
    memory = _start_mib(fleet) * _MIB + connections * figure("connection_kib") * _KIB
    unfinished = min(_UNFINISHED_BYTES_MAX, max(load.request_bytes, load.response_bytes))
    ports = ListenerOptions().broker_id_max + 2  # one for each broker id from 0, and the bootstrap port
    per_worker = math.ceil(connections / fleet.workers), math.ceil(limits.pipes_max / fleet.workers)
    return Member(
        connections=connections,
        memory=memory,
        memory_max=memory + limits.kept_bytes_max,
        kernel_memory=limits.pipes_max * _PIPE_BYTES + connections * unfinished,
        descriptors=2 * sum(per_worker) + ports + _DESCRIPTORS_SPARE,
        network=(load.produce + load.consume) / fleet.carrying,
    )


def _start_mib(fleet: Fleet) -> float:
    if fleet.workers == 1:
        return figure("start_mib")
    return figure("control_mib") + fleet.workers * figure("worker_mib")


def descriptors_limit(descriptors: int) -> int:
    """Return the limit for a process that uses so many descriptors: a whole thousand, of which 80 % are enough.

    >>> descriptors_limit(10_000)
    13000
    """
    return math.ceil(descriptors / _DESCRIPTORS_SHARE_MAX / 1000) * 1000


# ----------------------------------------------------------------------------------------------------
# Output.


def _document(
    load: Load, speed: float, parts: Sequence[Part], fleet: Fleet, member: Member, warnings: Sequence[str]
) -> dict[str, object]:
    return {
        "version": 1,
        "load": load._asdict(),
        "speed": speed,
        "cpu": [
            {
                "what": part.what,
                "times_per_second": part.times,
                "microseconds": part.each_us,
                "cores": part.cores,
                "full_core_microseconds": part.full_each_us,
                "full_core_cores": part.full_cores,
            }
            for part in parts
        ],
        "cores": sum(part.cores for part in parts),
        "full_core_cores": sum(part.full_cores for part in parts),
        "utilization_max": UTILIZATION_MAX,
        "cores_wanted": cores_wanted(parts),
        "members": fleet.members,
        "members_spare": fleet.spare,
        "workers": fleet.workers,
        "member": {
            "connections": member.connections,
            "memory_bytes": round(member.memory),
            "memory_bytes_max": round(member.memory_max),
            "kernel_memory_bytes": round(member.kernel_memory),
            "descriptors_per_process": member.descriptors,
            "descriptors_limit": descriptors_limit(member.descriptors),
            "network_bytes_per_second_each_way": member.network,
        },
        "measured": content()["runs"],
        "warnings": [*warnings],
    }


def _table(
    load: Load, parts: Sequence[Part], fleet: Fleet, member: Member, warnings: Sequence[str]
) -> Iterator[str]:
    rows = [("CPU", "per second", "µs each", "cores", "on a full core")]
    rows += [
        (
            part.what,
            f"{part.times:,.0f}",
            f"{part.each_us:.1f}",
            f"{part.cores:.2f}",
            f"{part.full_cores:.2f}",
        )
        for part in parts
    ]
    cores, full = sum(part.cores for part in parts), sum(part.full_cores for part in parts)
    rows.append(("in all", "", "", f"{cores:.2f}", f"{full:.2f}"))
    yield from _to_the_right(rows)
    yield ""
    yield from amounts.aligned(
        [
            (
                "cores",
                f"{cores_wanted(parts):.2f}",
                f"{cores:.2f} / {UTILIZATION_MAX}: no core is busier than 70 %",
            ),
            ("members", str(fleet.members), _members(fleet)),
            ("workers", str(fleet.workers), "of each member, one per core: [process] workers"),
        ]
    )
    yield ""
    yield "each member, while another is lost:" if fleet.spare else "each member:"
    yield from (f"  {line}" for line in amounts.aligned([*_member(load, fleet, member)]))
    yield ""
    yield from _measured(load)
    yield from (f"warning: {warning}" for warning in warnings)


def _to_the_right(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells))


def _members(fleet: Fleet) -> str:
    if not fleet.spare:
        return "none may be lost (--members-min 1)"
    return f"{fleet.carrying} for the load, and one that may be lost"


def _member(load: Load, fleet: Fleet, member: Member) -> Iterator[tuple[str, str, str]]:
    limits = LimitOptions()
    yield (
        "connections",
        f"{member.connections:,}",
        f"{load.connections:,} / {fleet.carrying}; limits.connections_max is {limits.connections_max:,} by default",
    )
    yield (
        "memory",
        amounts.size(member.memory),
        f"{_start(fleet)}, {amounts.size(figure('connection_kib') * _KIB)} for each connection",
    )
    yield (
        "memory, at most",
        amounts.size(member.memory_max),
        f"and limits.kept_bytes_max, {amounts.size(limits.kept_bytes_max)}: the limit of a container",
    )
    yield (
        "kernel memory",
        amounts.size(member.kernel_memory),
        f"{limits.pipes_max} pipes of 1 MiB, and up to 256 KiB of an unfinished frame of each connection",
    )
    yield (
        "descriptors",
        f"{descriptors_limit(member.descriptors):,}",
        f"limit of a process, for {member.descriptors:,}: two for each connection and pipe, the ports",
    )
    yield (
        "network",
        f"{member.network * 8 / 1e9:.2f} Gbit/s",
        "in, and the same out: what is produced and consumed passes twice",
    )


def _start(fleet: Fleet) -> str:
    if fleet.workers == 1:
        return f"{amounts.size(figure('start_mib') * _MIB)} at start"
    control, worker = (amounts.size(figure(f"{name}_mib") * _MIB) for name in ("control", "worker"))
    return f"{control} for control, {fleet.workers} × {worker} for workers"


def _measured(load: Load) -> Iterator[str]:
    runs = content()["runs"]
    names = ["bench", "saturate", "fleet-workers"]
    names += ["identities"] * load.tls + ["capture"] * load.capture
    for name in names:
        run_of = runs[name]
        yield f"measured by {run_of['command']}, {run_of['date'][:10]}: {run_of['machine']}"
    yield "Other machines take more or less: run `make bench` on yours, and state --speed."


def _settings(fleet: Fleet, member: Member) -> Iterator[str]:
    """Yield which limits of the configuration are below what the load needs."""
    if fleet.members > MEMBERS_MAX:
        yield f"a fleet has at most {MEMBERS_MAX} members: use several, each in front of a part of the clients"
    elif fleet.members > FleetOptions().members_max:
        yield f"set fleet.members_max to {fleet.members} or more"
    if member.connections > LimitOptions().connections_max:
        yield f"set limits.connections_max above {member.connections:,}"


def _warnings(load: Load, fleet: Fleet, member: Member) -> Iterator[str]:
    """Yield what of the load, or of what it needs, was not measured, or needs a setting."""
    yield from _unmeasured_sizes(load)
    named = load.produce / load.request_bytes + load.consume / load.response_bytes
    if load.requests is not None and load.requests < named:
        yield (
            f"--requests is less than the {named:,.0f}/s that the bytes make with these sizes: "
            "state --request-bytes and --response-bytes"
        )
    per_worker = math.ceil(member.connections / fleet.workers)
    if per_worker > figure("idle_connections"):
        yield (
            f"{per_worker:,} connections of one process: no more than {figure('idle_connections'):,.0f} were "
            "measured"
        )
    if 0 < load.connections < _CONNECTIONS_SPREAD * fleet.workers * fleet.members and fleet.workers > 1:
        yield (
            "few connections are spread unevenly over workers, and each has one core at most: expect less "
            "than the workers' sum"
        )
    yield from _settings(fleet, member)
    if member.connections > _SOURCE_PORTS:
        yield (
            f"a member has {_SOURCE_PORTS:,} source ports towards one broker (net.ipv4.ip_local_port_range): "
            "widen the range, or run more members"
        )
    if load.tls:
        yield (
            "a TLS connection takes about three times as much memory; TLS towards brokers and handshakes "
            "(0.5 to 2 ms of CPU each) are not in the estimate"
        )
    if fleet.workers > _CORES_MEASURED:
        yield f"more than {_CORES_MEASURED} cores of one machine were not measured"
    if fleet.members > _MEMBERS_MEASURED:
        yield f"a fleet of more than {_MEMBERS_MEASURED} members was not measured"


def _unmeasured_sizes(load: Load) -> Iterator[str]:
    if load.produce and load.request_bytes < _KIB:
        yield (
            f"{load.produce / load.request_bytes:,.0f} Produce requests a second of under 1 KiB: their number "
            "decides, not their bytes; larger batches (linger.ms, batch.size) save most of it"
        )
    if load.consume and load.response_bytes < _KIB:
        yield (
            f"{load.consume / load.response_bytes:,.0f} Fetch responses a second of under 1 KiB: their number "
            "decides, not their bytes; a larger fetch.min.bytes saves most of it"
        )
    if load.produce and load.request_bytes > _LARGEST:
        yield "Produce requests of more than 128 KiB were not measured: they are taken to cost as much a byte"

"""`sluice-offline import pcap FILE...`: packet captures -> a capture, as if a proxy had recorded it.

What a packet capture has not: how long a client waited before it sent (`delay_ms` is 0; `throttle_ms` is what the
brokers' responses say), the ids of brokers (`--broker`), anything inside TLS, and names of topics that are named by id
where no Metadata response told them. The file says so, and `recommend` in its confidence.

The clock is that of the packets. If it goes back by more than a second, it was set: rows go on from the later time.

Exit code 3 if there is no request of Kafka's: the summary says whether TLS is the reason.
"""

import argparse
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from commandline.amounts import aligned, count, duration, printable, size
from commandline.arguments import add_format, not_installed, print_result
from commandline.program import NEGATIVE, OK
from offline.errors import InputError, SetupError
from offline.options import GRADES
from protocol.capture import NONE
from protocol.walks.walk import OTHER_TOPICS

if TYPE_CHECKING:
    from offline.imports.capture_file import CaptureFile
    from offline.imports.connections import Connection, Totals
    from offline.imports.conversation import Request
    from offline.imports.files import Files, Packet

_DESCRIPTION: Final = (
    "Read packet captures (pcap, pcapng, also gzipped), put Kafka's conversations together, and write them as a "
    "capture that `sluice-offline ingest` reads. Several files are read as one capture, in the order of their times."
)
_PORT_MAX: Final = 65535
_INT32_MAX: Final = 0x7FFFFFFF
# By the name of the module.
_DISTRIBUTIONS: Final = {"pcapy": "pcapy-ng"}
_TOPIC_IDS_SINCE: Final = 13  # Produce and Fetch alike
# A packet that is so much earlier than the one before is not late: the clock was set.
_STEP_US: Final = 1_000_000
# Of the payload; less does not make a difference for a quota.
_LOST_FEW: Final = 0.001
_LOST_MANY: Final = 0.05


def add_parser(subparsers: Any) -> None:
    """Add the command `import pcap` with its arguments."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "pcap", help="packet captures (pcap, pcapng)", description=_DESCRIPTION
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="packet captures")
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="directory of the capture, for `ingest --input`"
    )
    parser.add_argument(
        "--ports",
        type=_ports,
        default=(),
        metavar="PORT,...",
        help="ports of the brokers; by default Kafka is recognised by what it sends",
    )
    parser.add_argument(
        "--broker",
        type=_broker,
        action="append",
        default=[],
        metavar="ID=ADDRESS:PORT",
        help="the broker at this IP address and port; may be given more than once; of others the id is not known",
    )
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="a progress bar; by default on a terminal",
    )
    add_format(parser)
    parser.set_defaults(work=main)


def main(options: argparse.Namespace) -> int:
    """Import packet captures and print the summary; returns the exit code.

    Raises:
        InputError: a file cannot be read, or is no packet capture; or the output cannot be written.
        SetupError: a package is missing.
    """
    found = run(options)
    print_result(options.format, found.document(), found.lines())
    return OK if found.rows else NEGATIVE


@dataclass(slots=True, kw_only=True)
class Summary:
    """What an import has read and written; see `Totals` and `Files` for what is counted.

    Attributes:
        file: the capture's file; "" without any request.
        first_us, last_us: the times of the first and last packet.
        clock_steps: how often the clock was set back.
        source: what the capture's file says of its source.
    """

    file: str
    rows: int
    packets: int
    skipped: Counter[str]
    files_cut: list[str]
    first_us: int
    last_us: int
    clock_steps: int
    totals: "Totals"
    source: str

    def document(self) -> dict[str, Any]:
        """Return the summary for JSON: counts, bytes and seconds."""
        return {
            "file": self.file,
            "rows": self.rows,
            "source": self.source,
            "seconds": (self.last_us - self.first_us) / 1e6,
            "packets": self.packets,
            "packets_skipped": dict(self.skipped),
            "files_cut": self.files_cut,
            "clock_steps": self.clock_steps,
            **self.totals.document(),
        }

    def lines(self) -> Iterator[str]:
        """Yield the summary for people."""
        totals = self.totals
        yield from aligned([(name, value, note) for name, value, note in self._table() if value != "0"])
        if totals.tls:
            yield f"{count(totals.tls, 'connection')} of TLS: nothing of them can be read"
        for path in self.files_cut:
            yield f"{printable(path)} ends within a packet, or is damaged there: what follows was not read"
        if self.rows:
            yield f"{self.file}: {count(self.rows, 'request')}"
            yield f"recommend will say: {self.source}"
        else:
            yield "no request of Kafka's was found, and nothing was written"

    def _table(self) -> Iterator[tuple[str, str, str]]:
        totals = self.totals
        span = duration((self.last_us - self.first_us) / 1e6)
        yield "packets", f"{self.packets:,}", f"over {span}"
        for why, number in sorted(self.skipped.items()):
            yield f"  {why}", f"{number:,}", "not read"
        yield "  of other ports", f"{totals.other_ports:,}", "not read"
        yield "connections", f"{totals.connections:,}", ""
        yield "  Kafka", f"{totals.kafka:,}", ""
        yield "    cut at the start", f"{totals.cut_start:,}", "their users are not known"
        yield "    cut at the end", f"{totals.cut_end:,}", ""
        yield "  TLS", f"{totals.tls:,}", ""
        yield "  not Kafka", f"{totals.other:,}", ""
        yield "  ended early", f"{totals.evicted:,}", "for want of memory"
        yield "requests", f"{totals.requests:,}", ""
        yield "  without a response", f"{totals.unanswered:,}", "that one was owed to"
        yield "  without a client id", f"{totals.client_ids_cut:,}", "it was cut off"
        yield "  without a row", f"{totals.headers_cut:,}", "their header was cut off"
        yield "responses without a request", f"{totals.stray_responses:,}", ""
        yield "payload", size(totals.payload), ""
        yield "  retransmitted", _bytes(totals.retransmitted), "beside it"
        yield "  lost", _bytes(totals.lost), "that were acknowledged, and have no packet"
        yield "  cut off", _bytes(totals.cut), "beyond the snapshot length; sizes are known"
        yield (
            "  unread",
            _bytes(totals.unread),
            f"until the next request, {totals.out_of_step:,} times out of step",
        )
        yield "clock set back", f"{self.clock_steps:,}", "times"


def _bytes(amount: int) -> str:
    return size(amount) if amount else "0"


@dataclass(slots=True)
class Clock:
    """The time of packets, which never goes back.

    Attributes:
        now_us: the last time.
        steps: how often it was set back.
    """

    now_us: int = 0
    steps: int = 0
    _offset_us: int = 0

    def at(self, time_us: int) -> int:
        """Return the time of a packet with this time of the capture."""
        time_us += self._offset_us
        if time_us < self.now_us - _STEP_US:
            self._offset_us += self.now_us - time_us
            self.steps += 1
        self.now_us = max(self.now_us, time_us)
        return self.now_us


def run(options: argparse.Namespace) -> Summary:
    """Import packet captures.

    Raises:
        InputError: see `main`.
        SetupError: see `main`.
    """
    try:
        from tqdm import tqdm

        from offline.imports.files import Files
        from offline.inputs import check_output
    except ImportError as error:
        name = error.name or "a package"
        raise SetupError(not_installed(_DISTRIBUTIONS.get(name, name), "offline")) from error
    if "://" in options.output:
        raise InputError(f"--output {options.output}: a capture is written to a local directory")
    check_output(options.output)
    sizes = [path.stat().st_size for path in options.files if path.is_file()]
    disable = None if options.progress is None else not options.progress
    with tqdm(
        total=sum(sizes), desc="import", unit="B", unit_scale=True, disable=disable, dynamic_ncols=True
    ) as bar:
        packets = Files(options.files, bar.update)
        work = _Import(Path(options.output), options.ports, dict(options.broker))
        try:
            for packet in packets:
                segment = packet.dissector.segment(packet.data, packet.wire_bytes)
                time_us = work.begin(packet)
                if segment is not None:
                    work.connections.add(segment, time_us)
            return work.finish(packets)
        except OSError as error:
            work.discard()
            raise InputError(f"{options.output}: {error.strerror or error}") from error
        except BaseException:
            work.discard()
            raise


class _Import:
    """One import: from segments to the rows of a file.

    Args:
        directory: of the file.
        brokers: their ids, by address and port.
    """

    def __init__(
        self, directory: Path, ports: Collection[int], brokers: Mapping[tuple[str, int], int]
    ) -> None:
        from offline.imports.connections import Connections

        self.connections = Connections(ports, self._emit)
        self.clock = Clock()
        self._directory = directory
        self._brokers = brokers
        self._first_us = -1
        self._process = ""
        self._file: CaptureFile | None = None

    def begin(self, packet: "Packet") -> int:
        """Begin with a packet; returns its time by the import's clock."""
        if self._first_us < 0:
            self._first_us = packet.time_us
            first = datetime.fromtimestamp(packet.time_us / 1e6, UTC)
            # The same for the same capture: `ingest` finds what was imported twice.
            self._process = f"pcap-{first:%Y%m%dT%H%M%SZ}.{sha256(packet.data).hexdigest()[:6]}"
        return self.clock.at(packet.time_us)

    def finish(self, packets: "Files") -> Summary:
        """End the connections, and complete the file."""
        self.connections.finish()
        totals = self.connections.totals
        source = source_of(totals)
        if self._file is not None:
            self._file.finish(source)
        return Summary(
            file="" if self._file is None else str(self._file.path),
            rows=0 if self._file is None else self._file.rows,
            packets=packets.packets,
            skipped=packets.skipped,
            files_cut=packets.cut,
            first_us=max(self._first_us, 0),
            last_us=self.clock.now_us,
            clock_steps=self.clock.steps,
            totals=totals,
            source=source,
        )

    def discard(self) -> None:
        """Remove what was written."""
        if self._file is not None:
            self._file.discard()

    def _emit(self, connection: "Connection", request: "Request") -> None:
        if self._file is None:
            from offline.imports.capture_file import CaptureFile

            self._file = CaptureFile(self._directory, self._process)
        self._file.add(self._row(connection, request))

    def _row(self, connection: "Connection", request: "Request") -> tuple[Any, ...]:
        """Return the values of all columns, in the order of COLUMNS."""
        ip, server, port = connection.origin()
        return (
            request.time_us // 1000,
            request.time_us - self._first_us,
            self._process,
            connection.number,
            request.seq,
            request.principal,
            request.client_id,
            ip,
            f"[{server}]:{port}" if ":" in server else f"{server}:{port}",
            self._brokers.get((server, port), NONE),
            request.api_key,
            request.api_version,
            request.request_bytes,
            request.response_bytes,
            request.upstream_us,
            request.throttle_ms,
            0,
            "",
            request.mutations,
            [(self._topic(raw, request.api_version), *rest) for raw, *rest in request.partitions],
        )

    def _topic(self, raw: bytes, version: int) -> str:
        if raw == OTHER_TOPICS or version < _TOPIC_IDS_SINCE:
            return raw.decode("utf-8", "backslashreplace")
        return self.connections.names.get(raw) or raw.hex()


def source_of(totals: "Totals") -> str:
    """Return what a capture made of packets says of its source (`protocol.capture.SOURCE_KEY`)."""
    grade, said = 0, ["from a packet capture, so what clients waited before they sent is not known"]
    missing = totals.lost + totals.unread
    share = missing / max(totals.payload + missing, 1)
    if share > _LOST_FEW:
        grade = 2 if share > _LOST_MANY else 1
        said.append(f"{100 * share:.1f} % of its bytes are missing")
    if totals.tls:
        grade = max(grade, 2 if totals.tls > totals.kafka else 1)
        said.append(f"{totals.tls} of {totals.tls + totals.kafka} connections are TLS and left out")
    return f"{GRADES[grade]}: {', '.join(said)}"


def _ports(text: str) -> tuple[int, ...]:
    return tuple(_port(part) for part in text.split(","))


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _broker(text: str) -> tuple[tuple[str, int], int]:
    number, equals, end = text.partition("=")
    address, _, port = end.rpartition(":")
    try:
        found = str(ip_address(address.removeprefix("[").removesuffix("]")))
        if not equals or not number.isascii() or not number.isdigit() or int(number) > _INT32_MAX:
            raise ValueError(number)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not ID=ADDRESS:PORT with an IP address, such as 1=10.0.0.5:9092"
        ) from None
    return (found, _port(port)), int(number)

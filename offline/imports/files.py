"""Reads packets from capture files (pcap and pcapng, also compressed by gzip), in the order of their times.

libpcap reads the files, by pcapy-ng: it has written most of them, checks every length, and tells each packet's size
on the wire, which dpkt does not; scapy is licensed under the GPL. It takes no compressed files, so another process
decompresses those, while this one reads.

Several files are read as one capture: parts of a rotated capture follow each other, those of several machines are
merged. A file that ends within a packet is read until there.
"""

import heapq
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Final, NamedTuple

import pcapy

from offline.errors import InputError
from offline.imports.packets import Dissector, LinkTypeError

_GZIP: Final = b"\x1f\x8b"
_RECORD_BYTES: Final = 16  # of a packet in a file, beside its bytes
# Later times are of damaged files: they are beyond the 23rd century.
_SECONDS_MAX: Final = 1 << 33
_PROGRESS_BYTES: Final = 4 * 1024 * 1024


class Packet(NamedTuple):
    """A captured packet: its time in us since 1970, its captured bytes, its size on the wire, what dissects it."""

    time_us: int
    data: bytes
    wire_bytes: int
    dissector: Dissector


class Files:
    """The files of one capture.

    Args:
        progress: is called with the number of bytes of the files that were read.

    Attributes:
        skipped: the packets without a readable TCP segment, by reason.
        packets: how many were read.
        cut: the files that end within a packet.

    Raises:
        InputError: a file cannot be read, or is no packet capture; the message names it.
    """

    def __init__(self, paths: Sequence[Path], progress: Callable[[int], object]) -> None:
        self.skipped: Counter[str] = Counter()
        self.packets = 0
        self.cut: list[str] = []
        self._progress = progress
        begins = sorted((self._first(path), number, path) for number, path in enumerate(paths))
        self._begins = [(time_us, path) for time_us, _, path in begins if time_us is not None]

    def __iter__(self) -> Iterator[Packet]:
        """Yield all packets in the order of their times; within a file in the order of the file."""
        waiting = self._begins[::-1]
        readers: list[tuple[int, int, Packet, Iterator[Packet]]] = []
        number = 0
        while waiting or readers:
            while waiting and (not readers or waiting[-1][0] <= readers[0][0]):
                number += 1
                self._push(readers, number, self._read(waiting.pop()[1]))
            if not readers:
                continue
            _, order, packet, reader = heapq.heappop(readers)
            self.packets += 1
            yield packet
            self._push(readers, order, reader)

    def _push(
        self, readers: list[tuple[int, int, Packet, Iterator[Packet]]], order: int, reader: Iterator[Packet]
    ) -> None:
        packet = next(reader, None)
        if packet is not None:
            heapq.heappush(readers, (packet.time_us, order, packet, reader))

    def _first(self, path: Path) -> int | None:
        """Return the time of a file's first packet; None if it has none.

        Raises:
            InputError: the file is no packet capture.
        """
        with _opened(path) as opened:
            _dissector(path, opened.reader, self.skipped)
            try:
                found = _next(opened.reader)
            except pcapy.PcapError:
                self.cut.append(str(path))
                return None
        return None if found is None else found[0]

    def _read(self, path: Path) -> Iterator[Packet]:
        read = reported = next_report = 0
        with _opened(path) as opened:
            dissector = _dissector(path, opened.reader, self.skipped)
            while True:
                try:
                    found = _next(opened.reader)
                    is_cut = found is None and opened.failed()
                except pcapy.PcapError:
                    found, is_cut = None, True
                if is_cut:
                    self.cut.append(str(path))
                if found is None:
                    break
                time_us, data, wire_bytes = found
                read += _RECORD_BYTES + len(data)
                if read >= next_report:
                    next_report += _PROGRESS_BYTES
                    at = opened.position(read)
                    self._progress(at - reported)
                    reported = at
                if time_us < 0:
                    self.skipped["damaged"] += 1
                    continue
                yield Packet(time_us, data, wire_bytes, dissector)


def _next(reader: Any) -> tuple[int, bytes, int] | None:
    """Return the next packet's time in us (-1: it is none), its bytes, and its size on the wire; None at the end.

    Raises:
        pcapy.PcapError: the file ends within a packet, or is damaged.
    """
    header, data = reader.next()
    if header is None:
        return None
    seconds, microseconds = header.getts()
    time_us = seconds * 1_000_000 + microseconds if 0 <= seconds < _SECONDS_MAX else -1
    return time_us, data, header.getlen()


def _dissector(path: Path, reader: Any, skipped: Counter[str]) -> Dissector:
    try:
        return Dissector(reader.datalink(), skipped)
    except LinkTypeError as error:
        raise InputError(f"{path} {error}") from None


class _Opened(NamedTuple):
    """An open file: libpcap's reader, the file itself, and the process that decompresses it, if it is compressed."""

    reader: Any
    file: FileIO
    process: "subprocess.Popen[bytes] | None" = None

    def position(self, read: int) -> int:
        """Return how many bytes of the file were read; `read` is the number of those that libpcap has given away."""
        return read if self.process is None else self.file.tell()  # which both processes share

    def failed(self) -> bool:
        """Whether the file's end could not be decompressed; call it when the reader has come to an end."""
        return self.process is not None and self.process.wait() != 0


@contextmanager
def _opened(path: Path) -> Iterator[_Opened]:
    """Open a file with libpcap.

    Raises:
        InputError: it cannot be read, or is no packet capture.
    """
    try:
        # Not buffered: the other process goes on where this one has stopped.
        with path.open("rb", buffering=0) as file:
            if not path.is_file():
                raise InputError(f"{path}: is not a regular file")
            compressed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if not compressed:
                with _reader(path, file.fileno()) as reader:
                    yield _Opened(reader, file)
                return
            # pcapy-ng holds the interpreter's lock while it waits for a pipe, so a thread could not fill it.
            command = [sys.executable, "-m", "gzip", "-d", "-"]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=file, stdout=pipe, stderr=subprocess.DEVNULL) as process:
                assert process.stdout is not None, "a pipe is asked for"
                try:
                    with _reader(path, process.stdout.fileno()) as reader:
                        yield _Opened(reader, file, process)
                finally:
                    process.kill()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


@contextmanager
def _reader(path: Path, descriptor: int) -> Iterator[Any]:
    try:
        reader = pcapy.open_offline(f"/dev/fd/{descriptor}")
    except pcapy.PcapError as error:
        raise InputError(f"{path} is no packet capture that libpcap can read: {error}") from None
    try:
        yield reader
    finally:
        reader.close()

"""Readers of what is no Kafka message.

Of peers' bytes: PROXY headers, SASL tokens, certificates, HTTP. Of files, which operators write, others leave in a
shared directory, or a full disk leaves a part of. And of records of the quota topic: every client with the right to
write there can write any bytes.
"""

import logging
import os
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Final

from kafka_client import LoginError
from kafka_client.connection import Exchange
from protocol.errors import WireError
from protocol.messages import client_quotas, sasl
from proxy.admin import http
from proxy.commands.reassign_plan import read_reassignment
from proxy.commands.servers import read_command_config
from proxy.config import QuotaSettings, Source, compare, read_definitions, reload
from proxy.config.principals import (
    CertificateError,
    MappingRules,
    NoMatchingRuleError,
    RuleError,
    expires_at,
    host_names,
    subject,
)
from proxy.control.cluster.brokers import BrokerMap, MapFile
from proxy.control.quotas.file_store import FileStore
from proxy.control.reassign.journal import LineError, read_line, write_line
from proxy.net import proxy_header
from proxy.system.errors import SluiceError
from proxy.system.stats import Stats
from quotas.definitions.alterations import FilterError, alter, filter_of, matching
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.records import Author, RecordError, key_of, read_key, read_setting, value_of
from quotas.definitions.toml_file import parse, render
from tests.fuzz.draw import Draw, stretched, stretching
from tests.fuzz.stopwatch import timed

_NONCE: Final = b"fyko"
_ITERATIONS: Final = b"i=4096"
_RULES: Final = MappingRules(
    r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,RULE:^([^=]*)=(?<name>[^,]*).*$/${name}/U,DEFAULT"
)
_SUBJECTS: Final = ("CN=Billing,OU=ServiceUsers,O=Example", "CN=x", "")
_COMMAND_CLAIMS: Final = ("sub", "scope", "")


def proxy_line(data: bytes) -> None:
    """A PROXY header, as much of it as has come, and all that follows."""
    with suppress(proxy_header.ProxyHeaderError):
        found = timed("proxy header", proxy_header.parse, data)
        assert found is None or 0 < found.length <= proxy_header.V2_BYTES_MAX, "its length is bounded"
        assert found is None or found.length <= len(data), "it is all here"


def tokens(data: bytes) -> None:
    """A SASL token, of whatever mechanism; it may be stretched."""
    draw = Draw(data)
    kind, flags = draw.byte(), draw.byte()
    how = stretching(draw, flags & 1)
    token = how(draw.rest())[: 1 << 20]
    buf, end = bytearray(b"\0" + token + b"\0"), 1 + len(token)
    found: str | None = None
    if kind % 4 == 0:
        found = timed("PLAIN", sasl.plain_name, buf, 1, end)
    elif kind % 4 == 1:
        found = timed("SCRAM", sasl.scram_name, buf, 1, end)
    elif kind % 4 == 2:
        claim = _COMMAND_CLAIMS[kind // 4 % 3]
        found = timed("OAUTHBEARER", sasl.bearer_name, buf, 1, end, claim)
    else:
        _scram_of_broker(token)
    if found is not None:
        found.encode()  # it becomes a label


def _scram_of_broker(token: bytes) -> None:
    """What a broker says to Sluice's own SCRAM exchange; hashing more often is away from the loop."""
    exchange = Exchange("SCRAM-SHA-256", "sluice", "secret", "broker")
    nonce = exchange.token().rpartition(b"r=")[2]
    challenge, _, final = token.replace(_NONCE, nonce).partition(b"\n")
    with suppress(LoginError):
        if b"i=" not in challenge or challenge.endswith(_ITERATIONS):
            exchange.receive(challenge)
            exchange.receive(final)


def certificate(data: bytes) -> None:
    """A client's certificate, which a trusted authority has signed: its subject, its end, and the principal."""
    with suppress(CertificateError):
        timed("certificate's end", expires_at, data)
    with suppress(CertificateError):
        timed("certificate's names", host_names, data)
    with suppress(CertificateError):
        name = timed("certificate's subject", subject, data)
        with suppress(NoMatchingRuleError):
            timed("mapping rules", _RULES.name, name)


def mapping_rules(data: bytes) -> None:
    """The operator's mapping rules, and what they make of subjects."""
    with suppress(RuleError):
        rules = MappingRules(data.decode("utf-8", "replace")[:300])
        for one in _SUBJECTS:
            with suppress(NoMatchingRuleError):
                rules.name(one)


def admin_head(data: bytes) -> None:
    """The head of an HTTP request at the admin port."""
    with suppress(http.RefusedError):
        timed("HTTP head", http.parse, data[: http.HEAD_BYTES_MAX])


def quota_request(data: bytes) -> None:
    """DescribeClientQuotas and AlterClientQuotas to the end: what was altered can be written and read again."""
    draw = Draw(data)
    flags = draw.byte()
    body = draw.rest()
    version = flags & 1
    definitions = Definitions()
    definitions.put(Entity(user="ann"), {"producer_byte_rate": 1000.0})
    definitions.put(Entity(client_id="c"), {"request_percentage": 1.5})
    with suppress(WireError):
        if flags & 2:
            components, strict = client_quotas.read_describe(body, 0, len(body), version)
            with suppress(FilterError):
                list(matching(definitions, filter_of(components, strict), definitions.entries()))
            return
        outcome = alter(definitions, list(client_quotas.AlterRequest(body, 0, len(body), version)))
        for entity, values in outcome.changes.items():
            definitions.put(entity, values)
        written = parse(render(definitions))
        assert dict(written.entries()) == dict(definitions.entries()), "what is written is what is in force"


_MEMORY: Final = Path("/dev/shm")


def _silent(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """A target without its log lines: each damaged file is told in one."""

    @wraps(target)
    def run(data: bytes) -> None:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            target(data)
        finally:
            logging.disable(before)

    return run


@cache
def directory() -> Path:
    """A directory of this process's own, in memory where that is possible."""
    base = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="sluice-fuzz-", dir=base))


def _content(data: bytes) -> bytes:
    """A file's content; what begins with a zero says how the rest is stretched."""
    if data[:1] != b"\0":
        return data
    draw = Draw(data[1:])
    how = (draw.int16(), draw.byte(), draw.byte() % 0x90, 0)
    return stretched(draw.rest(), *how)


def _written(name: str, data: bytes) -> Path:
    path = directory() / name
    path.write_bytes(_content(data))
    return path


@_silent
def quotas_file(data: bytes) -> None:
    """The quotas file: read at start, read again by the store, written again."""
    path = _written("quotas.toml", data)
    with suppress(SluiceError):
        found = read_definitions(QuotaSettings(file=path))
        render(found)
    with suppress(SluiceError):
        FileStore(QuotaSettings(file=path))


@_silent
def configuration(data: bytes) -> None:
    """The configuration: read, and compared with the one that runs."""
    path = _written("sluice.toml", data)
    with suppress(SluiceError):
        found = reload(Source(path))
        compare(found, found)


@_silent
def broker_map(data: bytes) -> None:
    """`brokers.json`: whatever it holds, there is a map, and names in it that can be asked for."""
    _written("brokers.json", data)
    stats = Stats()
    brokers = BrokerMap((), stats)
    for broker, address in MapFile(directory(), stats).read().items():
        brokers.learn(broker, *address)
        brokers.upstream(broker)
    brokers.targets()
    for host in brokers.hosts():
        host.encode("idna")  # as the resolver does


@_silent
def journal_line(data: bytes) -> None:
    """A line of the reassignments' journal; with a right checksum where the first byte is odd."""
    line = data[1:]
    if data[:1] and data[0] & 1:
        line = b"%08x %s" % (zlib.crc32(line), line)
    with suppress(LineError):
        sequence, record = read_line(line)
        assert read_line(write_line(sequence, record).rstrip(b"\n")) == (sequence, record), (
            "written as it was read"
        )


@_silent
def tool_file(data: bytes) -> None:
    """Files of Kafka's own tools: a reassignment, a client's properties."""
    path = _written("tool.json", data[1:])
    with suppress(SluiceError):
        if data[:1] < b"\x80":
            read_reassignment(path)
        else:
            read_command_config(path)


_AUTHOR = Author("fuzz", "192.0.2.1:1", "2026-01-31T12:00:00.000Z")


def quota_records(data: bytes) -> None:
    """Records, each a key and a value with two bytes for their lengths; a value of length 0 is a tombstone."""
    draw = Draw(data)
    definitions = Definitions()
    while draw:
        key, value = draw.take(draw.int16()), draw.take(draw.int16())
        with suppress(RecordError):
            entity, limit = timed("key", read_key, key)
            assert key_of(entity, limit) == key, "an entity has one spelling"
            setting = timed("value", read_setting, entity, limit, value or None)
            if setting is None:
                definitions.put(entity, {})
                continue
            definitions.put(entity, {limit: setting.value})
            written = read_setting(entity, limit, value_of(setting.value, _AUTHOR))
            assert written is not None, "what is read can be written"
            assert written.value == setting.value, "what is read can be written"

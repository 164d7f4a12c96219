"""Readers of foreign bytes that are no Kafka messages: PROXY headers, SASL tokens, certificates, HTTP."""

from contextlib import suppress
from typing import Final

from kafka_client import LoginError
from kafka_client.connection import Exchange
from protocol.errors import WireError
from protocol.messages import client_quotas, sasl
from proxy.admin import http
from proxy.config.principals import (
    CertificateError,
    MappingRules,
    NoMatchingRuleError,
    RuleError,
    expires_at,
    subject,
)
from proxy.net import proxy_header
from quotas.definitions.alterations import FilterError, alter, filter_of, matching
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.toml_file import parse, render
from tests.fuzz.draw import Draw, stretched
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
    how = (draw.int16(), draw.byte(), draw.byte(), draw.byte()) if flags & 1 else None
    token = draw.rest()
    if how is not None:
        token = stretched(token, *how)[: 1 << 20]
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

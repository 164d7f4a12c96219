"""The fuzz targets by name: a function over bytes, and a description of its inputs for the fuzzer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.fuzz import dialogue, files, fleet, messages, peers, single


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target.

    Attributes:
        run: takes any bytes; raises only where something is wrong with us.
        about: one line for people.
        input_bytes_max: the longest input that the fuzzer makes.
        words: texts that mean something in its inputs (libFuzzer's dictionary).
        packages: whose coverage guides the fuzzer; what only computes is left alone, since to watch it costs time.
        bound_seconds: the most CPU time of one call; 0: what it calls is not on the loop.
    """

    run: Callable[[bytes], None]
    about: str
    input_bytes_max: int = 2048
    words: tuple[bytes, ...] = ()
    packages: tuple[str, ...] = ("protocol", "proxy")
    bound_seconds: float = 0.005


_OFF_THE_LOOP: Final = 0.0
_CHANNEL: Final = ("protocol", "proxy.channel")
_FILES: Final = ("quotas", "proxy", "tomllib")
_MECHANISMS: Final = (b"PLAIN", b"SCRAM-SHA-256", b"OAUTHBEARER", b"GSSAPI", b"AWS_MSK_IAM")
_SCRAM: Final = (b"n,,n=", b",r=", b",s=", b",i=4096", b"v=", b"tokenauth=true", b"c=biws,", b"=2C", b"=3D")
_BEARER: Final = (b"n,,\x01auth=Bearer ", b"\x01\x01", b"eyJzdWIiOiJhbGljZSJ9", b"n,a=x,\x01")
_TOML: Final = (
    b"[[quota]]\n",
    b"client_id = ",
    b"user = ",
    b'"<default>"',
    b"producer_byte_rate = ",
    b'"2M"',
    b"'''",
)

TARGETS: Final[Mapping[str, Target]] = {
    "requests": Target(run=single.asked, packages=_CHANNEL, about="one request to a channel of any kind"),
    "answers": Target(run=single.responded, packages=_CHANNEL, about="one request and its answer"),
    "dialogue": Target(
        run=partial(dialogue.converse, "plain"),
        packages=_CHANNEL,
        about="a client's channel",
        words=_MECHANISMS,
    ),
    "captured": Target(
        run=partial(dialogue.converse, "captured"), packages=_CHANNEL, about="a captured client's channel"
    ),
    "follower": Target(
        run=partial(dialogue.converse, "follower"), packages=_CHANNEL, about="a follower's channel"
    ),
    "messages": Target(
        run=messages.read,
        packages=("protocol", "offline", "kafka_client"),
        about="single messages: brokers' answers to Sluice, kept frames",
    ),
    "tokens": Target(run=peers.tokens, about="SASL tokens", words=(*_SCRAM, *_BEARER)),
    "proxy": Target(
        run=peers.proxy_line,
        about="PROXY headers",
        input_bytes_max=5000,
        words=(
            b"PROXY TCP4 ",
            b"PROXY TCP6 ",
            b"PROXY UNKNOWN",
            b"\r\n\r\n\0\r\nQUIT\n",
            b"192.0.2.1",
            b"2001:db8::1",
        ),
    ),
    "fleet": Target(
        run=fleet.fleet,
        packages=("quotas", "proxy.fleet"),
        about="messages between members of a fleet",
        words=(b"\xa4type", b"\xa6report", b"\xa6grants", b"\xa4view", b"\xa4told"),
    ),
    "fleet-frames": Target(
        run=fleet.fleet_frames,
        packages=("proxy.fleet",),
        about="bytes at the fleet's port, by a process with the secret or without it",
        words=(b"\0\0\0\x36", b"SLFT\2\1", b"\x16\3\1", b"\x15\3\3"),
    ),
    "fleet-claims": Target(
        run=fleet.fleet_claims,
        packages=("proxy.fleet",),
        about="what members of the group that chooses the holder say",
    ),
    "certificate": Target(
        run=peers.certificate, about="clients' certificates, and the principals that follow"
    ),
    "admin": Target(
        run=peers.admin_head,
        about="HTTP at the admin port",
        input_bytes_max=9000,
        words=(
            b"GET / HTTP/1.1\r\n",
            b"HEAD /metrics HTTP/1.0\r\n",
            b"Host: ",
            b"Content-Length: 0",
            b"Connection: ",
        ),
    ),
    "quota-requests": Target(
        run=peers.quota_request,
        packages=("protocol", "quotas"),
        about="quota requests to their end",
        bound_seconds=_OFF_THE_LOOP,
    ),
    "quota-records": Target(
        run=files.quota_records,
        packages=("quotas",),
        about="records of the quota topic",
        words=(
            b'{"entity":[["user","a"]],"limit":"producer_byte_rate"}',
            b'["client-id",null]',
            b'{"v":1,"value":',
            b"1e400",
            b"NaN",
        ),
        bound_seconds=_OFF_THE_LOOP,
    ),
    "quotas-file": Target(
        run=files.quotas_file,
        packages=_FILES,
        about="the quotas file",
        words=_TOML,
        bound_seconds=_OFF_THE_LOOP,
    ),
    "config": Target(
        run=files.configuration,
        packages=_FILES,
        about="the configuration",
        words=_TOML,
        bound_seconds=_OFF_THE_LOOP,
    ),
    "rules": Target(
        run=peers.mapping_rules,
        about="principal mapping rules",
        input_bytes_max=300,
        words=(b"RULE:", b"DEFAULT", b"/L", b"/U", b"$1", b"${name}", b"(?<name>"),
        bound_seconds=_OFF_THE_LOOP,
    ),
    "broker-map": Target(run=files.broker_map, about="brokers.json", bound_seconds=_OFF_THE_LOOP),
    "journal": Target(
        run=files.journal_line,
        about="a line of the reassignments' journal",
        words=(
            b'"kind":"entry"',
            b'"kind":"ended"',
            b'"kind":"term"',
            b'"topic":',
            b'"partition":',
            b'"step":null',
        ),
        bound_seconds=_OFF_THE_LOOP,
    ),
    "tool-files": Target(
        run=files.tool_file,
        about="files of Kafka's own tools",
        words=(b'{"version":1,"partitions":[', b'"replicas":', b"sasl.jaas.config=", b"security.protocol="),
        bound_seconds=_OFF_THE_LOOP,
    ),
}

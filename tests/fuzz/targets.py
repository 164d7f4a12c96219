"""The fuzz targets by name: a function over bytes, and a description of its inputs for the fuzzer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.fuzz import dialogue, fleet, hellos, messages, packets, readers


@dataclass(frozen=True, slots=True)
class Target:
    """One target.

    Attributes:
        run: takes any bytes; raises only where something is wrong with us. Its docstring says what it reads.
        words: texts that mean something in its inputs (libFuzzer's dictionary), with a bar between them.
        packages: whose coverage guides the fuzzer; what only computes is left alone, since to watch it costs time.
        bound_seconds: the most CPU time of one call; 0: what it calls is not on the loop.
        input_bytes_max: the longest input that the fuzzer makes.
    """

    run: Callable[[bytes], None]
    words: bytes = b""
    packages: tuple[str, ...] = ("protocol", "proxy")
    bound_seconds: float = 0.005
    input_bytes_max: int = 2048


_OFF_THE_LOOP: Final = 0.0
_CHANNEL: Final = ("protocol", "proxy.channel")
_QUOTAS: Final = ("protocol", "quotas")
_FILES: Final = ("quotas", "proxy", "tomllib")
_MECHANISMS: Final = b"PLAIN|SCRAM-SHA-256|OAUTHBEARER|GSSAPI|AWS_MSK_IAM"
_SCRAM: Final = b"n,,n=|,r=|,s=|,i=4096|v=|tokenauth=true|c=biws,|=2C|=3D"
_BEARER: Final = b"n,,\x01auth=Bearer |\x01\x01|eyJzdWIiOiJhbGljZSJ9|n,a=x,\x01"
_PROXY: Final = b"PROXY TCP4 |PROXY TCP6 |PROXY UNKNOWN|\r\n\r\n\0\r\nQUIT\n|192.0.2.1|2001:db8::1"
_HTTP: Final = b"GET / HTTP/1.1\r\n|HEAD /metrics HTTP/1.0\r\n|Host: |Content-Length: 0|Connection: "
_NAMES: Final = b"kafka.test|b1.kafka.test|B2147483647.|.kafka.test|00|.."
_TOML: Final = b'[[quota]]\n|client_id = |user = |"<default>"|producer_byte_rate = |"2M"|\'\'\''
_RULES: Final = b"RULE:|DEFAULT|/L|/U|$1|${name}|(?<name>"
_RECORDS: Final = (
    b'{"entity":[["user","a"]],"limit":"producer_byte_rate"}|["client-id",null]|{"v":1,"value":|1e400|NaN'
)
_JOURNAL: Final = b'"kind":"entry"|"kind":"ended"|"kind":"term"|"topic":|"partition":|"step":null'
_TOOLS: Final = b'{"version":1,"partitions":[|"replicas":|sasl.jaas.config=|security.protocol='
_FLEET: Final = b"\xa4type|\xa6report|\xa6grants|\xa4view|\xa4told"
_FRAMES: Final = b"\0\0\0\x36|SLFT\2\1|\x16\3\1|\x15\3\3"

TARGETS: Final[Mapping[str, Target]] = {
    "requests": Target(dialogue.asked, packages=_CHANNEL),
    "answers": Target(dialogue.responded, packages=_CHANNEL),
    "dialogue": Target(partial(dialogue.converse, "plain"), _MECHANISMS, _CHANNEL),
    "captured": Target(partial(dialogue.converse, "captured"), packages=_CHANNEL),
    "follower": Target(partial(dialogue.converse, "follower"), packages=_CHANNEL),
    "messages": Target(messages.read, packages=("protocol", "offline", "kafka_client")),
    "tokens": Target(readers.tokens, _SCRAM + b"|" + _BEARER),
    "proxy": Target(readers.proxy_line, _PROXY, input_bytes_max=5000),
    "fleet": Target(fleet.fleet, _FLEET, ("quotas", "proxy.fleet")),
    "fleet-frames": Target(fleet.fleet_frames, _FRAMES, ("proxy.fleet",)),
    "fleet-claims": Target(fleet.fleet_claims, packages=("proxy.fleet",)),
    "certificate": Target(readers.certificate),
    "client-hello": Target(hellos.client_hello, _NAMES, ("proxy.net.server_name", "proxy.config.options")),
    "admin": Target(readers.admin_head, _HTTP, input_bytes_max=9000),
    "quota-requests": Target(readers.quota_request, b"", _QUOTAS, _OFF_THE_LOOP),
    "quota-records": Target(readers.quota_records, _RECORDS, ("quotas",), _OFF_THE_LOOP),
    "quotas-file": Target(readers.quotas_file, _TOML, _FILES, _OFF_THE_LOOP),
    "config": Target(readers.configuration, _TOML, _FILES, _OFF_THE_LOOP),
    "rules": Target(readers.mapping_rules, _RULES, bound_seconds=_OFF_THE_LOOP, input_bytes_max=300),
    "packets": Target(packets.packets, packages=("protocol", "offline.imports"), bound_seconds=_OFF_THE_LOOP),
    "broker-map": Target(readers.broker_map, bound_seconds=_OFF_THE_LOOP),
    "journal": Target(readers.journal_line, _JOURNAL, bound_seconds=_OFF_THE_LOOP),
    "tool-files": Target(readers.tool_file, _TOOLS, bound_seconds=_OFF_THE_LOOP),
}

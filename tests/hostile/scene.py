"""Where an attack takes place: a scripted broker, a child process that counts in buckets of 10 ms, and a proxy before
it; what a quota lets pass; and what an attack comes to: one figure.
"""

import contextlib
import json
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench.figures import largest_second
from tests.bench.process import Child, resident_kib
from tests.cluster import HOST, Address, free_port
from tests.hostile.broker_program import NODE
from tests.hostile.wire import Client
from tests.support.proxy_process import SluiceError, SluiceProcess, SluiceSettings

BUCKETS_A_SECOND: Final = 100
WINDOWS: Final = 11  # of a second each: Kafka's default


def fullest(counted: Mapping[int, int]) -> int:
    """Return the most bytes within any second of what was counted, by the number of its bucket.

    >>> fullest({0: 5, 99: 5, 100: 7})
    12
    """
    return largest_second([(bucket / BUCKETS_A_SECOND, size) for bucket, size in counted.items()])


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a quota lets pass, in bytes: `in_second` in any second, `in_run` in all."""

    in_second: float
    in_run: float


def scheduled(rate: float, request_bytes: int, seconds: float, burst_seconds: float = 1.0) -> Allowance:
    """Under `schedule`: burst + 1 s + one request in any second; burst + 1.02 × the rate and one request in all.

    >>> scheduled(2_000_000, 1_000_000, 10)
    Allowance(in_second=5000000.0, in_run=23400000.0)
    """
    burst = rate * burst_seconds
    return Allowance(burst + rate + request_bytes, burst + 1.02 * rate * seconds + request_bytes)


def as_kafka(
    rate: float, request_bytes: int, seconds: float, connections: int, mute_seconds_max: float
) -> Allowance:
    """Under `kip13`: all windows' worth at once, and of each connection one request each longest mute.

    That is Kafka's own arithmetic for connections that stay; one that is made anew has no more.

    >>> as_kafka(2_000_000, 1_000_000, 10, connections=4, mute_seconds_max=20)
    Allowance(in_second=26000000, in_run=46400000.0)
    """
    windows = rate * WINDOWS
    each = request_bytes * connections
    return Allowance(
        windows + each, windows + 1.02 * rate * seconds + each * (1 + seconds // mute_seconds_max)
    )


class ScriptedBroker(Child):
    """One running `broker_program`."""

    def __init__(self) -> None:
        self.port = free_port()
        self.bootstrap = f"{HOST}:{self.port}"
        self._lock = threading.Lock()
        log = Path(tempfile.mkstemp(prefix="hostile-broker-")[1])
        super().__init__([sys.executable, "-m", "tests.hostile.broker_program", str(self.port)], log)
        self.hear()  # "ready"

    def __exit__(self, *ended: object) -> None:
        super().__exit__(*ended)
        if text := self.log.read_text():
            print(f"--- scripted broker\n{text}", file=sys.stderr)
        self.log.unlink()

    def order(self, **words: object) -> dict[str, Any]:
        """Give an order; see `broker_program.Script`."""
        with self._lock:
            return self.ask(json.dumps(words))

    def counted(self, direction: str, client_id: str) -> dict[int, int]:
        """What was counted of one client, and of those whose id is its own and `/…`: bytes by number of bucket."""
        total: dict[int, int] = {}
        for name, buckets in self.order(report=True)[direction].items():
            if name == client_id or name.startswith(f"{client_id}/"):
                for bucket, count in buckets.items():
                    total[int(bucket)] = total.get(int(bucket), 0) + count
        return total


QUOTA: Final = 2_000_000
_STOP_SECONDS_MAX: Final = 5.0
_PAUSE_SECONDS: Final = 0.005  # behind a connection that was closed or refused


@dataclass(frozen=True, slots=True)
class Stage:
    """How a scene is set up.

    Args:
        policy: `kip13` or `schedule`.
        hold_seconds: the longest hold (`schedule` alone) and the longest mute.
        client_quotas, user_quotas: who is limited to what; by default every client id to QUOTA.
        quotas: more keys of `[quotas]`.
        sections: more tables of the configuration.
        quota_file: the whole quotas file, in place of the quotas above.
        context, token: the TLS context and the token with which the admin port is asked.
        listener: more keys of the listener.
    """

    policy: str = "schedule"
    hold_seconds: tuple[float, float] = (15.0, 20.0)
    user_quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    client_quotas: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: {"<default>": limits(QUOTA)}
    )
    quotas: Mapping[str, object] = field(default_factory=dict)
    sections: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    cluster: Mapping[str, object] = field(default_factory=dict)
    quota_file: str = ""
    context: ssl.SSLContext | None = None
    token: str = ""
    listener: Mapping[str, object] = field(default_factory=dict)


def limits(rate: float) -> dict[str, float]:
    """The same rate for what is produced and what is consumed."""
    return {"producer_byte_rate": rate, "consumer_byte_rate": rate}


@dataclass(frozen=True, slots=True)
class Scene:
    """A proxy that runs, and the broker behind it."""

    broker: ScriptedBroker
    sluice: SluiceProcess
    stage: Stage

    @property
    def address(self) -> Address:
        """Where the proxy listens for the broker."""
        return HOST, self.sluice.ports.first_broker + NODE

    @contextlib.contextmanager
    def connected(self, until: float = 0.0, source: str = "") -> Iterator[Client]:
        """A connection for the time of a `with`; from `until` on, every wait on it is over."""
        client = Client(self.address, until=until, source=source)
        try:
            yield client
        finally:
            client.close()

    def resident_bytes(self) -> int:
        """The memory that the proxy's process has now."""
        return 1024 * resident_kib(self.sluice.process_id)


@contextlib.contextmanager
def staged(stage: Stage, *, may_end: bool = False) -> Iterator[Scene]:
    """Start both, and end both; a process that has ended by itself is an error unless it may."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(ScriptedBroker())
        where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-")))
        settings = settings_of(stage, broker.bootstrap)
        config = settings.write(where)
        if stage.quota_file:
            (where / "quotas.toml").write_text(stage.quota_file)
        sluice = SluiceProcess(["--config", str(config)], settings.ports, where)
        stack.callback(sluice.stop, _STOP_SECONDS_MAX)
        sluice.context, sluice.token = stage.context, stage.token
        try:
            yield Scene(broker, sluice.wait_ready(), stage)
        except BaseException:
            if not may_end:
                print(f"--- sluice {sluice.bootstrap}\n{sluice.log()}", file=sys.stderr)
            raise
        if not may_end and not sluice.alive():
            raise SluiceError(f"sluice has ended\n{sluice.log()}")


def settings_of(stage: Stage, bootstrap: str) -> SluiceSettings:
    """The configuration of a stage."""
    hold, mute = stage.hold_seconds
    quotas: dict[str, object] = {"policy": stage.policy, "mute_seconds_max": mute, **stage.quotas}
    if stage.policy == "schedule":
        quotas["hold_seconds_max"] = hold
    return SluiceSettings(
        bootstrap,
        quotas=quotas,
        client_quotas=stage.client_quotas,
        user_quotas=stage.user_quotas,
        sections={**stage.sections, "limits": {"drain_seconds": 1, **stage.sections.get("limits", {})}},
        cluster=stage.cluster,
        listener=stage.listener,
    )


def swarm(count: int, until: float, work: Callable[[int], None]) -> None:
    """Let `count` threads do something again and again until a moment; what the proxy closes is tried again."""

    def repeat(index: int) -> None:
        while time.monotonic() < until:
            try:
                work(index)
            except OSError:
                time.sleep(_PAUSE_SECONDS)

    threads = [threading.Thread(target=repeat, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass(frozen=True, slots=True)
class Row:
    """One attack as the table shows it.

    Args:
        name: of the test.
        finding: its number in issue 14; 26, 29 and 31: issues of their own.
        what: the attack, in words.
        unit: of the figure.
        bar: the most that it may be.
    """

    name: str
    finding: int
    what: str
    unit: str
    bar: float


Harm = tuple[Row, Callable[[], float]]
"""One attack in a scene of its own; the function does it and returns the figure."""


def measure(harms: Iterable[Harm], names: Collection[str] = ()) -> Mapping[str, float]:
    """Run them, or those with these names, one after the other; the figures by name."""
    return {row.name: run() for row, run in harms if not names or row.name in names}


def ended(scene: Scene) -> bool:
    """Whether the process has ended, or does not serve."""
    if not scene.sluice.alive():
        return True
    try:
        return scene.sluice.get("/healthz")[0] != 200
    except OSError:
        return True


def survivor(stage: Stage) -> contextlib.AbstractContextManager[Scene]:
    """A scene whose process may have ended by itself: that is a figure, and no error."""
    return staged(stage, may_end=True)

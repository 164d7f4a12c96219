"""Where an attack takes place: a scripted broker and a proxy before it; and what an attack comes to: one figure."""

import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster import HOST, Address
from tests.hostile.broker import ScriptedBroker
from tests.hostile.broker_program import NODE
from tests.hostile.wire import Client
from tests.support.proxy_process import SluiceError, SluiceProcess, SluiceSettings

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
    listener: Mapping[str, object] = field(default_factory=dict)
    quota_file: str = ""


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
        return resident_bytes(self.sluice.process_id)


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


def resident_bytes(process_id: int) -> int:
    """The resident memory of a process; 0 of one that has ended."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


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
        finding: its number in issue 14; 26: an issue of its own.
        what: the attack, in words.
        unit: of the figure.
        bar: the most that it may be.
    """

    name: str
    finding: int
    what: str
    unit: str
    bar: float


@dataclass(frozen=True, slots=True)
class Harm:
    """One attack in a scene of its own; `run` does it and returns the figure."""

    row: Row
    run: Callable[[], float]


def measure(harms: Iterable[Harm], names: Collection[str] = ()) -> Mapping[str, float]:
    """Run them, or those with these names, one after the other; the figures by name."""
    return {harm.row.name: harm.run() for harm in harms if not names or harm.row.name in names}


def ended(scene: Scene) -> bool:
    """Whether the process has ended, or does not serve."""
    if not scene.sluice.alive():
        return True
    try:
        return scene.sluice.get("/healthz")[0] != 200
    except OSError:
        return True


@contextlib.contextmanager
def survivor(stage: Stage) -> Iterator[Scene]:
    """A scene whose process may have ended by itself: that is a figure, and no error."""
    with staged(stage, may_end=True) as scene:
        yield scene

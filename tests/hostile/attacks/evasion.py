"""What all attempts to get round the quota have in common: they run for a time, and bytes are counted at the broker."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.hostile.broker import Allowance, as_kafka, scheduled
from tests.hostile.broker_program import PARKED
from tests.hostile.scene import QUOTA, Scene, Stage, staged

MEGABYTE: Final = 1_000_000
FETCH_MAX_BYTES: Final = 5 * MEGABYTE + 500
EVERY_CLIENT_ID: Final = Stage()


@dataclass(frozen=True, slots=True)
class Evasion:
    """One way round the quota.

    Args:
        name: of the test and of the client ids that it uses, each by itself or (`by_prefix`) all together.
        finding: its number in issue 14.
        what: the row of the table.
        direction: `produce` or `fetch`.
        request_bytes: the largest request, or the largest response that a Fetch may bring.
        run: does it until a moment.
        connections: how many it has at a time.
        stage: where it takes place, the policy aside; evasions of one stage may run beside each other.
    """

    name: str
    finding: int
    what: str
    direction: str
    request_bytes: int
    run: Callable[[Scene, str, float], None]
    connections: int = 1
    stage: Stage = EVERY_CLIENT_ID

    @property
    def client_id(self) -> str:
        """In whose name it is done."""
        return (PARKED if "herd" in self.name else "") + self.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evasion got.

    Attributes:
        fullest_second: the most bytes in any second.
        total: of the whole run.
        seconds: how long that was.
    """

    evasion: Evasion
    stage: Stage
    fullest_second: int
    total: int
    seconds: float
    failed: str = ""

    @property
    def allowance(self) -> Allowance:
        """What may pass."""
        size = self.evasion.request_bytes
        if self.stage.policy == "schedule":
            return scheduled(QUOTA, size, self.seconds)
        if self.evasion.direction == "fetch":
            size = FETCH_MAX_BYTES  # `kip13` allows ten seconds' quota in one response
        return as_kafka(QUOTA, size, self.seconds, self.evasion.connections, self.stage.hold_seconds[1])

    @property
    def factor_of_second(self) -> float:
        """The fullest second over the quota."""
        return self.fullest_second / QUOTA

    @property
    def factor_of_run(self) -> float:
        """The run over the quota."""
        return self.total / (QUOTA * self.seconds)


def run_together(scene: Scene, evasions: Sequence[Evasion], seconds: float) -> list[Outcome]:
    """Run some evasions beside each other; each has a quota of its own."""
    scene.broker.order(reset=True)
    began = time.monotonic()
    until = began + seconds
    failures: dict[str, str] = {}

    def run(evasion: Evasion) -> None:
        try:
            evasion.run(scene, evasion.client_id, until)
        except TimeoutError:
            pass
        except Exception as error:  # noqa: BLE001 - told with the outcome, and asserted there
            failures[evasion.name] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in evasions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = time.monotonic()
    outcomes = []
    for each in evasions:
        counted = scene.broker.counted(each.direction, each.client_id)
        outcomes.append(
            Outcome(
                each,
                scene.stage,
                counted.fullest(),
                counted.total,
                ended - began,
                failures.get(each.name, ""),
            )
        )
    return outcomes


def measure(
    evasions: Iterable[Evasion],
    policy: str,
    seconds: float,
    *,
    hold_seconds: tuple[float, float],
    beside: int,
) -> list[Outcome]:
    """Run them under a policy, a proxy for each stage, at most `beside` of them at a time."""
    outcomes: list[Outcome] = []
    left = list(evasions)
    while left:
        stage = left[0].stage
        here = [each for each in left if each.stage is stage]
        left = [each for each in left if each.stage is not stage]
        with staged(under(stage, policy, hold_seconds)) as scene:
            for first in range(0, len(here), beside):
                outcomes += run_together(scene, here[first : first + beside], seconds)
    return outcomes


def under(stage: Stage, policy: str, hold_seconds: tuple[float, float]) -> Stage:
    """The same stage under a policy, with its longest hold and mute."""
    return replace(stage, policy=policy, hold_seconds=hold_seconds)

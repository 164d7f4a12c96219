"""What all attempts to get round the quota have in common: they run for a time, and bytes are counted at the broker."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.hostile.meter import Allowance
from tests.hostile.scene import QUOTA, Scene, Stage

MEGABYTE: Final = 1_000_000
_PARK_PREFIX: Final = "parked-"
_EVERY_CLIENT_ID: Final = Stage()


@dataclass(frozen=True, slots=True)
class Evasion:
    """One way round the quota.

    Args:
        name: of the test and of the client ids that it uses, each by itself or (`by_prefix`) all together.
        finding: its number in issue 14.
        what: the row of the table.
        direction: `produce` or `fetch`.
        request_bytes: the largest request, or the largest answer that a Fetch may bring.
        run: does it until a moment.
        stage: where it takes place, the policy aside; evasions of one stage may run beside each other.
    """

    name: str
    finding: int
    what: str
    direction: str
    request_bytes: int
    run: Callable[[Scene, str, float], None]
    stage: Stage = _EVERY_CLIENT_ID

    @property
    def client_id(self) -> str:
        """In whose name it is done."""
        return (_PARK_PREFIX if "herd" in self.name else "") + self.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evasion got.

    Attributes:
        fullest_second: the most bytes in any second.
        total: of the whole run.
        seconds: how long that was.
    """

    evasion: Evasion
    policy: str
    fullest_second: int
    total: int
    seconds: float
    failed: str = ""

    @property
    def allowance(self) -> Allowance:
        """What may pass."""
        return Allowance(QUOTA, self.evasion.request_bytes)

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
    scene.broker.order(parked=_PARK_PREFIX, reset=True)
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
                scene.stage.policy,
                counted.fullest(),
                counted.total,
                ended - began,
                failures.get(each.name, ""),
            )
        )
    return outcomes


def under(stage: Stage, policy: str, hold_seconds: tuple[float, float]) -> Stage:
    """The same stage under a policy, with its longest hold and mute."""
    return replace(stage, policy=policy, hold_seconds=hold_seconds)

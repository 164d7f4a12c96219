"""What goes wrong in a simulated fleet, and how often."""

from dataclasses import dataclass, replace
from typing import Final

# Of a lease, so that a short run sees many of them end.
SHORT_MS: Final = 3000


@dataclass(frozen=True)
class Faults:
    """Probabilities for each tick of 100 ms, or for each message; all 0: nothing goes wrong.

    Args:
        breaks: of a connection, for each message.
        repeats: of a message.
        pauses: of a process.
        kills: of a member.
        worker_kills: of a worker.
        resets: of a connection at the holder's side alone, which takes it for the member's.
        doubts: of a commit, that nothing is heard of it; it may be accepted late.
        unlisted: of a commit, that it does not name the lessees, as of a holder with too many.
        moves: of the holder.
        lag_ms_max: until a member hears of another holder.
        stops: of the whole fleet, which begins again.
        cuts: of a member from the holder, or from all who may be it.
        rifts: of a member from the holder alone, which ends by a move before its lease has ended.
        ends: of a pause while a lease has nearly ended.
        resizes: of `members_max`.
        waves: of a time when every worker wants a quota, and of its end.
        gulps: of every worker's burst being used without a demand; all workers are killed then, and it is used again.
        drift: of each host's clock, at most half of what the slack covers.
    """

    delay_ms_max: int = 20
    breaks: float = 0.0
    repeats: float = 0.0
    pauses: float = 0.0
    pause_ms_max: int = 30_000
    kills: float = 0.0
    worker_kills: float = 0.0
    resets: float = 0.0
    doubts: float = 0.0
    unlisted: float = 0.0
    moves: float = 0.0
    lag_ms_max: int = 0
    stops: float = 0.0
    cuts: float = 0.0
    cut_ms_max: int = 40_000
    rifts: float = 0.0
    ends: float = 0.0
    resizes: float = 0.0
    waves: float = 0.0
    gulps: float = 0.0
    drift: float = 0.0


ALL_FAULTS: Final = Faults(
    delay_ms_max=100,
    breaks=0.01,
    repeats=0.02,
    pauses=0.004,
    pause_ms_max=2 * SHORT_MS,
    kills=0.003,
    worker_kills=0.003,
    resets=0.004,
    doubts=0.02,
    unlisted=0.05,
    moves=0.006,
    lag_ms_max=SHORT_MS,
    stops=0.001,
    cuts=0.006,
    cut_ms_max=3 * SHORT_MS,
    rifts=0.004,
    ends=0.3,
    resizes=0.004,
    drift=0.005,
)
# Members are suspended for less than a lease, and never separated. Workers begin more often, and all save for bursts.
NO_CUT_OFF: Final = replace(
    ALL_FAULTS,
    cuts=0.0,
    rifts=0.0,
    ends=0.0,
    lag_ms_max=200,
    pause_ms_max=SHORT_MS // 2,
    worker_kills=0.02,
    waves=0.03,
    gulps=0.01,
)

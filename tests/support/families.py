"""Families of made-up traffic whose truth is known, as recordings for `sluice-offline evaluate`.

Each is three weeks of twelve producing clients, with days of an hour, as the stage `demand` would leave it: bytes by
second, and the throttle times that clients were told. All is drawn from a seed. Every client has a shape of the day,
noise that lasts for minutes, noise by the second, and a level that differs a little from day to day; what a family is
about comes on top. What the advice does not know, such as which client is a hog and from when on, is in `truth.toml`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from offline.inputs import MARK, new_mark

Floats = npt.NDArray[np.float64]
Rng = np.random.Generator

DAY_S: Final = 3600
DAYS: Final = 21
CLIENTS: Final = 12
START_S: Final = 1_767_225_600  # 2026-01-01 00:00 UTC
_SECONDS: Final = DAYS * DAY_S


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    Attributes:
        sizes: its bytes in each second.
        paused: which share of each second it was told to wait for; empty for a client that was not throttled.
        hog_from_s: from which second on it is to be held back; None for a client that behaves.
    """

    name: str
    sizes: Floats
    paused: Floats = field(default_factory=lambda: np.zeros(0))
    hog_from_s: int | None = None


def _usual(rng: Rng, *, level: float | None = None, scatter: float = 0.06) -> Floats:
    """Return a client without any peculiarity, in bytes by second."""
    rate = level or float(np.exp(rng.uniform(np.log(2e5), np.log(5e6))))
    day = np.arange(DAY_S) / DAY_S
    depth = rng.uniform(0.3, 0.8)
    shape = 1 - depth * (0.5 + 0.5 * np.cos(2 * np.pi * (day - rng.uniform(0, 1))))
    slow = np.repeat(rng.normal(0, 0.15, _SECONDS // 60), 60)
    fast = rng.gamma(6, 1 / 6, _SECONDS)
    days = np.repeat(np.exp(rng.normal(0, scatter, DAYS)), DAY_S)
    found: Floats = rate * np.tile(shape, DAYS) * np.exp(slow) * fast * days
    return found


def _by_day(values: Floats) -> Floats:
    return np.repeat(values, DAY_S)


def _clients(one: Callable[[Rng, int], Client]) -> Callable[[Rng], list[Client]]:
    return lambda rng: [one(rng, number) for number in range(CLIENTS)]


def _steady(rng: Rng, number: int) -> Client:
    """Only the level moves, by 5 % a day to and fro: what lasts and what does not."""
    walk = np.cumsum(rng.normal(0, 0.05, DAYS))
    return Client(f"steady-{number}", _usual(rng) * _by_day(np.exp(walk)))


def _week(rng: Rng, number: int) -> Client:
    """A third to a half on two days in a row, the others differ by a tenth; for every fourth all days are alike."""
    shape = np.exp(rng.normal(0, 0.1, 7))
    shape[5:] *= rng.uniform(0.3, 0.5)
    times = np.tile(shape, 3) if number % 4 else np.ones(DAYS)
    return Client(f"week-{number}", _usual(rng) * _by_day(times))


def _growth(rng: Rng, number: int) -> Client:
    """One to six per cent a day; every fourth does not grow."""
    rate = rng.uniform(0.01, 0.06) if number % 4 else 0.0
    return Client(f"growing-{number}", _usual(rng) * _by_day(np.exp(rate * np.arange(DAYS))))


def _bursts(rng: Rng, number: int) -> Client:
    """Bursts of three to six times the rate, for 2 to 5 % of a day: on a third of all days; every fourth has one."""
    sizes = _usual(rng)
    on = (
        [int(rng.integers(4, DAYS))] if number % 4 == 0 else np.flatnonzero(rng.random(DAYS) < 1 / 3).tolist()
    )
    times = rng.uniform(3, 6)
    for day in on:
        length = int(DAY_S * rng.uniform(0.02, 0.05))
        begin = day * DAY_S + int(rng.integers(0, DAY_S - length))
        sizes[begin : begin + length] = (
            sizes[begin : begin + length].mean() * times * rng.gamma(6, 1 / 6, length)
        )
    return Client(f"bursts-{number}", sizes)


def _hog(rng: Rng, number: int) -> Client:
    """One of twelve asks for 12 to 25 times as much, from some minute of the tenth to twelfth day on."""
    if number:
        return Client(f"neighbour-{number}", _usual(rng))
    sizes = _usual(rng)
    begin = int(rng.integers(9 * DAY_S, 12 * DAY_S))
    sizes[begin:] *= rng.uniform(12, 25)
    return Client("hog", sizes, hog_from_s=begin)


def _throttled(rng: Rng, number: int) -> Client:
    """Half of them were held to a quota for ten days, a third to two thirds of their peaks; then it was lifted."""
    sizes = _usual(rng)
    if number % 2:
        return Client(f"free-{number}", sizes)
    until = 10 * DAY_S
    quota = rng.uniform(0.33, 0.66) * float(np.percentile(sizes[:until], 99))
    held = sizes.copy()
    held[:until] = np.minimum(sizes[:until], quota)
    return Client(f"held-{number}", held, paused=np.where(sizes > 0, 1 - held / sizes, 0.0))


def _night(rng: Rng, number: int) -> Client:
    """A batch of 4 to 8 % of the day, 20 % larger or smaller each time; every third only on one day of the week."""
    length, begin = int(DAY_S * rng.uniform(0.04, 0.08)), int(rng.uniform(0, 0.2) * DAY_S)
    rate = float(np.exp(rng.uniform(np.log(2e6), np.log(2e7))))
    sizes = np.zeros(_SECONDS)
    for day in range(DAYS):
        if number % 3 or day % 7 == number % 7:
            at = day * DAY_S + begin + int(rng.integers(0, 60))
            sizes[at : at + length] = rate * np.exp(rng.normal(0, 0.2)) * rng.gamma(6, 1 / 6, length)
    return Client(f"batch-{number}", sizes)


def _tenant(rng: Rng, number: int) -> Client:
    """Every second begins between the third and the twelfth day, and takes three days to reach its level."""
    sizes = _usual(rng)
    if number % 2:
        begin = int(rng.integers(2, 12))
        times = np.ones(DAYS)
        times[:begin] = 0
        times[begin : begin + 3] = (0.5, 0.7, 0.85)
        sizes *= _by_day(times)
    return Client(f"tenant-{number}", sizes)


def _release(rng: Rng, number: int) -> Client:
    """On some day the level rises to 1.3 to 3 times what it was, or falls to as little, and stays."""
    times = np.ones(DAYS)
    times[int(rng.integers(4, 18)) :] = np.exp(
        rng.choice((1.0, 1.0, -1.0)) * rng.uniform(np.log(1.3), np.log(3))
    )
    return Client(f"release-{number}", _usual(rng) * _by_day(times))


FAMILIES: Final[Mapping[str, Callable[[Rng], list[Client]]]] = {
    "steady": _clients(_steady),
    "day-and-week": _clients(_week),
    "growth": _clients(_growth),
    "bursts": _clients(_bursts),
    "hog": _clients(_hog),
    "throttled": _clients(_throttled),
    "night-batch": _clients(_night),
    "new-tenant": _clients(_tenant),
    "release": _clients(_release),
}


def made(family: str, seed: int) -> list[Client]:
    """Return the clients of a family."""
    return FAMILIES[family](np.random.default_rng([seed, list(FAMILIES).index(family)]))


def write(directory: Path, clients: Sequence[Client], day_s: int = DAY_S) -> None:
    """Write clients as a recording: a work directory with the stage `demand`, and `truth.toml`."""
    demand = directory / "demand"
    tables: dict[str, list[pa.Table]] = {"per_second": [], "pauses": []}
    seconds = max(len(client.sizes) for client in clients)
    for client in clients:
        sent = np.flatnonzero(client.sizes >= 1)
        tables["per_second"].append(
            _table(
                client,
                sent,
                {"bytes": client.sizes[sent].astype(np.int64)},
                {"requests": 10, "connections": 1},
            )
        )
        told = np.flatnonzero(client.paused > 0.001)
        pauses = {"paused_s": client.paused[told], "further_s": np.zeros(len(told))}
        tables["pauses"].append(_table(client, told, pauses, {}))
    for name, parts in tables.items():
        (demand / name).mkdir(parents=True)
        pq.write_table(pa.concat_tables(parts), demand / name / "part-0.parquet", compression="zstd")
    (demand / "span").mkdir()
    span = {"start_s": START_S, "seconds": seconds, "recorded_seconds": seconds, "requests": seconds}
    pq.write_table(
        pa.table({name: [value] for name, value in span.items()}), demand / "span" / "part-0.parquet"
    )
    (demand / MARK).write_text(new_mark("demand", {}))
    hogs = [client for client in clients if client.hog_from_s is not None]
    entries = [f'\n[[hog]]\nclient_id = "{hog.name}"\nstart = {float(hog.hog_from_s or 0)}\n' for hog in hogs]
    (directory / "truth.toml").write_text("".join([f"day_seconds = {day_s}\n", *entries]))


def _table(
    client: Client,
    seconds: npt.NDArray[np.int64],
    values: Mapping[str, npt.NDArray[np.generic]],
    fixed: Mapping[str, int],
) -> pa.Table:
    count = len(seconds)
    names = {"direction": "produce", "user": "", "client_id": client.name}
    columns = {name: pa.repeat(pa.scalar(value), count) for name, value in names.items()}
    columns["broker"] = pa.repeat(pa.scalar(1, pa.int32()), count)
    columns["second"] = pa.array(START_S + seconds)
    columns |= {name: pa.array(each) for name, each in values.items()}
    columns |= {name: pa.repeat(pa.scalar(value, pa.int64()), count) for name, value in fixed.items()}
    if fixed:
        columns["in_flight"] = pa.repeat(pa.scalar(1.0), count)
    return pa.table(columns)

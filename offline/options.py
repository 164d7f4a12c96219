"""The options of the stages, made by `cli` from its arguments and validated here."""

from dataclasses import dataclass, field
from typing import Final, Literal

from quotas.options import EngineOptions

By = Literal["client-id", "user", "user-client-id"]
BY: Final[tuple[By, ...]] = ("client-id", "user", "user-client-id")
# Followers are exempt from client quotas; a capture has none unless they come through a listener for clients.
FOLLOWERS: Final = r"broker-\d+-fetcher-\d+"


def current_scope(scope: str) -> str:
    """Return the present name of a scope; work directories and commands of earlier releases may use the old one.

    >>> current_scope("gateway"), current_scope("broker")
    ('cluster', 'broker')
    """
    return "cluster" if scope == "gateway" else scope


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Spark's master and resources.

    Attributes:
        master: Spark's own notation.
        driver_memory: the JVM's memory; in `local` mode that of all of Spark but its Python workers.
        partitions: the number of shuffle partitions; 0 = four for each core.
        local_directory: where shuffles spill; "" = the system's own.
        jars: directory with jars for Spark's Kafka source; "" = none.
        progress: whether to show bars.
        verbose: whether to show the output of Java and Spark besides errors.
    """

    master: str = "local[*]"
    driver_memory: str = "2g"
    partitions: int = 0
    local_directory: str = ""
    jars: str = ""
    progress: bool = False
    verbose: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """The inputs of `ingest`.

    Attributes:
        inputs: capture directories or files.
        kafka, topic: bootstrap servers and a topic with one row as JSON in each record, in place of files.
        by: which parts of a client make the quota entity.
        lenient: skip bad files and rows with a message, instead of failing.
        exclude: client ids to ignore.
    """

    inputs: tuple[str, ...] = ()
    kafka: str = ""
    topic: str = ""
    by: By = "client-id"
    lenient: bool = False
    exclude: str = FOLLOWERS


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestOptions:
    """The candidates of the backtest.

    Attributes:
        engine: the policy and its constants; `scope` says whether brokers count by themselves.
        candidates: the number of quotas to try in each direction, if none are given.
        produce, fetch: quotas in bytes/s to try instead.
        headroom: the factor of the largest candidate above any client's demand.
        heavy: the number of entities with a load of their own, so that each can get an override.
    """

    engine: EngineOptions = field(default_factory=EngineOptions)
    candidates: int = 20
    produce: tuple[float, ...] = ()
    fetch: tuple[float, ...] = ()
    headroom: float = 1.1
    heavy: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The goals of a recommendation.

    Attributes:
        capacity_in, capacity_out: bytes/s that one broker can take from and give to clients; None = not stated.
        throttled_share: the share of clients that may be throttled.
        overrides: the largest number of overrides.
        headroom: the factor of a client's need.
        tolerance: a client counts as throttled when it had to wait for more than this share of the recorded time.
        network: bytes/s of a broker's network interface, for the replication throttle; None = not stated.
        replication_factor: the replication factor, for the replication throttle.
        sample: the share of connections that was captured, above 0; below 1 no client's limits are recommended.
    """

    capacity_in: float | None = None
    capacity_out: float | None = None
    throttled_share: float = 0.05
    overrides: int = 10
    headroom: float = 1.1
    tolerance: float = 0.001
    network: float | None = None
    replication_factor: float = 3.0
    sample: float = 1.0

    def capacity(self, direction: str) -> float | None:
        """The capacity in this direction, in bytes/s; None if it is not stated."""
        return self.capacity_in if direction == "produce" else self.capacity_out


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """The destination of a recommendation.

    Attributes:
        quotas_file: the proxy's quotas file; "" = none.
        bootstrap: a server that takes AlterClientQuotas; "" = none.
        dry_run: show the difference and change nothing.
        step, steps: the step of a staged rollout, from today's use to the recommendation, and the number of steps.
        ca_file: the certificates to trust, with which TLS is used; "" = no TLS.
    """

    quotas_file: str = ""
    bootstrap: str = ""
    dry_run: bool = False
    step: int = 1
    steps: int = 1
    ca_file: str = ""

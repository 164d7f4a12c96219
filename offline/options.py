"""The options of the stages: declared once, as fields that are also arguments of `sluice-offline`.

A field's annotation has its argument (`Argument`); `add_arguments` and `options_of` read it. A stage keeps the options
that later stages need in its `settings.json`, whose form is declared here as well.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from offline.errors import InputError
from quotas.definitions.toml_file import parse_limit
from quotas.errors import DefinitionError
from quotas.options import EngineOptions

By = Literal["client-id", "user", "user-client-id"]
T = TypeVar("T")

# Followers are exempt from client quotas; a capture has none unless they come through a listener for clients.
FOLLOWERS: Final = r"broker-\d+-fetcher-\d+"


def current_scope(scope: str) -> str:
    """Return the present name of a scope; work directories and commands of earlier releases may use the old one.

    >>> current_scope("gateway"), current_scope("broker")
    ('cluster', 'broker')
    """
    return "cluster" if scope == "gateway" else scope


class Argument(NamedTuple):
    """How a field of an options class is given on the command line; it annotates the field.

    Attributes:
        parse: converts the argument's text to the field's value; None if the text is the value, and for a flag.
        name: the option's name; "" for the field's own, as `--the-name`.
        more: further keyword arguments for argparse's `add_argument`.
    """

    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    name: str = ""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed


def add_arguments(parser: argparse.ArgumentParser | argparse._ArgumentGroup, kind: type) -> None:
    """Add a command line argument for each field of an options class that is annotated with an `Argument`."""
    defaults = {each.name: each.default for each in fields(kind)}
    for name, argument in _arguments(kind).items():
        add_argument(parser, name, argument, defaults[name])


def add_argument(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    field_name: str,
    argument: Argument,
    default: Any,
) -> None:
    """Add the command line argument for one field of an options class."""
    more = dict(argument.more)
    if argument.parse is not None:
        more["type"] = argument.parse
    if argument.metavar is not None:
        more["metavar"] = argument.metavar
    name = argument.name or f"--{field_name.replace('_', '-')}"
    parser.add_argument(name, dest=field_name, default=default, help=argument.help, **more)


def options_of(kind: type[T], parsed: argparse.Namespace, **others: Any) -> T:
    """Create an options object from parsed arguments.

    Args:
        kind: the options class.
        others: values for fields without an argument, or instead of the argument's value.
    """
    found = {name: getattr(parsed, name) for name in _arguments(kind)}
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return kind(**found | others)


def _arguments(kind: type) -> dict[str, Argument]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: extra
        for name, hint in hints.items()
        for extra in getattr(hint, "__metadata__", ())
        if isinstance(extra, Argument)
    }


def _number(kind: Callable[[str], T], low: float, high: float = float("inf")) -> Callable[[str], T]:
    def parse(text: str) -> T:
        found: Any = kind(text)
        if not low <= found <= high:
            bounds = f"between {low} and {high}" if high < float("inf") else f"at least {low}"
            raise argparse.ArgumentTypeError(f"{text} must be {bounds}")
        return kind(text)

    parse.__name__ = getattr(kind, "__name__", "number")  # for argparse's own message
    return parse


_count: Final = _number(int, 0)
_share: Final = _number(float, 0, 1)
_positive: Final = _number(float, 0)


def _sample(text: str) -> float:
    if not _share(text):
        raise argparse.ArgumentTypeError("a sample must be above 0")
    return float(text)


def _rate(text: str) -> float:
    try:
        found = parse_limit(text, "")
    except DefinitionError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 50M") from error
    if found <= 0:
        raise argparse.ArgumentTypeError("a rate must be above 0")
    return found


def _rates(name: str) -> Callable[[str], tuple[float, ...]]:
    def parse(text: str) -> tuple[float, ...]:
        try:
            found = tuple(sorted({parse_limit(part, name) for part in filter(None, text.split(","))}))
        except DefinitionError as error:
            raise InputError(str(error)) from error
        if any(rate <= 0 for rate in found):
            raise InputError(f"{name}: a quota must be above 0")
        return found

    return parse


def _flag(text: str) -> Argument:
    return Argument(text, more={"action": "store_true"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Spark's master and resources.

    Attributes:
        driver_memory: the JVM's memory; in `local` mode that of all of Spark, except its Python workers.
        partitions: the number of shuffle partitions; 0 for four per core.
        progress: whether to show progress bars; None for only on a terminal.
    """

    master: Annotated[str, Argument("where Spark runs; local[*] is all cores here")] = "local[*]"
    driver_memory: Annotated[str, Argument("memory of the JVM; Python's own is not in it")] = "2g"
    partitions: Annotated[int, Argument("partitions of shuffles; by default four a core", parse=_count)] = 0
    spill: Annotated[str, Argument("where shuffles spill to (default: Spark's)", "DIR")] = ""
    jars: Annotated[str, Argument("jars of Spark's Kafka source (make spark-jars)", "DIR")] = ""
    progress: Annotated[
        bool | None,
        Argument("progress bars; by default on a terminal", more={"action": argparse.BooleanOptionalAction}),
    ] = None
    verbose: Annotated[bool, _flag("also show what Java and Spark log, not only errors")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """The inputs of `ingest`: files, or a topic with one row as JSON in each record."""

    inputs: Annotated[
        tuple[str, ...],
        Argument("capture directories or files", "CAPTURE", name="--input", more={"nargs": "+"}),
    ] = ()
    kafka: Annotated[str, Argument("brokers, to read a topic instead", "HOST:PORT")] = ""
    topic: Annotated[str, Argument("the topic: each record is one row as JSON")] = ""
    by: Annotated[By, Argument("quota entity that makes a client", more={"choices": get_args(By)})] = (
        "client-id"
    )
    lenient: Annotated[bool, _flag("leave out files and rows that cannot be read, and name them")] = False
    exclude: Annotated[str, Argument("client ids to leave out", "REGEX")] = FOLLOWERS


# The first choice is the default, and a gateway's.
_POLICIES: Final = ("schedule", "kip13")
_SCOPES: Final = ("cluster", "broker")
_SECONDS: Final = "SECONDS"
ENGINE_ARGUMENTS: Final = {
    "policy": Argument("quota policy to replay the requests through", more={"choices": _POLICIES}),
    "scope": Argument(
        "whether a quota holds over all brokers, or at each of them",
        parse=current_scope,
        more={"choices": _SCOPES},
    ),
    "burst_seconds": Argument("burst of the policy schedule, in seconds of quota", _SECONDS, _positive),
    "hold_seconds_max": Argument("longest hold of a request", _SECONDS, _positive),
    "mute_seconds_max": Argument("longest mute of a connection", _SECONDS, _positive),
}
ENGINE_DEFAULTS: Final = EngineOptions(policy=_POLICIES[0], scope=_SCOPES[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestOptions:
    """The options of `backtest`, which tries several quotas (candidates) on the recorded requests.

    Attributes:
        engine: the policy and its constants (`ENGINE_ARGUMENTS`); its `scope`: whether a quota holds at each broker
            separately, or at all brokers together.
        candidates: the number of quotas to choose by demand, if `produce` or `fetch` is empty.
        produce, fetch: the quotas in bytes/s to try, ascending; empty to choose them by demand.
        headroom: how many times larger the largest candidate is than any client's demand.
        day: the length of a day in seconds; of two days or more clients may be expected to need more on the next ones.
        heavy: the number of busiest clients whose loads are stored separately, so that each can get an override.
    """

    engine: EngineOptions = field(default_factory=EngineOptions)
    candidates: Annotated[
        int, Argument("number of quotas to try for each direction", parse=_number(int, 2, 200))
    ] = 20
    produce: Annotated[
        tuple[float, ...],
        Argument(
            "produce quotas to try, instead of candidates",
            "RATE,...",
            _rates("--produce-quotas"),
            "--produce-quotas",
        ),
    ] = ()
    fetch: Annotated[
        tuple[float, ...],
        Argument(
            "fetch quotas to try, instead of candidates",
            "RATE,...",
            _rates("--fetch-quotas"),
            "--fetch-quotas",
        ),
    ] = ()
    headroom: float = 1.1
    day: int = 86_400
    heavy: Annotated[
        int, Argument("number of the busiest clients that may get an override", parse=_count)
    ] = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The goals of a recommendation; rates are in bytes/s, and None if the operator has not stated them.

    Attributes:
        tolerance: a client counts as throttled if it has to wait for more than this share of the recorded time.
        sample: the share of the connections that was captured; below 1 no limits of clients are recommended.
    """

    quotas_file: Annotated[
        str,
        Argument(
            "quotas file in force; where it states a capacity, rates, ceilings and weights are recommended",
            "FILE",
        ),
    ] = ""
    capacity_in: Annotated[
        float | None, Argument("bytes/s that a broker can take from clients", "RATE", _rate)
    ] = None
    capacity_out: Annotated[
        float | None, Argument("bytes/s that a broker can send to clients", "RATE", _rate)
    ] = None
    network: Annotated[
        float | None, Argument("network bandwidth of a broker, for the replication throttle", "RATE", _rate)
    ] = None
    throttled_share: Annotated[
        float, Argument("share of the clients that may be throttled", "SHARE", _share)
    ] = 0.05
    overrides: Annotated[int, Argument("largest number of overrides", "NUMBER", _count)] = 10
    headroom: Annotated[
        float, Argument("quota in proportion to what a client needs", "FACTOR", _positive)
    ] = 1.1
    tolerance: Annotated[
        float, Argument("share of the time that counts as no throttling", "SHARE", _share)
    ] = 0.001
    horizon: Annotated[
        int,
        Argument(
            "days that the advice is for, where two days or more were recorded", "DAYS", _number(int, 1, 28)
        ),
    ] = 7
    day: Annotated[int, Argument("length of a day", _SECONDS, _number(int, 10))] = 86_400
    replication_factor: Annotated[float, Argument("replicas of the topics", "NUMBER", _positive)] = 3.0
    sample: Annotated[float, Argument("share of the connections that was captured", "SHARE", _sample)] = 1.0

    def capacity(self, direction: str) -> float | None:
        """The capacity in this direction, in bytes/s; None if it is not stated."""
        return self.capacity_in if direction == "produce" else self.capacity_out


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """The options of `evaluate`.

    Attributes:
        quotas_file: where it states a capacity, the terms that `recommend` would advise are scored as well.
        engine: the policy and its constants (`ENGINE_ARGUMENTS`), and whether a quota holds over all brokers.
        day: the length of a day in seconds; a week is seven of them.
        tolerance: a client is hurt on a day if it waits for more than this share of it.
    """

    quotas_file: Annotated[
        str,
        Argument(
            "quotas file in force; where it states a capacity, rates, ceilings and weights are scored as well",
            "FILE",
        ),
    ] = ""
    engine: EngineOptions = field(default_factory=EngineOptions)
    day: Annotated[
        int,
        Argument(
            "length of a day, of which seven are a week: for a recording that compresses them; a recording's "
            "truth.toml goes before",
            _SECONDS,
            _number(int, 10),
        ),
    ] = 86_400
    tolerance: Annotated[float, Argument("share of a day that counts as no waiting", "SHARE", _share)] = 0.001
    by: Annotated[By, Argument("quota entity that makes a client", more={"choices": get_args(By)})] = (
        "client-id"
    )
    lenient: Annotated[bool, _flag("leave out files and rows that cannot be read, and name them")] = False
    exclude: Annotated[str, Argument("client ids to leave out", "REGEX")] = FOLLOWERS


# What a connection to a server needs: of `apply` and `compare`.
_CaFile = Annotated[str, Argument("certificates to trust, for TLS", "FILE")]
_CommandConfig = Annotated[
    str, Argument("a Java client's properties, for SASL and TLS; instead of --ca-file", "FILE")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """Where and how `apply` puts the recommended quotas in force.

    Attributes:
        ca_file: the certificates to trust; "" for a connection without TLS.
        step, steps: for a rollout in steps, from limits that throttle no client today to the recommendation: the step
            to take now (0 for the last), and the number of steps.
    """

    quotas_file: Annotated[str, Argument("quotas file of the proxy to change", "FILE")] = ""
    bootstrap_server: Annotated[
        str, Argument("Sluice or brokers, to change by AlterClientQuotas", "HOST:PORT")
    ] = ""
    ca_file: _CaFile = ""
    command_config: _CommandConfig = ""
    dry_run: Annotated[bool, _flag("show the difference and change nothing")] = False
    steps: Annotated[
        int, Argument("number of steps from what clients use today to the recommendation", parse=_count)
    ] = 1
    step: Annotated[int, Argument("the step to take; by default the last", parse=_count)] = 0


Grade = Literal["high", "medium", "low"]
GRADES: Final[tuple[Grade, ...]] = get_args(Grade)  # of a confidence, the highest first


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """What `compare` compares a recommendation with, and from which difference on it proposes a change.

    Attributes:
        change: the smallest change of a quota, as a share of the smaller value; smaller ones are not proposed.
        wide: a quota is too wide from this multiple of what its client should have on.
        unused_days: how many days must have been recorded before an unused quota is removed.
        confidence: the lowest confidence of a recommendation that is proposed.
        write: the file to write the changes to; "" for none.
    """

    quotas_file: Annotated[str, Argument("quotas file with the quotas in force", "FILE")] = ""
    bootstrap_server: Annotated[
        str, Argument("Sluice or brokers, whose quotas in force are compared", "HOST:PORT")
    ] = ""
    ca_file: _CaFile = ""
    command_config: _CommandConfig = ""
    change: Annotated[
        float, Argument("smallest change that is proposed, as a share of the quota", "SHARE", _positive)
    ] = 0.2
    wide: Annotated[
        float,
        Argument(
            "multiple of what it should have from which a quota is too wide", "FACTOR", _number(float, 1)
        ),
    ] = 2.0
    unused_days: Annotated[
        float, Argument("days that must be recorded before an unused quota is removed", "DAYS", _positive)
    ] = 28.0
    confidence: Annotated[
        Grade, Argument("lowest confidence of what is proposed", more={"choices": GRADES})
    ] = "medium"
    write: Annotated[
        str,
        Argument(
            "write the changes, for `sluice quotas apply`; if FILE is --quotas-file, its tables are edited",
            "FILE",
        ),
    ] = ""


# What later stages need, as JSON beside a stage's tables.


class IngestSettings(msgspec.Struct, frozen=True):
    """The contents of `ingest/settings.json`.

    Attributes:
        by: the quota entity that makes a client.
        sources: what captures that no proxy wrote cannot know, each as "<grade>: <grounds>"
            (`protocol.capture.SOURCE_KEY`); earlier releases did not write it.
    """

    by: By
    sources: tuple[str, ...] = ()


class BacktestSettings(msgspec.Struct, frozen=True):
    """The contents of `backtest/settings.json`: the quotas that were tried, in bytes/s, and the engine's options."""

    policy: str
    engine: EngineOptions
    produce: tuple[float, ...]
    fetch: tuple[float, ...]
    heavy: int

    def candidates(self, direction: str) -> tuple[float, ...]:
        """Return the candidates of one direction, in bytes/s."""
        return self.produce if direction == "produce" else self.fetch

    @property
    def gateway(self) -> bool:
        """Whether a quota holds at all brokers together (scope `cluster`), and not at each broker separately."""
        return self.engine.scope == "cluster"


class RecommendSettings(msgspec.Struct, frozen=True):
    """The contents of `recommend/settings.json`.

    Attributes:
        confidence: the lowest confidence of all recommendations, as text.
        today: by quota key, the rate of the busiest client in bytes/s, with which a rollout in steps begins.
        elsewhere: recommendations that do not belong in a quotas file, as text; earlier releases did not write it.
    """

    goal: Goal
    by: By
    policy: str
    scope: str
    confidence: str
    today: dict[str, float]
    elsewhere: list[str] = []


Settings = TypeVar("Settings", IngestSettings, BacktestSettings, RecommendSettings)


def settings_text(settings: IngestSettings | BacktestSettings | RecommendSettings) -> str:
    """Return the JSON text of a settings file."""
    return msgspec.json.format(msgspec.json.encode(settings), indent=2).decode() + "\n"


def read_settings(kind: type[Settings], text: str) -> Settings:
    """Decode a settings file.

    Raises:
        InputError: the file does not have the fields of `kind`; the message names the field at fault.
    """
    try:
        found = msgspec.json.decode(text)
        for named in (found, found.get("engine", {})):
            if "scope" in named:
                named["scope"] = current_scope(named["scope"])
        return msgspec.convert(found, kind)
    except (msgspec.MsgspecError, AttributeError) as error:
        raise InputError(f"settings.json is not one of this release: {error}") from error

"""`apply` to a quotas file: what it shows, what it changes, what it leaves alone. No Spark is started."""

import json
from pathlib import Path

import pytest

from offline import inputs
from offline.cli import main
from offline.errors import ApplyError, InputError
from offline.jobs import apply
from offline.options import ApplyOptions, Goal, RecommendSettings, settings_text
from quotas.definitions.alterations import Quotas
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.toml_file import parse

RECOMMENDED = """\
# Recommended for policy "schedule" and scope "cluster": each quota holds over all brokers together.

[[quota]]
client_id = "<default>"
producer_byte_rate = 1000000

[[quota]]
client_id = "hog"
producer_byte_rate = 2000000
"""


MADE_FOR = (
    'for policy "schedule" and scope "cluster": each quota holds over all brokers together; '
    "lowest confidence low: 35 s recorded, so no daily peak"
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work directory in which `recommend` has run."""
    stage = tmp_path / "work" / "recommend"
    stage.mkdir(parents=True)
    (stage / "quotas.toml").write_text(RECOMMENDED)
    settings = RecommendSettings(
        goal=Goal(),
        by="client-id",
        policy="schedule",
        scope="cluster",
        confidence="low: 35 s recorded, so no daily peak",
        today={"producer_byte_rate": 10e6},
    )
    (stage / "settings.json").write_text(settings_text(settings))
    (stage / "_SUCCESS").touch()
    return tmp_path / "work"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A quotas file written by hand."""
    found = tmp_path / "quotas.toml"
    found.write_text('# by hand\n[[quota]]\nuser = "ann"\nproducer_byte_rate = 7\n')
    return found


def test_a_dry_run_shows_each_limit_and_changes_nothing(
    work: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = file.read_text()
    assert main(["apply", "--input", str(work), "--quotas-file", str(file), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        MADE_FOR,
        f"{file}: dry run, nothing is changed; would change 2 limits",
        "  client_id <default> producer_byte_rate: none -> 1,000,000",
        "  client_id hog producer_byte_rate: none -> 2,000,000",
    ]
    assert file.read_text() == before


def test_a_missing_file_is_reported_as_new(work: Path, tmp_path: Path) -> None:
    options = ApplyOptions(quotas_file=str(tmp_path / "nope.toml"))
    assert apply.run(options, str(work))[1] == (
        f"{tmp_path / 'nope.toml'} (a new file: a proxy reads it if [quotas] file names it): changed 2 limits"
    )


def test_recommendations_outside_the_quotas_file_are_named(work: Path, file: Path) -> None:
    settings = work / "recommend" / "settings.json"
    elsewhere = {"elsewhere": ["partition_mutations_rate = 0.1", "partition_mutations_burst = 2"]}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | elsewhere))
    assert apply.run(ApplyOptions(quotas_file=str(file)), str(work))[-1] == (
        "not applied, see the report: partition_mutations_rate = 0.1, partition_mutations_burst = 2"
    )


def test_a_recommendation_from_another_backtest_is_refused(work: Path, file: Path) -> None:
    before = file.read_text()
    (work / "backtest").mkdir()
    (work / "backtest" / "_SUCCESS").write_text(inputs.new_mark("backtest", {}))
    (work / "recommend" / "_SUCCESS").write_text(inputs.new_mark("recommend", {"backtest": "an earlier one"}))
    with pytest.raises(InputError, match="recommend was made from an earlier run of backtest"):
        apply.run(ApplyOptions(quotas_file=str(file)), str(work))
    (work / "recommend" / "_SUCCESS").unlink()
    with pytest.raises(InputError, match="no finished stage recommend: run `sluice-offline recommend` first"):
        apply.run(ApplyOptions(quotas_file=str(file)), str(work))
    assert file.read_text() == before


def test_limit_without_a_recommendation_stays(work: Path, file: Path) -> None:
    before = file.read_text()
    options = ApplyOptions(quotas_file=str(file))
    assert apply.run(options, str(work))[:2] == [MADE_FOR, f"{file}: changed 2 limits"]
    assert file.read_text().startswith(before)
    assert dict(parse(file.read_text()).entries()) == {
        Entity("ann"): {"producer_byte_rate": 7.0},
        Entity(client_id=DEFAULT): {"producer_byte_rate": 1e6},
        Entity(client_id="hog"): {"producer_byte_rate": 2e6},
    }
    assert apply.run(options, str(work)) == [MADE_FOR, f"{file}: nothing to change"]


def test_steps_go_down_by_the_same_share(work: Path, file: Path) -> None:
    rates = []
    for step in (1, 2, 3):
        apply.run(ApplyOptions(quotas_file=str(file), step=step, steps=3), str(work))
        found = dict(parse(file.read_text()).entries())
        rates.append(found[Entity(client_id=DEFAULT)]["producer_byte_rate"])
    # From 10 MB/s to 1 MB/s in three steps: each 10 ** (1 / 3) times smaller.
    assert rates == [pytest.approx(10e6 / 10 ** (step / 3), rel=0.01) for step in (1, 2, 3)]


def test_a_ramp_loosens_nothing_that_is_set(work: Path, file: Path) -> None:
    file.write_text('[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 3000000\n')
    apply.run(ApplyOptions(quotas_file=str(file), step=1, steps=3), str(work))
    found = dict(parse(file.read_text()).entries())
    assert found[Entity(client_id=DEFAULT)] == {"producer_byte_rate": 3e6}  # and not 10 / 10 ** (1 / 3)
    assert found[Entity(client_id="hog")] == {"producer_byte_rate": 3e6}  # the default's until now


def test_a_file_that_is_no_quotas_file_is_left_alone(work: Path, file: Path) -> None:
    file.write_text("what is this")
    with pytest.raises(ApplyError, match="is not a valid quotas file"):
        apply.run(ApplyOptions(quotas_file=str(file)), str(work))
    assert file.read_text() == "what is this"


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_rate_above_the_ceiling_in_the_file_is_refused(work: Path, file: Path, dry_run: bool) -> None:
    before = '[[quota]]\nclient_id = "hog"\nproducer_byte_rate = 1\nproducer_byte_rate_ceiling = 5\n'
    file.write_text(before)
    with pytest.raises(
        ApplyError, match=r"is left as it is, since it would be invalid: .*_ceiling: 5 must be"
    ):
        apply.run(ApplyOptions(quotas_file=str(file), dry_run=dry_run), str(work))
    assert file.read_text() == before


def test_missing_destination_is_an_error(work: Path) -> None:
    with pytest.raises(ApplyError, match="no target is given: use --quotas-file FILE, --bootstrap-server"):
        apply.run(ApplyOptions(), str(work))


def test_unknown_scheme_is_an_error() -> None:
    with pytest.raises(InputError, match="floppy://a/recommend cannot be reached"):
        apply.run(ApplyOptions(quotas_file="f"), "floppy://a")


def test_settings_of_another_form_are_named(work: Path) -> None:
    (work / "recommend" / "settings.json").write_text('{"policy": "kip13"}')
    with pytest.raises(InputError, match=r"settings.json is not one of this release: .*`goal`"):
        apply.run(ApplyOptions(quotas_file="f"), str(work))


def test_old_name_of_the_scope_is_read(work: Path, file: Path) -> None:
    settings = work / "recommend" / "settings.json"
    settings.write_text(settings.read_text().replace('"cluster"', '"gateway"'))
    assert apply.run(ApplyOptions(quotas_file=str(file), dry_run=True), str(work))[0] == MADE_FOR


# The steps of a rollout.

ENTITY = Entity(client_id="a")


def at(step: int, target: float, today: float, current: Quotas | None = None) -> float:
    limits = {ENTITY: {"producer_byte_rate": target}}
    wanted = apply.rollout(limits, {"producer_byte_rate": today}, current or {}, step, 3)
    return wanted[ENTITY]["producer_byte_rate"]


def test_every_step_takes_the_same_share_off() -> None:
    others = {Entity(client_id="b"): {"producer_byte_rate": 7.0}, Entity("u"): {"producer_byte_rate": 7.0}}
    assert [at(step, 1e6, 8e6, others) for step in (1, 2, 3)] == [4e6, 2e6, 1e6]


def test_a_target_above_todays_use_is_set_at_once() -> None:
    assert at(1, 9e6, 8e6) == 9e6


def test_a_key_without_use_is_set_at_once() -> None:
    assert apply.rollout({ENTITY: {"request_percentage": 50.0}}, {}, {}, 1, 3)[ENTITY] == {
        "request_percentage": 50.0
    }


@pytest.mark.parametrize("entity", [ENTITY, Entity(client_id=DEFAULT)])
def test_no_step_is_above_the_limit_in_force(entity: Entity) -> None:
    current = {entity: {"producer_byte_rate": 3e6, "consumer_byte_rate": 1.0}}
    assert [at(step, 1e6, 8e6, current) for step in (1, 2, 3)] == [3e6, 2e6, 1e6]


def test_a_step_that_was_taken_is_not_taken_again() -> None:
    first = at(1, 1e6, 8e6)
    assert at(1, 1e6, 8e6, {ENTITY: {"producer_byte_rate": first}}) == first


def test_limit_below_the_target_is_raised_to_the_target() -> None:
    assert [at(step, 1e6, 8e6, {ENTITY: {"producer_byte_rate": 5e5}}) for step in (1, 3)] == [1e6, 1e6]


@pytest.mark.parametrize(
    "base", [Entity("u", DEFAULT), Entity("u"), Entity(DEFAULT, "a"), Entity(DEFAULT), Entity(client_id="a")]
)
def test_a_pair_of_user_and_client_has_its_fallback_limit(base: Entity) -> None:
    pair = Entity("u", "a")
    current = {base: {"producer_byte_rate": 3e6}, Entity(client_id=DEFAULT): {"producer_byte_rate": 9e6}}
    wanted = apply.rollout({pair: {"producer_byte_rate": 1e6}}, {"producer_byte_rate": 8e6}, current, 1, 3)
    assert wanted[pair] == {"producer_byte_rate": 3e6}

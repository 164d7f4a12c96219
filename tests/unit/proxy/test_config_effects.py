"""Valid settings without effect, or with another effect than was probably meant."""

import pytest

from tests.support.configurations import parsed

CLUSTER = '[cluster]\nbootstrap = "10.0.0.9:9092"\n'
GATEWAY = CLUSTER + "[[listeners]]\n"
REPLICATES = GATEWAY + 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
IDLE = 'replication: has no effect without a listener of kind "replication"'


def warnings(text: str) -> tuple[str, ...]:
    return parsed(text).warnings


def test_replication_without_a_listener_for_it() -> None:
    throttled = '[replication]\nthrottled = "reassignments"\nleader_rate = "4M"\n'
    assert warnings(GATEWAY + throttled) == (IDLE,)
    assert warnings(REPLICATES + throttled) == ()


def test_rates_of_the_cluster_are_not_known_beside_a_sidecar_of_clients() -> None:
    sidecar = '[[listeners]]\nfirst_broker_port = 19300\nupstreams = { 1 = "127.0.0.1:29392" }\n'
    (warning,) = warnings(CLUSTER + sidecar + REPLICATES.removeprefix(CLUSTER) + 'name = "brokers"\n')
    assert warning.startswith('replication.throttled: with "cluster" and a sidecar of clients')
    text = CLUSTER + sidecar + REPLICATES.removeprefix(CLUSTER) + 'name = "brokers"\n'
    assert warnings(text + '[replication]\nthrottled = "reassignments"\n') == ()


def test_replication_that_says_nothing_but_the_defaults_is_no_mistake() -> None:
    assert warnings(GATEWAY + '[replication]\nthrottled = "cluster"\n') == ()


def test_budget_over_the_cluster_of_a_sidecar_that_is_alone() -> None:
    sidecar = '[[listeners]]\nupstreams = { 1 = "127.0.0.1:29392" }\n'
    scope = '[quotas]\nscope = "cluster"\n'
    (warning,) = warnings(sidecar + scope)
    assert warning.startswith('quotas.scope: "cluster" without [fleet] is the one broker behind this sidecar')
    assert warnings(sidecar + scope + '[fleet]\nholder = "h:1"\n') == ()
    assert warnings(sidecar.replace("{", '{ 2 = "127.0.0.1:29393",') + scope) == ()
    assert warnings(GATEWAY + scope) == ()


@pytest.mark.parametrize(
    ("hold", "mute", "warned"),
    [
        ("hold_seconds_max = 30", 20, True),
        ("", 14, True),
        ("", 15, False),
        ("hold_seconds_max = 5", 5, False),
    ],
)
def test_hold_that_is_longer_than_the_longest_mute(hold: str, mute: int, warned: bool) -> None:
    found = warnings(GATEWAY + f'[quotas]\npolicy = "schedule"\nmute_seconds_max = {mute}\n{hold}\n')
    assert [warning.partition(":")[0] for warning in found] == ["quotas.hold_seconds_max"] * warned


def test_mute_of_kafkas_own_policy_is_shorter_than_no_hold() -> None:
    assert warnings(GATEWAY + '[quotas]\npolicy = "kip13"\nmute_seconds_max = 1\n') == ()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ('producer_override = "app-*:4M"', "quotas.producer_override: 'app-*': there are no patterns"),
        ('consumer_override = "a:1M,*:4M"', 'every name without an entry of its own is "<default>"'),
        (
            'alter_principals = ["User:ops"]',
            "'User:ops': users are named without their principal's type: 'ops'",
        ),
        ('describe_principals = ["ops-*"]', "quotas.describe_principals: 'ops-*': there are no patterns"),
        ('producer_default = "2"', "quotas.producer_default: 2 is 2 bytes a second, less than one request"),
        ('consumer_override = "a:4"', "quotas.consumer_override: a:4 is 4 bytes a second"),
        (
            'policy = "kip13"\nmute_seconds_max = 20000',
            "quotas.mute_seconds_max: counts seconds: 20000 are 333 min",
        ),
    ],
)
def test_misleading_quota_names_are_warned_of(key: str, said: str) -> None:
    (warning,) = warnings(GATEWAY + f"[quotas]\n{key}\n")
    assert said in warning


def test_star_alone_names_all_principals() -> None:
    assert warnings(GATEWAY + '[quotas]\nalter_principals = ["*"]\n') == ()


def test_replication_rate_without_its_unit_is_warned_of() -> None:
    listener = 'kind = "replication"\nupstreams = { 1 = "127.0.0.1:29391" }\n'
    keys = 'throttled = "reassignments"\nleader_rate = "40"\nfollower_rate = "40M"\n'
    (warning,) = warnings(f"{GATEWAY}{listener}[replication]\n{keys}")
    assert warning.startswith("replication.leader_rate: 40 is 40 bytes a second")
    assert warning.endswith('"40k" or "40M"')

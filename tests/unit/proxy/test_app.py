"""The fields of the line at start."""

from proxy.app import summary
from tests.support.configurations import parsed

SMALL = '[cluster]\nbootstrap = "10.0.0.9:9092"\n'


def said(text: str) -> dict[str, object]:
    return dict(summary(parsed(SMALL + text), 3))


def test_summary_of_a_gateway() -> None:
    text = '[[listeners]]\nbroker_id_max = 7\n[quotas]\nfile = "q.toml"\npolicy = "schedule"\nscope = "cluster"\n'
    assert said(text) == {
        "ports": "clients 127.0.0.1: bootstrap 19090, brokers 19100-19107",
        "admin": "127.0.0.1:19080",
        "policy": "schedule",
        "scope": "cluster",
        "mode": "enforce",
        "store": "/etc/sluice/q.toml",
        "quota_entries": 3,
    }


def test_problem_is_a_field_only_where_there_is_one() -> None:
    config = parsed(SMALL + "[[listeners]]\n")
    assert "problem" not in summary(config, 3)
    assert summary(config, 3, "cluster unreachable")["problem"] == "cluster unreachable"


def test_sidecar_that_mirrors_the_brokers_quotas() -> None:
    text = '[[listeners]]\nupstreams = { 1 = "a:1", 3 = "b:1" }\n[quotas]\nstore = "cluster"\n[admin]\nbind = ""\n'
    found = said(text)
    assert found["ports"] == "clients 127.0.0.1: bootstrap 19090, broker 1 19101, broker 3 19103"
    assert (found["store"], found["mode"], found["admin"]) == ("the brokers", "observe", "none")


def test_several_listeners_and_no_store() -> None:
    replicates = 'name = "r"\nkind = "replication"\nfirst_broker_port = 29200\nupstreams = { 1 = "a:1" }\n'
    found = said(f"[[listeners]]\n[[listeners]]\n{replicates}")
    assert (
        found["ports"]
        == "clients 127.0.0.1: bootstrap 19090, brokers 19100-19163; r 127.0.0.1: broker 1 29201"
    )
    assert found["store"] == "none"

"""However a client cuts its Produces, whatever it sends before: no name of Sluice's own reaches a broker."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.proxy.channel.test_guard import GROUP, TOPIC, passed, produced, stand_in, talking

OURS = (TOPIC, GROUP)
TOPICS = st.sampled_from([*OURS, "t", "x" * len(TOPIC), f"{TOPIC}x", TOPIC[:-1], "x" * 249])
REQUESTS = st.lists(
    st.tuples(st.integers(3, 12), st.lists(TOPICS, min_size=1, max_size=3, unique=True)),
    min_size=1,
    max_size=6,
)


@given(requests=REQUESTS, sizes=st.lists(st.integers(1, 4_000), min_size=1, max_size=20))
@settings(max_examples=300, deadline=None)
def test_no_name_of_ours_passes(requests: list[tuple[int, list[str]]], sizes: list[int]) -> None:
    asked = b"".join(produced(version, topics) for version, topics in requests)
    wanted = b"".join(
        produced(version, [stand_in(topic) if topic in OURS else topic for topic in topics])
        for version, topics in requests
    )
    talk = talking(produced=1e9)
    assert passed(talk, asked, sizes) == wanted
    refused = sum(any(topic in OURS for topic in topics) for _, topics in requests)
    assert talk.stats.own_refusals == ({"Produce": refused} if refused else {})

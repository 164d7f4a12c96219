"""Messages between processes arrive, however their bytes are cut."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.process.messages import (
    Beat,
    Drain,
    Frames,
    Message,
    QuotaBatch,
    Response,
    TopicsNamed,
    TopicsWanted,
    frame_of,
)

MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Beat, st.integers(0, 1 << 20)),
    st.builds(Drain, st.booleans()),
    st.builds(Response, st.integers(0, 1 << 63), st.binary(max_size=300)),
    st.builds(TopicsWanted, st.lists(st.binary(min_size=16, max_size=16)).map(tuple)),
    st.builds(TopicsNamed, st.dictionaries(st.binary(min_size=16, max_size=16), st.text())),
    st.builds(
        QuotaBatch,
        st.dictionaries(st.text(), st.dictionaries(st.text(), st.floats(allow_nan=False))),
        st.booleans(),
    ),
)


@given(st.lists(MESSAGES), st.lists(st.integers(0, 400)))
def test_messages_arrive_however_they_are_cut(sent: list[Message], cuts: list[int]) -> None:
    data = b"".join(map(frame_of, sent))
    frames, place = Frames(), 0
    received: list[Message] = []
    for size in [*cuts, len(data)]:
        received += frames.receive(data[place : place + size])
        place += size
    assert received == sent
    assert len(frames) == 0

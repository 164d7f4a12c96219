"""proxy.fleet.messages: whatever is wished for, the protocol can express what is sent."""

from math import inf, nan

from proxy.fleet import messages
from proxy.fleet.messages import sendable
from quotas.sharing.lease_values import DEFAULT_KEY, KEYS_MAX, LesseeId, Report, Wish

REPORT = Report(LesseeId("a", 1), 0, 1, 0, {}, {DEFAULT_KEY: 0.1}, 8)


def test_what_can_not_be_sent_is_left_out_or_bounded() -> None:
    wishes: dict[str, Wish | None] = {
        "x" * 3000: Wish(1, 1),
        "é" * 1025: Wish(1, 1),  # 2050 bytes
        "\ud800": Wish(1, 1),
        "nan": Wish(nan, 1),
        "heavy": Wish(2.0, inf),
        "ended": None,
    }
    report = sendable(REPORT._replace(wishes=wishes))
    assert report.wishes == {"heavy": Wish(1.0, messages.WEIGHT_MAX), "ended": None}
    assert messages.read(messages.write(report)) == report


def test_no_more_keys_than_the_holder_takes_are_sent() -> None:
    wishes: dict[str, Wish | None] = {str(number): Wish(1, 1) for number in range(KEYS_MAX + 5)}
    assert len(sendable(REPORT._replace(wishes=wishes)).wishes) == KEYS_MAX

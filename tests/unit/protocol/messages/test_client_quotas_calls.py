"""protocol.messages.client_quotas_calls: its requests and our own server's reading, both ways."""

from protocol import header
from protocol.api import ALTER_CLIENT_QUOTAS
from protocol.messages import client_quotas, client_quotas_calls
from tests.support.quota_frames import alter_request


def test_request_is_what_the_broker_reads() -> None:
    asked = [
        ((("user", None), ("client-id", "c")), (("producer_byte_rate", 5.0), ("request_percentage", None)))
    ]
    frame = alter_request(asked, validate_only=True, correlation_id=1, client_id="me")
    assert header.REQUEST_HEAD.unpack_from(frame)[:4] == (len(frame) - 4, ALTER_CLIENT_QUOTAS, 0, 1)
    start = header.body_start(frame, 0, len(frame), ALTER_CLIENT_QUOTAS, 0)
    assert start is not None
    request = client_quotas.AlterRequest(frame, start, len(frame), 0)
    assert list(request) == asked
    assert request.validate_only


def test_answer_may_be_looked_at_before_its_entities_are_read() -> None:
    answer = client_quotas_calls.DescribeAnswer(client_quotas.describe_error(1, 3, 31, "no"), 1)
    assert (answer.error_code, answer.error_message) == (31, "no")

"""A quota request's frame → its response's frame, with Kafka's error codes (KIP-546; kafka-quotas.md §6).

    0    done                              42   INVALID_REQUEST: Kafka's own checks
    31   CLUSTER_AUTHORIZATION_FAILED      44   POLICY_VIOLATION: the configuration allows no alteration; says why
    35   UNSUPPORTED_VERSION: an unknown   56   KAFKA_STORAGE_ERROR: the file or topic could not be changed; says why
         entity type

If it cannot be changed, every entity that would have been altered has that error. This module blocks: see
`service`.

50,000 quotas are a response of 6 MB to a request of 20 bytes. So equal requests share one response in memory as long as
any client has yet to read it, unless the quotas have changed meanwhile.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from protocol.api import DESCRIBE_CLIENT_QUOTAS
from protocol.messages import client_quotas
from proxy.channel import Question, SharedResponse
from proxy.quota_api.advice import not_named
from proxy.quota_api.audit import audit
from proxy.quota_api.cooperative import drain, with_pauses
from proxy.quota_api.permissions import Permissions
from proxy.quota_api.store import Client, NotAllowedError, QuotaStore, StoreError
from proxy.system.logs import event
from quotas.definitions.alterations import FilterError, filter_of, matching, parts_of

CLUSTER_AUTHORIZATION_FAILED: Final = 31
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42
POLICY_VIOLATION: Final = 44
KAFKA_STORAGE_ERROR: Final = 56
_MESSAGE_CHARACTERS_MAX: Final = 1000  # it may repeat a name of 32,767 bytes
_PRINCIPAL_CHARACTERS_MAX: Final = 64

logger = logging.getLogger(__name__)


class Response(NamedTuple):
    """A response frame, and the name for its counter; `altered`: whether quotas have changed."""

    frame: bytearray | SharedResponse
    result: str
    altered: bool = False


class Described(bytearray):
    """A response frame that several connections may share; unlike `bytes` it supports weak references."""


Unread = WeakValueDictionary[object, Described]
"""Responses that are not written yet, by request and version of the quotas."""


def handle_request(
    store: QuotaStore, permissions: Permissions, question: Question, unread: Unread | None = None
) -> Response:
    """Make the response to one request.

    Args:
        unread: the shared responses; the caller keeps it between calls.

    Raises:
        WireError: the request is malformed.
    """
    if question.api_key == DESCRIBE_CLIENT_QUOTAS:
        return _describe(store, permissions, question, Unread() if unread is None else unread)
    return _alter(store, permissions, question)


def _describe(store: QuotaStore, permissions: Permissions, question: Question, unread: Unread) -> Response:
    version, correlation_id = question.version, question.correlation_id
    components, strict = client_quotas.read_describe(
        question.frame, question.body_at, len(question.frame), version
    )
    if not permissions.may_describe(question):
        problem = " ".join(_unauthorized(question, "describe_principals"))
        code = CLUSTER_AUTHORIZATION_FAILED
        return Response(client_quotas.describe_error(version, correlation_id, code, _cut(problem)), "refused")
    try:
        wanted = filter_of(components, strict)
    except FilterError as error:
        code = UNSUPPORTED_VERSION if error.unsupported else INVALID_REQUEST
        return Response(
            client_quotas.describe_error(version, correlation_id, code, _cut(str(error))), "refused"
        )
    key = (store.version, version, strict, tuple(components))
    frame = unread.get(key)
    if frame is None:
        found = matching(store.definitions, wanted, with_pauses(store.definitions.entries()))
        entries = ((parts_of(entity), values) for entity, values in found)
        frame = unread[key] = Described(client_quotas.describe_response(version, correlation_id, entries))
    head = bytes(frame[:4]) + correlation_id.to_bytes(4, "big", signed=True)
    return Response(SharedResponse(head, memoryview(frame).toreadonly()[len(head) :]), "described")


def _alter(store: QuotaStore, permissions: Permissions, question: Question) -> Response:
    request = client_quotas.AlterRequest(
        question.frame, question.body_at, len(question.frame), question.version
    )
    # All of it before anything is done: it may end before its fields do.
    alterations = list(with_pauses(request))
    if not permissions.may_alter(question):
        problem, advice = _unauthorized(question, "alter_principals")
        # The message is only in the first entity's result: there may be a million in one request.
        texts = chain((f"{problem} {advice}",), repeat(problem))
        code = CLUSTER_AUTHORIZATION_FAILED
        refusals = (
            (parts, code, text) for (parts, _), text in zip(with_pauses(alterations), texts, strict=False)
        )
        return _results(question, refusals, "refused")
    try:
        outcome = store.alter(
            with_pauses(alterations),
            Client(question.user, question.peer),
            validate_only=request.validate_only,
        )
    except StoreError as error:
        return _not_altered(question, alterations, error)
    deque(drain(alterations), 0)
    altered = bool(outcome.changes) and not request.validate_only
    if altered:
        audit(question, outcome, len(store.definitions))
    refused = any(problem for _, problem in outcome.results)
    results = (
        (parts, INVALID_REQUEST if problem else 0, problem or None)
        for parts, problem in drain(outcome.results)
    )
    return _results(question, results, "refused" if refused else "altered", altered)


def _not_altered(
    question: Question, alterations: list[client_quotas.Alteration], error: StoreError
) -> Response:
    """Log why quotas were not altered, and make the response that says so for each entity."""
    allowed = not isinstance(error, NotAllowedError)
    problem = str(error)
    event(
        logger,
        logging.ERROR if allowed else logging.WARNING,
        "quotas not altered",
        principal=question.user,
        address=question.peer,
        problem=problem,
    )
    code, result = (KAFKA_STORAGE_ERROR, "failed") if allowed else (POLICY_VIOLATION, "refused")
    return _results(question, ((parts, code, problem) for parts, _ in with_pauses(alterations)), result)


def _unauthorized(question: Question, key: str) -> tuple[str, str]:
    """Return why this principal has no permission, and how to get it."""
    who = question.user[:_PRINCIPAL_CHARACTERS_MAX]
    return f"Cluster authorization failed: {who!r} is not in [quotas] {key}.", not_named(who, key)


def _results(
    question: Question,
    results: Iterable[tuple[client_quotas.Parts, int, str | None]],
    result: str,
    altered: bool = False,
) -> Response:
    cut: Iterator[tuple[client_quotas.Parts, int, str | None]] = (
        (parts, code, None if problem is None else _cut(problem)) for parts, code, problem in results
    )
    frame = client_quotas.alter_response(question.version, question.correlation_id, cut)
    return Response(frame, result, altered)


def _cut(problem: str) -> str:
    return problem[:_MESSAGE_CHARACTERS_MAX]

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from protocol.api import DESCRIBE_CLIENT_QUOTAS
from protocol.messages import client_quotas
from proxy.channel import Question, SharedResponse
from proxy.control.quotas.store import (
    Client,
    NotAllowedError,
    QuotaStore,
    StoreError,
    drain,
    not_named,
    with_pauses,
)
from proxy.system.logs import AUDIT, event
from quotas.definitions.alterations import FilterError, Outcome, filter_of, matching, parts_of, text_of
from quotas.definitions.toml_file import render_value

# Permissions to describe and alter quotas (`[quotas] alter_principals`, `describe_principals`).
#
# Kafka's authorizer decides on DescribeConfigs and AlterConfigs of the cluster; without an authorizer both are allowed.
# Sluice does not know the brokers' ACLs, so it has two lists. The listed principals may alter quotas, and so may
# unauthenticated clients of a listener that only this machine can reach. Any client may describe quotas by default,
# since tools describe before they alter, and quotas are not secret in a cluster without ACLs.


ANY_PRINCIPAL: Final = "*"


@dataclass(frozen=True, slots=True)
class Permissions:
    """The principals that may alter and describe quotas; "*" is any principal, also an unauthenticated one."""

    alter: frozenset[str] = frozenset()
    describe: frozenset[str] = frozenset((ANY_PRINCIPAL,))

    def may_alter(self, question: Question) -> bool:
        """Whether the client may alter quotas: a listed principal, or any client of a trusted (loopback) listener."""
        return question.trusted or _named(question.user, self.alter)

    def may_describe(self, question: Question) -> bool:
        """Whether the requesting client may describe quotas; the permission to alter includes it."""
        return self.may_alter(question) or _named(question.user, self.describe)


def _named(user: str, principals: frozenset[str]) -> bool:
    return ANY_PRINCIPAL in principals or (user != "" and user in principals)


# The audit log of quotas: a line for each entity that an alteration has changed.
#
#     quota altered entity="client-id reports" change="producer_byte_rate: 5 -> 7" principal=ops address=…
#
# Lines of one request are bounded; what is left out is counted in a line of its own. Unlike other messages they have no
# budget of lines a second (`proxy.system.logs`), since a line that is missing here hides a change.


LINES_MAX: Final = 1000  # of one request; it may name 100,000 entities

audit_logger = logging.getLogger(AUDIT)


def audit(question: Question, outcome: Outcome, entries: int) -> None:
    """Write the changes of an AlterClientQuotas request to the audit log.

    Args:
        question: the request, with principal and address.
        outcome: the changes.
        entries: the number of entities with quotas after the request.
    """
    who = {"principal": question.user, "address": question.peer}
    for entity, after in with_pauses(islice(outcome.changes.items(), LINES_MAX)):
        change = _change(outcome.before.get(entity, {}), after)
        event(audit_logger, logging.INFO, "quota altered", entity=text_of(entity), change=change, **who)
    entities = len(outcome.changes)
    if entities > LINES_MAX:
        event(audit_logger, logging.INFO, "quotas altered, not listed", entities=entities - LINES_MAX, **who)
    event(audit_logger, logging.INFO, "quotas altered", entities=entities, quota_entries=entries, **who)


def _change(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return text with every limit that differs: its old and its new value.

    >>> _change({"producer_byte_rate": 5, "request_percentage": 1}, {"producer_byte_rate": 7})
    'producer_byte_rate: 5 -> 7, request_percentage: 1.0 -> none'
    """
    return ", ".join(
        f"{key}: {_shown(key, before.get(key))} -> {_shown(key, after.get(key))}"
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    )


def _shown(key: str, value: float | None) -> str:
    return "none" if value is None else render_value(key, value)


CLUSTER_AUTHORIZATION_FAILED: Final = 31
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42
POLICY_VIOLATION: Final = 44
KAFKA_STORAGE_ERROR: Final = 56
_MESSAGE_CHARACTERS_MAX: Final = 1000  # it may repeat a name of 32,767 bytes
_PRINCIPAL_CHARACTERS_MAX: Final = 64

logger = logging.getLogger(__name__)


class Response(NamedTuple):
    """The response to a quota request.

    Args:
        frame: the response frame.
        result: the label of the counter of requests, such as "altered", "described" or "refused".
        altered: whether quotas have changed.
    """

    frame: bytearray | SharedResponse
    result: str
    altered: bool = False


class Described(bytearray):
    """The frame of a DescribeClientQuotas response, which equal requests of several connections share.

    `Unread` has only a weak reference to it (`bytes` supports none), so it is freed when it is written to all of them.
    """


Unread = WeakValueDictionary[object, Described]
"""Responses that are not written yet, by request and version of the quotas."""


def handle_request(
    store: QuotaStore, permissions: Permissions, question: Question, unread: Unread | None = None
) -> Response:
    """Handle a DescribeClientQuotas or AlterClientQuotas request and return the response.

    Args:
        store: the quotas, which are altered if the request asks for it.
        unread: the DescribeClientQuotas responses that are not written yet, which equal requests get too. The caller
            passes the same object to each call; None: no response is shared.

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

"""Real brokers with ACLs, whose replication one Sluice throttles, and gateways that carry reassignments out (KIP-435).

    with ReassignmentRig(directory) as rig:
        front = rig.gateway("a")                      # a gateway with `mode = "batch"`; several share one journal
        rig.tool(front.bootstrap, {"t": [[3, 4]]}, "--execute")  # Kafka's own, as a user who may
        rig.until_moved("t", {0: (3, 4)})

Clients come in by SASL: `bob` may do everything, `alice` nothing, `sluice` what docs/how-to/reassignments.md says.
What brokers have is read off the brokers themselves, never through a gateway.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # theirs
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kafka_client import Connection, Login, Request, metadata
from protocol.api import ALTER_PARTITION_REASSIGNMENTS
from protocol.messages import reassignments
from protocol.messages.reassignments import AlterRequest, AlterResponse, Ongoing
from tests.cluster import Address, Listener, tools
from tests.cluster.sasl import client_properties, password
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings
from tests.support.replication_rig import ReplicationRig, reassignment_json
from tests.support.waiting import until

SASL: Final = "SASL"
_USERS: Final = ("alice", "bob", "sluice")
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_CLUSTER_RIGHTS: Final = (AclOperation.ALTER, AclOperation.DESCRIBE)
_TOPIC_RIGHTS: Final = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)

Replicas = Mapping[int, tuple[int, ...]]


class ReassignmentRig(ReplicationRig):
    """See the module."""

    def __init__(self, directory: Path, rate: str = "20M", nodes: int = 4) -> None:
        users = " ".join(f'user_{user}="{password(user)}"' for user in _USERS)
        listener = Listener(
            SASL,
            protocol="SASL_PLAINTEXT",
            properties={"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": f"{_MODULE} {users};"},
        )
        super().__init__(
            directory,
            {"throttled": "reassignments", "leader_rate": rate},
            nodes=nodes,
            properties={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS;User:bob",
            },
            listeners=(listener,),
        )
        self.gateways: dict[str, SluiceProcess] = {}
        self._gateway_settings: dict[str, SluiceSettings] = {}
        self.journal = directory / "reassignment"
        self.sections: dict[str, dict[str, dict[str, object]]] = {}  # more tables of a gateway, by its name

    def __enter__(self) -> Self:
        super().__enter__()
        self._allow()
        for user in _USERS:
            (self.directory / f"{user}.properties").write_text(client_properties(user))
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            for front in self.gateways.values():
                print(front.log())
        super().__exit__(kind, *rest)

    def stop(self) -> None:
        for name in list(self.gateways):
            self.end_gateway(name)
        super().stop()

    def gateway(self, name: str, **reassignment: object) -> SluiceProcess:
        """Start a gateway, or start it again on the ports that it had."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        known = self._gateway_settings.get(name)
        settings = SluiceSettings(
            self.cluster.bootstrap(SASL),
            known.ports if known else SluicePorts.free(),
            cluster={"sasl_mechanism": "PLAIN", "username": "sluice", "password": password("sluice")},
            sections={
                "reassignment": {"mode": "batch", "journal": str(self.journal), **reassignment},
                **self.sections.get(name, {}),
            },
        )
        self._gateway_settings[name] = settings
        self.gateways[name] = SluiceProcess.configured(settings, directory)
        return self.gateways[name].wait_ready()

    def only_gateway(self, name: str) -> SluiceProcess:
        """The gateway as it runs now, with all brokers and no other gateway, whatever a test has left that failed."""
        for node in self.cluster.nodes:
            if not self.cluster.is_running(node):
                self.cluster.start_broker(node)
        for other in self.gateways.keys() - {name}:
            self.end_gateway(other)
        return self.gateways[name] if name in self.gateways else self.gateway(name)

    def throttle(self, rate: str) -> None:
        """Have replicas that are being added come at this rate from now on."""
        self.reconfigure(leader_rate=rate)

    def allow_topics(self, *topics: str) -> None:
        """Let Sluice use topics of its own, and the groups and transactional ids of their names."""
        write = (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE)
        bindings = [_allowed(ResourceType.TOPIC, topic, one) for topic in topics for one in write]
        bindings += [_allowed(ResourceType.GROUP, topic, AclOperation.READ) for topic in topics]
        bindings += [
            _allowed(ResourceType.TRANSACTIONAL_ID, topic, one)
            for topic in topics
            for one in (AclOperation.WRITE, AclOperation.DESCRIBE)
        ]
        self._create(bindings)

    def end_gateway(self, name: str) -> None:
        """End a gateway; one that was killed is only forgotten."""
        self.gateways.pop(name).stop()

    def leads(self, front: SluiceProcess) -> bool:
        """Whether a gateway executes."""
        return self.status(front)["leads"] is True

    def until_done(self, front: SluiceProcess, topic: str, wanted: Replicas, seconds: float = 60.0) -> None:
        """Wait until a topic's replicas are these and a gateway has nothing more to do; nothing has come twice."""
        self.until_moved(topic, wanted, seconds)
        until(lambda: self.status(front)["moves"] == 0, "the end of it", seconds)
        for broker in (3, 4):
            assert self.copied(topic, broker) <= 1.2 * self.size(topic, broker), "nothing came twice"

    def tool(
        self, bootstrap: str, plan: Mapping[str, Sequence[Sequence[int]]], *words: str, user: str = "bob"
    ) -> str:
        """Run kafka-reassign-partitions."""
        path = self.directory / "plan.json"
        path.write_text(reassignment_json(plan))
        return tools.run(
            tools.REASSIGN_PARTITIONS,
            *("--bootstrap-server", bootstrap),
            *("--command-config", str(self.directory / f"{user}.properties")),
            *(() if "--list" in words else ("--reassignment-json-file", str(path))),
            *words,
        )

    def status(self, front: SluiceProcess) -> dict[str, object]:
        """What the admin port says of moves."""
        return front.document("/reassignments")

    def replicas(self, topic: str) -> dict[int, tuple[int, ...]]:
        """The replicas of each partition, in order."""
        return {number: tuple(one.replicas) for number, one in self.partitions(topic)}

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition."""
        return {number: one.leader for number, one in self.partitions(topic)}

    def ongoing(self) -> dict[tuple[str, int], Ongoing]:
        """What the brokers themselves have under way."""
        request = metadata.list_ongoing()
        return request.read(asyncio.run(_sent(self.cluster.address(1), request))).ongoing

    def asked(self, bootstrap: str, api_key: int, version: int, body: bytes, user: str = "bob") -> bytes:
        """Ask one question in a user's name, and return the response's frame."""
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        request = Request(api_key, version, body, bytes, 1 << 20)
        return asyncio.run(_sent((host, int(port)), request, Login("PLAIN", user, password(user))))

    def alter(
        self, bootstrap: str, asked: AlterRequest, version: int = 1, user: str = "bob"
    ) -> AlterResponse:
        """Send an AlterPartitionReassignments; give the response."""
        body = reassignments.request_body(asked, version)
        response = self.asked(bootstrap, ALTER_PARTITION_REASSIGNMENTS, version, body, user)
        return reassignments.read_alter_response(response, version)

    def until_moved(self, topic: str, wanted: Replicas, seconds: float = 60.0) -> None:
        """Wait until the replicas are these, in this order, and nothing is under way."""
        until(
            lambda: self.replicas(topic) == wanted and not any(name == topic for name, _ in self.ongoing()),
            lambda: f"{topic} is {wanted}: {self.replicas(topic)}, under way {self.ongoing()}",
            seconds,
        )

    def _allow(self) -> None:
        bindings = [_allowed(ResourceType.BROKER, "kafka-cluster", one) for one in _CLUSTER_RIGHTS]
        self._create(bindings + [_allowed(ResourceType.TOPIC, "*", one) for one in _TOPIC_RIGHTS])

    def _create(self, bindings: list[AclBinding]) -> None:
        for done in self.admin.create_acls(bindings).values():
            done.result(30)


async def _sent(address: Address, request: Request[Any], login: Login | None = None) -> bytes:
    connection = await Connection.open(*address, login=login)
    try:
        return await connection.send(request)
    finally:
        connection.close()


def _allowed(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:sluice", "*", operation, AclPermissionType.ALLOW
    )

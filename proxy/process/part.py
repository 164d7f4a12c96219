"""The part of a configuration that one worker has."""

from dataclasses import replace

from proxy.config import Config, FleetOptions, Source


def part_of(config: Config, workers: int) -> Config:
    """Return the configuration of a worker: its listeners, and its part of what bounds memory and descriptors.

    Sluice's own logins and the fleet's secret stay with control. Of the fleet a worker has what names its group, which
    it refuses to clients.
    """
    limits, fleet = config.limits, config.fleet
    return replace(
        config,
        cluster=replace(config.cluster, username="", password="", password_file=None),
        fleet=FleetOptions(bind=fleet.bind, holder=fleet.holder, group=fleet.group),
        listeners=tuple(listener for listener in config.listeners if not listener.replicates),
        limits=replace(
            limits,
            connections_max=-(-limits.connections_max // workers),
            handshakes_max=-(-limits.handshakes_max // workers),
            sessions_max=-(-limits.sessions_max // workers),
            pipes_max=-(-limits.pipes_max // workers),
            kept_bytes_max=max(limits.kept_bytes_max // workers, limits.kept_bytes_per_connection_max),
        ),
        source=Source(),
        warnings=(),
    )

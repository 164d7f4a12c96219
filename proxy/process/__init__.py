"""The processes of one `sluice serve` (`[process] workers`).

    relay               the data path of one process: listeners, connections, engine, capture; sweep and drain
    messages, framing   what control and workers send each other, as values and as bytes
    link                one connection between control and a worker
    restarts            when a worker that has ended is started again: pure
    workers             control's side: starts and supervises workers, sends them state, collects figures
    worker              a worker's side: a relay that gets quotas and responses over the link

With `workers = 1` there is one process: `relay` runs in the application itself, and nothing else of this package is
imported. With more, the application is the *control* process. It has the configuration, the quota store, the poller,
replication listeners, reassignments and the admin port; *workers* have the clients' connections.
"""

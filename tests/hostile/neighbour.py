"""A client that attacks nothing, in a process of its own: Produces one after the other on some connections.

    python -m tests.hostile.neighbour PORT CLIENT_ID CONNECTIONS BYTES

It says `ready`, and goes on until standard input ends.
"""

import os
import sys
import threading
import traceback

from tests.cluster import HOST
from tests.hostile import wire


def main(port: str, client_id: str, connections: str, size: str) -> None:
    """Ask until standard input ends; a connection that fails ends the process."""
    request = wire.produce(client_id, bytes(int(size)))

    def ask() -> None:
        try:
            client = wire.Client((HOST, int(port)))
            while True:
                client.send(request)
                client.skip()
        except OSError:
            traceback.print_exc()
            os._exit(1)

    for _ in range(int(connections)):
        threading.Thread(target=ask, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)

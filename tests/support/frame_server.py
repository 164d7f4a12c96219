"""A server on loopback, in threads, that responds to each frame as a test's function says."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Respond = Callable[[bytes], bytes | None]


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def serving(respond: Respond) -> Iterator[int]:
    """Serve on a free port, which is yielded.

    Args:
        respond: returns the bytes to send for a frame, both with their length prefix; None closes the connection.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while prefix := self.rfile.read(4):
                response = respond(prefix + self.rfile.read(int.from_bytes(prefix, "big")))
                if response is None:
                    return
                self.wfile.write(response)

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()

"""An honest client as a program: asks ApiVersions every few milliseconds and says how long answers took.

    python -m tests.hostile.ping_program HOST PORT [SOURCE]

Timed from the moment a request was meant to leave, so a stall is not hidden by the requests it kept back. At SIGTERM,
or when the connection is lost, it writes one line of JSON: each request's due time (monotonic) and latency in seconds,
and why it was lost.
"""

import json
import signal
import sys
import time
from typing import Final

from tests.hostile.wire import Client, api_versions

_PAUSE_SECONDS: Final = 0.01
_SECONDS_MAX: Final = 300.0


class EndedError(Exception):
    """SIGTERM."""


def main(host: str, port: int) -> None:
    """Ask until told to stop."""

    def stop(*_: object) -> None:
        raise EndedError

    signal.signal(signal.SIGTERM, stop)
    latencies: list[tuple[float, float]] = []
    lost = ""
    due = 0.0
    try:
        client = Client((host, port))
        request = api_versions("ping")
        client.ask(request)  # the broker is connected for it
        due = began = time.monotonic()
        while due - began < _SECONDS_MAX:
            client.ask(request)
            now = time.monotonic()
            latencies.append((due, now - due))
            due += _PAUSE_SECONDS
            time.sleep(max(0.0, due - now))
    except EndedError:
        if due:
            latencies.append((due, max(0.0, time.monotonic() - due)))
    except OSError as error:
        lost = f"{type(error).__name__}: {error}"
    print(json.dumps({"latencies": latencies, "lost": lost}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

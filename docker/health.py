"""The images' health check: ends with 0 if the page $HEALTH_URL of this container responds with 200, else with 1."""

import os
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

_SECONDS_MAX = 2.0


def healthy(address: str) -> bool:
    """Return whether a page responds with 200.

    A certificate is not verified: the page is this container's own, and its name there is 127.0.0.1.
    """
    url = urlsplit(address)
    if url.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: HTTPConnection = HTTPSConnection(url.netloc, timeout=_SECONDS_MAX, context=context)
    else:
        connection = HTTPConnection(url.netloc, timeout=_SECONDS_MAX)
    try:
        connection.request("GET", url.path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if healthy(os.environ["HEALTH_URL"]) else 1)

"""Reads one page from several members at once; a member that does not respond delays no other."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from proxy.commands.admin_page import Document, read_document
from proxy.system.errors import ServerError, SluiceError

_GRACE_SECONDS: Final = 0.5  # of the whole, for a member's own error, which says more


def read_documents(
    admins: Sequence[str], path: str, *, seconds_max: float, bytes_max: int
) -> Mapping[str, Document | SluiceError]:
    """Return each member's page, or the error why it cannot be read, by its admin port as given.

    The document of a response with status 404 is returned as a page. The threads are daemons, so that the command does
    not wait for a member that sends a byte now and then.

    Args:
        seconds_max: the time for all members together.
        bytes_max: the largest page.
    """
    found: dict[str, Document | SluiceError] = {}

    def ask(admin: str) -> None:
        try:
            page = read_document(admin, path, absent=True, seconds_max=seconds_max, bytes_max=bytes_max)
            found[admin] = page
        except SluiceError as error:
            found[admin] = error

    threads = [threading.Thread(target=ask, args=(admin,), daemon=True) for admin in admins]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds_max + _GRACE_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = f"no response within {seconds_max:g} s"
    return {admin: found.get(admin, ServerError(f"{admin}: {silent}")) for admin in admins}

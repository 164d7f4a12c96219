"""What an object keeps alive: to assert that a secret, or a large frame, is not kept."""

import gc


def reachable(root: object) -> bytes:
    """Everything an object leads to, as text; classes, modules and functions excluded."""
    seen: set[int] = set()
    found: list[bytes] = []
    queue = [root]
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type) or callable(item):
            continue
        seen.add(id(item))
        if isinstance(item, str | bytes | bytearray | memoryview):
            found.append(item.encode("utf-8", "replace") if isinstance(item, str) else bytes(item))
        elif type(item).__name__ != "module":
            queue += gc.get_referents(item)
    return b"\n".join(found)

"""`sluice top`: all clients live in a terminal, in a process of its own; read only.

    page      what members say at one moment, merged, with its warnings
    rows      rows of clients: why they wait, sorted, filtered
    table     plain text and JSON of a page
    members   asks members, each in a thread of its own, so that a silent one stalls no other
    screen    the live view; Textual is Sluice's extra `top`, and imported by this module alone

Documents are read, merged and judged by `proxy.v1`. Only `proxy.commands.top` imports this package.
"""

__all__: list[str] = []

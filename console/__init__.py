"""`sluice console`: a web page over the members of a fleet, in a process of its own; read only.

    options     bounds and options
    history     the last quarter of an hour of each client and broker, bounded
    member      asks one member over HTTP, bounded in time and bytes
    board       all members: who responds, what they say, merged
    tables      sorted, filtered, paged
    drawing     numbers -> points of SVG
    views       what each page shows; also what a stream pushes
    rendering   templates, with everything escaped
    guard       Host, token, headers of every response
    site        paths and streams
    server      uvicorn, until a signal

Documents are read, merged and judged by `proxy.v1`. Data flows from `member` up to `site`. It imports no data path, and
only `proxy.commands.console` imports it: Starlette, uvicorn, jinja2, sse-starlette and httpx are Sluice's extra
`console` (docs/decisions/0015).
"""

__all__: list[str] = []

"""`sluice console`: a web page over the members of a fleet, in a process of its own; read only.

    causes      why a client waits, in a few words: pure
    merging     the documents of several members, made one: pure
    verdict     the document of a client as lines for people: pure
    member      asks one member over HTTP, bounded in time and bytes
    board       all members: who responds, what they say, merged; the last quarter of an hour of each client
    views       what each page shows; also what a stream pushes
    rendering   templates, with everything escaped; numbers as points of SVG
    site        Host, token and headers of every response; paths and streams; uvicorn, until a signal
    top         `sluice top`: asks members in threads; rows as text and JSON
    screen      its live view

Documents are decoded into the structs that they were written from (`proxy.explain.documents`). Data flows from `member`
up to `site`. No data path is imported here, and only the commands import it: Starlette, uvicorn, jinja2, sse-starlette,
httpx and Textual are Sluice's extra `operator` (docs/decisions/0015).
"""

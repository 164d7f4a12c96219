"""Coverage-guided fuzzing of every reader of foreign bytes (`make fuzz`), and a corpus that any Python replays.

    bytes ──► Draw ──► target: a reader, or a channel with its shell ──► nothing, or a finding

A target takes any bytes at all and turns them into what a peer could send: a script of frames with right lengths, one
frame, or the bytes as they are. What a reader may raise on a peer's bytes is caught by the target; whatever else comes
out is a finding, and so is a single call that takes too much of its thread's CPU time (`stopwatch`). Nothing here needs
Atheris but `run`, which is a process of its own: the corpus is replayed with the unit tests
(`tests.property.test_fuzz_corpus`).

    draw        values out of bytes, and large frames out of few of them
    stopwatch   the time bound for one call
    channels    a channel of any kind, configured by bytes
    shell       shows bytes to a channel as `proxy.net.pump` does
    dialogue    scripts of several requests and responses; one request; one request and its response
    messages    readers of single messages, by name and version
    fleet       messages between members of a fleet; what comes to its port, and what members of the group say
    readers     readers of what is no Kafka message: PROXY, tokens, certificates, HTTP; of files (configuration, quotas,
                broker map, journal) and of records of the quota topic
    targets     all of them by name
    run         one target under Atheris, in a process of its own
    corpus      inputs that are kept: texts in `corpus/`; `seeds` makes them, `minimise` keeps few
"""

__all__: list[str] = []

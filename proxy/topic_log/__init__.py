"""A Kafka topic of one partition as a log: created, read to its end, followed, and appended to.

    records     what is read and appended, and why neither is possible; no Kafka library
    contract    a log as its readers see it
    inbox       portions of records on their way from the log's thread to their reader's
    thread      one thread with an event loop, for all logs of the process
    access      addresses, TLS and login; single requests on Sluice's own connections
    topic       the topic: what it must be like, what it is, its creation
    clients     aiokafka's consumer and producer; the only module that imports it
    fenced      appends by one process at a time
    log         the log: reading and appending, and what to do about problems

Nothing here knows what the records mean. aiokafka is loaded only where a log is configured, and runs on the log's
thread, since it decodes on its event loop (docs/decisions/0011). Connections go to the brokers, not through a listener.
"""

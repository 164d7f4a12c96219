"""A Kafka topic of one partition as a log: created, read to its end, followed, and appended to.

    records     records, portions and problems; which records are the fleet's own, and not repeated; no Kafka library
    topic       the topic, required and as it is; the way to its cluster; the thread of all logs
    clients     aiokafka's consumer and producer; the only module that imports it
    log         the log: reading, appending, and recovery from problems
    writers     appends to a topic that this process does not read; appends by one process at a time

The contents of records are not interpreted here. aiokafka is loaded only where a log is configured, and runs on the
log's thread, since it decodes on its event loop (docs/decisions/0011). Connections go to the brokers, not through a
listener.
"""

"""A Kafka topic of one partition as a log: created, read to its end, followed, and appended to.

    records     the values that a log and its reader exchange: records, portions, problems; no Kafka library
    signed      which records are the fleet's own, and which of these are repeated; no Kafka library
    contract    the interface of a log for its readers
    inbox       portions of records on their way from the log's thread to their reader's
    thread      one thread with an event loop, for all logs of the process
    access      addresses, TLS and login; single requests on Sluice's own connections
    topic       the topic: required and actual properties, and creation
    clients     aiokafka's consumer and producer; the only module that imports it
    fenced      appends by one process at a time
    log         the log: reading, appending, and recovery from problems
    events      events appended to a topic that this process does not read

The contents of records are not interpreted here. aiokafka is loaded only where a log is configured, and runs on the
log's thread, since it decodes on its event loop (docs/decisions/0011). Connections go to the brokers, not through a
listener.
"""

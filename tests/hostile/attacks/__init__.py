"""The attacks, one family a module: evasions of the quota, standing in others' way, stops and stalls of the process,
memory, and what Sluice keeps in Kafka.
"""

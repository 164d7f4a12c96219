"""What a process needs of its machine: files, threads, clocks, logs, counters. Knows nothing of Kafka."""
